"""The Tune trainable of a standalone network that several workers train together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from archray.errors import InvalidInput
from archray.trainables.training import Trainer
from archray.trainables.tune.standalone_trainable import StandaloneTrainable
from archray.trainables.tune.worker_group import WorkerGroup


class ParallelTrainable(StandaloneTrainable):
    """As `StandaloneTrainable`, by a worker for each bundle that the trial has after its first, empty one.

    The trial itself only leads: workers are actors in its bundles, results and checkpoints are those of one worker,
    and are read and restored by any number of them. A worker that is lost fails the trial, which Tune tries again from
    its last checkpoint with workers of its own.
    """

    _group: WorkerGroup | None = None

    def _take(self, resources: Mapping[str, float] | None) -> None:
        self._device = torch.device("cpu")  # here is nothing but the state on its way to a checkpoint

    def _build(self) -> None:
        allotment = self.trial_resources
        if allotment is None or not allotment.head_bundle_is_empty:
            raise InvalidInput(
                "expected a trial whose first bundle is empty, with one for each worker after it: "
                "tune.PlacementGroupFactory([{}, {'CPU': 1}, {'CPU': 1}])"
            )
        self._group = WorkerGroup(
            allotment.bundles,
            self._settings.model_dump(mode="json"),
            self._architecture,
            seed=self._seed,
            threads=self._settings.training.threads,
        )
        self._parameters, self._multiply_adds = (self._group.facts[key] for key in ("parameters", "multiply_adds"))
        self._trainer = cast(Trainer, self._group)  # of which it has all that is asked for beside what is below

    def _epoch(self) -> dict[str, Any]:
        assert self._group is not None  # a step comes after `_build`
        return self._values(*self._group.epoch())

    def _state(self) -> dict[str, Any]:
        group = self._group
        return {
            "architecture": self._architecture,
            "in_channels": group.facts["in_channels"] if group else None,
            "num_classes": group.facts["num_classes"] if group else None,
            "trainer": group.state_dict() if group else None,
        }

    def _release(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None
        super()._release()
