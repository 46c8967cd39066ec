"""What all Tune trainables here have in common: how a trial begins, fails, is saved and is reused."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel
from ray import tune

from archray.trainables.checkpoint import read_state, write_state
from archray.trainables.devices import choose_device, out_of_memory
from archray.trainables.epoch_trainer import EpochTrainer
from archray.trainables.tune.gauges import report_epoch
from archray.trainables.tune.trial_config import read_settings, read_whole_number

Result = dict[str, Any]


class TrialFailed(Exception):
    """What a retry cannot cure; the message is the reason. Raised by `_build` and `_step`, it becomes a result."""


class TrialTrainable(tune.Trainable):
    """A Tune trainable whose failures are results and whose actors can be reused.

    A subclass says which `settings_type` stands in the config under `settings` (with `device` and `seed`), and

    1. `_read(config)`: what else the config says, into attributes. Raises: InvalidInput.
    2. `_build()`: what the steps work on, on `_device`.
    3. `_step()`: one step; its result, with at least `failure` (None) and `done`.
    4. `_failed(reason)`: the result of a trial that failed, with the same keys.
    5. `_state()`: what a checkpoint holds besides seed, settings and last result; and `load_checkpoint`.
    6. `_release()`: drops what holds memory, then calls this class's.

    What `_build` and `_step` raise becomes a failed result if it is one of `failures` or memory that ran out, which a
    retry cannot cure. Anything else is raised, so that Tune retries the trial from its last checkpoint. After a result
    that is done, each further step reports it again.
    """

    settings_type: ClassVar[type[BaseModel]]
    failures: ClassVar[tuple[type[Exception], ...]] = (TrialFailed,)

    _settings: Any  # a `settings_type`
    _seed: int
    _device: torch.device
    _result: Result | None  # the last one; before the first step None, or the failure that building met

    def setup(self, config: dict[str, Any]) -> None:
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        self._release()

    def step(self) -> Result:
        if self._result is None or not self._result["done"]:
            self._result = self._guarded(self._step)
        assert self._result is not None  # a step always has a result
        return dict(self._result)

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        settings = self._settings.model_dump(mode="json")
        write_state(checkpoint_dir, {"seed": self._seed, "settings": settings, "result": self._result, **self._state()})

    def _begin(self, config: dict[str, Any]) -> None:
        """Sets all state of a trial; of the trial before nothing is left but what a subclass keeps knowingly."""
        self._release()
        self._result = None
        self._settings = read_settings(self.settings_type, config.get("settings", {}))
        self._seed = read_whole_number(config, "seed", self._settings.seed, least=0)
        self._read(config)
        allotment = self.trial_resources  # by Tune; None outside it
        resources = allotment.required_resources if allotment is not None else None
        self._device = choose_device(
            self._settings.device, gpus=None if resources is None else resources.get("GPU", 0.0)
        )
        threads = self._threads()
        if threads is None and resources is not None:
            threads = max(1, int(resources.get("CPU", 0.0)))
        if threads is not None:
            self._set_threads(threads)
        self._result = self._guarded(self._build)

    def _guarded(self, work: Callable[[], Result | None]) -> Result | None:
        """What `work` returns; a failed result where it meets something that a retry cannot cure."""
        try:
            return work()
        except self.failures as error:
            reason = str(error)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            shortage = out_of_memory(error)
            if shortage is None:
                raise
            reason = shortage
        result = self._failed(reason)
        self._release()
        return result

    def _threads(self) -> int | None:
        """As the settings say; None: as many as the trial has CPUs, on whose number sums, and so results, depend."""
        threads: int | None = self._settings.threads
        return threads

    def _set_threads(self, threads: int) -> None:
        """It is state of the process, and in Tune the process is this trial's own."""
        torch.set_num_threads(threads)

    def _release(self) -> None:
        """Gives memory back, so that the next trial of a reused actor finds it free."""
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _read(self, config: dict[str, Any]) -> None:
        raise NotImplementedError

    def _build(self) -> None:
        raise NotImplementedError

    def _step(self) -> Result:
        raise NotImplementedError

    def _failed(self, reason: str) -> Result:
        raise NotImplementedError

    def _state(self) -> dict[str, Any]:
        raise NotImplementedError


TrainerT = TypeVar("TrainerT", bound=EpochTrainer)


class EpochTrainable(TrialTrainable, Generic[TrainerT]):
    """A `TrialTrainable` with a trainer, one epoch per step.

    A subclass's `_read` sets `_epochs` and its `_build` sets `_trainer` and `_parameters`. It says `_epoch()`, the
    values of one epoch, and `_no_values()`, the same of a trial that failed. To these every result adds `epoch`,
    `epochs`, `lr` (of the next step), `parameters`, `seconds_epoch`, `failure`, `done`.
    """

    _trainer: TrainerT | None
    _epochs: int
    _parameters: int

    @property
    def trainer(self) -> TrainerT:
        """The trainer at work. Raises: RuntimeError for a trial that failed: it has none."""
        if self._trainer is None:
            raise RuntimeError("the trial failed and holds no trainer; see `failure` in its result")
        return self._trainer

    def load_checkpoint(self, checkpoint: Any) -> None:  # the folder that `save_checkpoint` was given
        state = read_state(checkpoint, self._device)
        if state["trainer"] is None:  # the trial had failed
            self._result = state["result"]
        elif self._trainer is not None:  # else building it failed here and now, which `_result` says
            self._trainer.load_state_dict(state["trainer"])
            self._result = state["result"]

    def _step(self) -> Result:
        start = time.perf_counter()
        values = self._epoch()
        result = self._results(values, seconds=time.perf_counter() - start)
        report_epoch(self.trial_id, result)
        return result

    def _failed(self, reason: str) -> Result:
        return self._results(self._no_values(), seconds=math.nan, failure=reason)

    def _results(self, values: dict[str, Any], *, seconds: float, failure: str | None = None) -> Result:
        trainer = self._trainer
        return {
            **values,
            "epoch": trainer.epochs_done if trainer else 0,
            "epochs": self._epochs,
            "lr": trainer.lr if trainer else math.nan,
            "parameters": self._parameters,
            "seconds_epoch": seconds,
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

    def _threads(self) -> int | None:
        threads: int | None = self._settings.training.threads
        return threads

    def _release(self) -> None:
        self._trainer = None
        self._parameters = 0
        super()._release()

    def _epoch(self) -> dict[str, Any]:
        raise NotImplementedError

    def _no_values(self) -> dict[str, Any]:
        raise NotImplementedError
