"""Networks trained for ensembles: those of a pool to select from, and one whose snapshots are the members."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from archray.errors import InvalidInput
from archray.trainables.checkpoint import read_state, read_weights, write_weights
from archray.trainables.ensembles.prediction import predict
from archray.trainables.tune.standalone_trainable import StandaloneSettings, StandaloneTrainable


class MemberSettings(StandaloneSettings):
    """All options of a `MemberTrainable`.

    Args:
        predictions_dir: where it writes its predictions: a local path or a pyarrow URI that every node reads.
    """

    predictions_dir: str


class MemberTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` that, after its last epoch, writes its class probabilities on the validation images.

    It is one of a pool that ensembles are selected from (Zaidi et al. 2021 (NES), section 4). Results have one entry
    more: `predictions`, the URI that `read_predictions` takes; None before the last epoch, and of a trial that failed.
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


class SnapshotTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` that keeps the network's weights at the end of each cycle of `training.cycles`.

    There the learning rate has come down to zero and the network to a minimum; the next cycle begins at the full rate
    and leads to another one (Huang et al. 2017, section 3). Results are those of `StandaloneTrainable`, of the network
    at hand, and the last snapshot is the network after its last epoch. `snapshot_states` reads them from a checkpoint.
    """

    _snapshots: list[dict[str, torch.Tensor]]

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        self._snapshots = read_state(checkpoint)["snapshots"]

    def _epoch(self) -> dict[str, Any]:
        values = super()._epoch()
        if self.trainer.epochs_done in self._settings.training.cycle_ends:
            state = self.trainer.network.state_dict()
            self._snapshots.append({name: tensor.detach().cpu().clone() for name, tensor in state.items()})
        return values

    def _state(self) -> dict[str, Any]:
        return {"snapshots": self._snapshots, **super()._state()}

    def _release(self) -> None:
        self._snapshots = []
        super()._release()


def snapshot_states(folder: str | Path) -> list[dict[str, Any]]:
    """The networks at the ends of the cycles, in order: of each the state that a `StandaloneTrainable` would have saved
    for `load_trained`.

    folder: of a `SnapshotTrainable`'s checkpoint. Raises: InvalidInput if it holds no snapshot.
    """
    state = read_state(folder)
    snapshots: list[dict[str, torch.Tensor]] = state.pop("snapshots", [])
    if not snapshots:
        raise InvalidInput(
            f"expected the checkpoint of a SnapshotTrainable after a cycle's end, got one without snapshots: {folder}"
        )
    return [{**state, "trainer": {"network": weights}} for weights in snapshots]
