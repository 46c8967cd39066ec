"""What the Tune trainables with a trainer have in common: a step is an epoch, and what it took."""

from __future__ import annotations

import math
import time
from typing import Any, Generic, TypeVar

import torch

from archray.trainables.checkpoint import read_state
from archray.trainables.epoch_trainer import EpochTrainer
from archray.trainables.tune.trial import Result, TrialTrainable

TrainerT = TypeVar("TrainerT", bound=EpochTrainer)


class EpochTrainable(TrialTrainable, Generic[TrainerT]):
    """A `TrialTrainable` with a trainer, one epoch per step.

    A subclass's `_read` sets `_epochs` and its `_build` sets `_trainer` and `_parameters`. It says `_epoch()`, the
    values of one epoch, and `_no_values()`, the same of a trial that failed. To these every result adds `epoch`,
    `epochs`, `lr` (of the next step), `parameters`, `seconds_epoch`, `gpu_memory_peak` (bytes that torch held at most
    during the epoch; NaN without a GPU), `failure`, `done`.
    """

    _trainer: TrainerT | None
    _epochs: int
    _parameters: int

    @property
    def trainer(self) -> TrainerT:
        """The trainer at work. Raises: RuntimeError for a trial that failed: it has none."""
        if self._result is None:
            self.begin()
        if self._trainer is None:
            raise RuntimeError("the trial failed and holds no trainer; see `failure` in its result")
        return self._trainer

    def load_checkpoint(self, checkpoint: Any) -> None:  # the folder that `save_checkpoint` was given
        state = read_state(checkpoint, self._device)
        if state["trainer"] is None:  # the trial had failed
            self._result = state["result"]
            return
        self.begin()
        if self._trainer is not None:  # else building it failed here and now, which `_result` says
            self._trainer.load_state_dict(state["trainer"])
            self._result = state["result"]

    def _step(self) -> Result:
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(self._device)
        start = time.perf_counter()
        values = self._epoch()
        seconds = time.perf_counter() - start
        memory = float(torch.cuda.max_memory_allocated(self._device)) if on_gpu else math.nan
        return self._results(values, seconds=seconds, memory=memory)

    def _failed(self, reason: str) -> Result:
        return self._results(self._no_values(), seconds=math.nan, failure=reason)

    def _results(
        self, values: dict[str, Any], *, seconds: float, memory: float = math.nan, failure: str | None = None
    ) -> Result:
        trainer = self._trainer
        return {
            **values,
            "epoch": trainer.epochs_done if trainer else 0,
            "epochs": self._epochs,
            "lr": trainer.lr if trainer else math.nan,
            "parameters": self._parameters,
            "seconds_epoch": seconds,
            "gpu_memory_peak": memory,
            "failure": failure,
            "done": failure is not None or (trainer is not None and trainer.finished),
        }

    def _state(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "in_channels": trainer.dataset.in_channels if trainer else None,
            "num_classes": trainer.dataset.num_classes if trainer else None,
            "trainer": trainer.state_dict() if trainer else None,
        }

    def _release(self) -> None:
        self._trainer = None
        self._parameters = 0

    def _epoch(self) -> dict[str, Any]:
        raise NotImplementedError

    def _no_values(self) -> dict[str, Any]:
        raise NotImplementedError
