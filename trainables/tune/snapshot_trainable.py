"""Snapshot ensembles: one training of several cycles, whose ends are the members. Huang et al. 2017."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.checkpoint import read_state
from archray.trainables.tune.standalone_trainable import StandaloneTrainable

Weights = dict[str, Tensor]


class SnapshotTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` that keeps the network's weights at the end of each cycle of `training.cycles`.

    There the learning rate has come down to zero and the network to a minimum; the next cycle begins at the full rate
    and leads to another one (section 3). Results are those of `StandaloneTrainable`, of the network at hand, and the
    last snapshot is the network after its last epoch. `snapshot_states` reads them from a checkpoint.
    """

    _snapshots: list[Weights]

    def load_checkpoint(self, checkpoint: Any) -> None:
        super().load_checkpoint(checkpoint)
        self._snapshots = read_state(checkpoint)["snapshots"]

    def _read(self, config: dict[str, Any]) -> None:
        super()._read(config)
        self._snapshots = []

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
    snapshots: list[Weights] = state.pop("snapshots", [])
    if not snapshots:
        raise InvalidInput(
            f"expected the checkpoint of a SnapshotTrainable after a cycle's end, got one without snapshots: {folder}"
        )
    return [{**state, "trainer": {"network": weights}} for weights in snapshots]
