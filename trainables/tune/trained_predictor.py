"""The worker that gives the probabilities of trained networks on a split of the data, inside an actor or here."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device
from archray.trainables.ensembles import predict
from archray.trainables.tune.trained_network import load_trained


class TrainedPredictor:
    """Holds a split of the data; gives the probabilities on it of any number of trained networks.

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
