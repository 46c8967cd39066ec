"""A network trained to be one of a pool that ensembles are selected from. Zaidi et al. 2021 (NES), section 4."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from archray.trainables.ensembles.prediction import predict
from archray.trainables.supernets.shared_weights import read_weights, write_weights
from archray.trainables.tune.standalone_trainable import StandaloneSettings, StandaloneTrainable


class MemberSettings(StandaloneSettings):
    """All options of a `MemberTrainable`.

    Args:
        predictions_dir: where it writes its predictions: a local path or a pyarrow URI that every node reads.
    """

    predictions_dir: str


class MemberTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` that, after its last epoch, writes its class probabilities on the validation images.

    Results have one entry more: `predictions`, the URI that `read_predictions` takes; None before the last epoch, and
    of a trial that failed.
    """

    settings_type: ClassVar[type[StandaloneSettings]] = MemberSettings
    _settings: MemberSettings

    def _epoch(self) -> dict[str, Any]:
        values = super()._epoch()
        trainer = self.trainer
        if trainer.finished:
            settings = self._settings
            probabilities = predict(trainer.network.eval(), trainer.dataset.validation, amp=settings.training.amp)
            name = f"{self._seed}-{zlib.crc32(self._architecture.encode()):08x}.pt"
            values["predictions"] = write_weights(
                settings.predictions_dir, name, {"validation": torch.from_numpy(probabilities)}
            )
        return values

    def _values(self, *metrics: Any) -> dict[str, Any]:
        return {**super()._values(*metrics), "predictions": None}

    def _state(self) -> dict[str, Any]:
        """With the settings of a `StandaloneTrainable`, so that its readers read this checkpoint too."""
        return {"settings": self._settings.model_dump(mode="json", exclude={"predictions_dir"}), **super()._state()}


def read_predictions(uri: str | Path) -> npt.NDArray[np.float32]:
    """(images, classes) probabilities of a pool's network on the validation images. Raises: FileNotFoundError."""
    probabilities: npt.NDArray[np.float32] = read_weights(str(uri))["validation"].numpy()
    return probabilities
