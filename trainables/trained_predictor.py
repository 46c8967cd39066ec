"""The worker that gives the probabilities of trained networks on a split of the data, inside an actor or here."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device
from archray.trainables.trained import load_trained
from archray.trainables.training import EVALUATION_BATCH

Floats = NDArray[np.float32]


class TrainedPredictor:
    """Holds a split of the data; gives the outputs on it of any number of trained networks.

    Args:
        data: settings of the data, as a dict.
        split: `validation` or `test`.
        space: of the networks, instead of their trials' own; see `load_trained`.
        device: `auto` takes a GPU where one is visible.
    """

    def __init__(
        self,
        data: dict[str, Any],
        split: Literal["validation", "test"] = "test",
        space: str | None = None,
        device: str = "auto",
    ) -> None:
        self.device = choose_device(device)
        self.images = getattr(load_images(DataSettings(**data), device=self.device), split).images
        self.space = space

    def __call__(self, checkpoint: Any) -> Floats:
        """(images, classes) probabilities of the network in a checkpoint of Tune's, of a `StandaloneTrainable`."""
        with checkpoint.as_directory() as place:
            return probabilities(load_trained(place, space=self.space).to(self.device), self.images)


@torch.no_grad()
def probabilities(network: nn.Module, images: torch.Tensor) -> Floats:
    """(images, classes) of a network in evaluation mode that gives logits; both lie on one device."""
    parts = [network(some).float().softmax(1) for some in images.split(EVALUATION_BATCH)]
    found: Floats = torch.cat(parts).cpu().numpy()
    return found
