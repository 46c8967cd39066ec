"""A trained network, out of the checkpoint that its trial left, and the worker that predicts with such networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import nn

from archray.errors import InvalidInput
from archray.trainables.checkpoint import read_state
from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device
from archray.trainables.ensembles.prediction import DROP_PATH, DroppedPaths, predict
from archray.trainables.nets import build
from archray.trainables.spaces import Space
from archray.trainables.tune.standalone_trainable import StandaloneSettings
from archray.trainables.tune.trial_config import read_settings


def load_trained(folder: str | Path, space: str | Space | None = None) -> nn.Module:
    """The network in a `StandaloneTrainable`'s checkpoint, on the CPU, in evaluation mode.

    The checkpoint says all that is needed: settings, architecture, seed, channels, classes, and whether the network is
    to drop paths (`DroppedPaths`).

    folder: of the checkpoint. space: instead of the trial's own, for a reference whose file has moved.
    Raises: InvalidInput for the checkpoint of a trial that failed: it holds no network.
    """
    state = read_state(folder)
    if state["trainer"] is None:
        raise InvalidInput(f"the checkpoint {folder} holds no network, its trial failed: {state['result']['failure']}")
    settings = read_settings(StandaloneSettings, state["settings"])
    network = build(
        settings.space if space is None else space,
        state["architecture"],
        network=settings.network,
        in_channels=state["in_channels"],
        num_classes=state["num_classes"],
        seed=state["seed"],
    )
    network.load_state_dict(state["trainer"]["network"])
    dropped = state.get(DROP_PATH)
    return network.eval() if dropped is None else DroppedPaths(network, **dropped)


class TrainedPredictor:
    """Holds a split of the data, inside an actor or here; gives the probabilities on it of trained networks.

    Args:
        data: settings of the data, as a dict.
        split: `validation` or `test`.
        space: of the networks, instead of their trials' own; see `load_trained`.
        amp: forward passes in bfloat16.
        device: `auto` takes a GPU where one is visible.
    """

    def __init__(
        self,
        data: dict[str, Any],
        split: Literal["validation", "test"] = "test",
        space: str | None = None,
        amp: bool = False,
        device: str = "auto",
    ) -> None:
        self.device = choose_device(device)
        self.split = getattr(load_images(DataSettings(**data), device=self.device), split)
        self.space, self.amp = space, amp

    @property
    def labels(self) -> NDArray[np.int64]:
        """Of the split's images: (images,)."""
        found: NDArray[np.int64] = self.split.labels.cpu().numpy()
        return found

    def __call__(self, checkpoint: Any) -> NDArray[np.float32]:
        """(images, classes), of the network in a checkpoint of Tune's, of a `StandaloneTrainable`."""
        with checkpoint.as_directory() as place:
            return predict(load_trained(place, space=self.space).to(self.device), self.split, amp=self.amp)
