"""The bases of archray's Tune trainables: how a trial reads its config, begins, fails, is saved and reused."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from ray import tune

from archray.errors import InvalidInput
from archray.trainables.checkpoint import read_state, write_state
from archray.trainables.devices import OUT_OF_MEMORY, choose_device, free_memory, limit_memory, out_of_memory

BATCHES = 8  # of an epoch that `MemoryProbe` trains: what kernels ask for on top they have asked for by then
EVALUATED = 1024  # images of the probe at least: two passes of an evaluation

Result = dict[str, Any]
SettingsT = TypeVar("SettingsT", bound=BaseModel)
TrainerT = TypeVar("TrainerT")


class TrialFailed(Exception):
    """What a retry cannot cure; the message is the reason. Raised by `_build` and `_step`, it becomes a result."""


class TrialTrainable(tune.Trainable):
    """A Tune trainable whose failures are results and whose actors can be reused.

    A subclass says which `settings_type` stands in the config under `settings` (with `device` and `seed`), and

    1. `_read(config)`: what else the config says, into attributes. Raises: InvalidInput.
    2. `_build()`: what the steps work on, on `_device`; done when the first step, or a checkpoint, asks for it.
    3. `_step()`: one step; its result, with at least `failure` (None) and `done`.
    4. `_failed(reason)`: the result of a trial that failed, with the same keys.
    5. `_state()`: what a checkpoint holds besides seed, settings and last result; `_load(state)` restores it once
       `_build` was called.
    6. `_release()`: drops what holds memory; called before each trial, too.

    What `_build` and `_step` raise becomes a failed result (done, metrics NaN, `failure` the reason) if it is one of
    `failures` or memory that ran out, which a retry cannot cure. Anything else is raised, so that Tune retries from the
    last checkpoint. After a result that is done, each further step reports it again, after a restore too. Reused actors
    (`reuse_actors=True`) give the same results as fresh ones.

    Config: `settings` (as a dict, unknown keys refused), `seed` (optional), and what the subclass says. Other keys
    belong to the searcher; Tune records them with the trial and they change nothing.

    Raises: InvalidInput for settings or config that are wrong; DataNotFound.
    """

    settings_type: ClassVar[type[BaseModel]]
    failures: ClassVar[tuple[type[Exception], ...]] = (TrialFailed,)

    _settings: Any  # a `settings_type`
    _seed: int
    _device: torch.device
    _begun: bool  # whether `_build` was called
    _result: Result | None  # the last one; before the first step None, or the failure that building met

    def __repr__(self) -> str:
        """The trial's name, which Ray's dashboard shows of the actor: of one that is reused, its first trial's."""
        return self.trial_name if self.trial_id is not None else super().__repr__()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._release()
        free_memory()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        self._release()

    def begin(self) -> None:
        """Builds what the steps work on, unless that was done.

        Not in `setup`: Tune (2.60) tries no trial again whose process dies while an actor is reset for it. From the
        first step on, and while it is restored, it does.
        """
        if not self._begun:
            self._begun = True
            self._result = self._guarded(self._build) or self._result

    def step(self) -> Result:
        if not self._ended:
            self.begin()
        if not self._ended:
            self._result = self._guarded(self._step)
        assert self._result is not None  # a step always has a result
        return dict(self._result)

    @property
    def _ended(self) -> bool:
        return self._result is not None and bool(self._result["done"])

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        if self._result is None:
            self.begin()
        settings = self._settings.model_dump(mode="json")
        write_state(checkpoint_dir, {"seed": self._seed, "settings": settings, "result": self._result, **self._state()})

    def load_checkpoint(self, checkpoint: Any) -> None:  # the folder that `save_checkpoint` was given
        state = read_state(checkpoint, self._device)
        if state["result"] is None or state["result"]["failure"] is None:
            self.begin()
            if self._result is not None and self._result["failure"] is not None:  # building it failed here and now
                return
            self._load(state)
        self._result = state["result"]

    def setup(self, config: dict[str, Any]) -> None:
        """Sets all state of a trial; of the trial before nothing is left but what a subclass keeps knowingly."""
        self._release()
        self._begun, self._result = False, None
        self._settings = read_settings(self.settings_type, config.get("settings", {}))
        self._seed = read_whole_number(config, "seed", self._settings.seed, least=0)
        self._read(config)
        allotment = self.trial_resources  # by Tune; None outside it
        self._take(allotment.required_resources if allotment is not None else None)

    def _take(self, resources: Mapping[str, float] | None) -> None:
        """Takes the device and the threads that Tune gave the trial. resources: None outside of Tune."""
        gpus = None if resources is None else resources.get("GPU", 0.0)
        self._device = choose_device(self._settings.device, gpus=gpus)
        limit_memory(self._device, gpus)  # anew for each trial: the actor may be another's
        # Of the settings, or of their training; else as many as the trial has CPUs: sums, and so results, depend on it.
        threads: int | None = getattr(self._settings, "training", self._settings).threads
        if threads is None and resources is not None:
            threads = max(1, int(resources.get("CPU", 0.0)))
        if threads is not None:
            self._set_threads(threads)

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
        free_memory()
        return result

    def _set_threads(self, threads: int) -> None:
        """It is state of the process, and in Tune the process is this trial's own."""
        torch.set_num_threads(threads)

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

    def _load(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def _release(self) -> None:
        raise NotImplementedError


def read_settings(model: type[SettingsT], values: Mapping[str, Any] | SettingsT) -> SettingsT:
    """The settings in `values`. Raises: InvalidInput, naming each key that is unknown or wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}" for e in error.errors())
        raise InvalidInput(f"the settings of the trainable cannot be used: {wrong}") from error


def read_whole_number(config: Mapping[str, Any], key: str, default: int, *, least: int) -> int:
    """The entry `key` of a Tune config. Raises: InvalidInput if it is not an integer of `least` or more."""
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"expected the config's `{key}` to be an integer of {least} or more, got {value!r}")
    return value


def candidates_of(config: Mapping[str, Any], kind: str = "architecture") -> tuple[str, ...] | None:
    """The entry `candidates` of a Tune config; None if there is none. kind: what a candidate describes.

    Raises: InvalidInput if it is no list of strings, or empty.
    """
    candidates = config.get("candidates")
    if candidates is None:
        return None
    if not isinstance(candidates, (list, tuple)) or not all(isinstance(candidate, str) for candidate in candidates):
        raise InvalidInput(f"expected the config's `candidates` to be strings of the space, got {candidates!r}")
    if not candidates:
        raise InvalidInput(f"expected the config's `candidates` to hold at least one {kind}, got none")
    return tuple(candidates)


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
        progress = self._progress()
        return {
            **values,
            **progress,
            "parameters": self._parameters,
            "seconds_epoch": seconds,
            "gpu_memory_peak": memory,
            "failure": failure,
            "done": failure is not None or progress["epoch"] >= progress["epochs"],
        }

    def _progress(self) -> dict[str, Any]:
        """`epoch`, `epochs` and further numbers of the trainer's progress."""
        trainer: Any = self._trainer
        epoch, lr = (trainer.epochs_done, trainer.lr) if trainer else (0, math.nan)
        return {"epoch": epoch, "epochs": self._epochs, "lr": lr}

    def _state(self) -> dict[str, Any]:
        trainer: Any = self._trainer
        return {
            "in_channels": trainer.dataset.in_channels if trainer else None,
            "num_classes": trainer.dataset.num_classes if trainer else None,
            "trainer": trainer.state_dict() if trainer else None,
        }

    def _load(self, state: dict[str, Any]) -> None:
        trainer: Any = self.trainer
        trainer.load_state_dict(state["trainer"])

    def _release(self) -> None:
        self._trainer = None
        self._parameters = 0

    def _epoch(self) -> dict[str, Any]:
        raise NotImplementedError

    def _no_values(self) -> dict[str, Any]:
        raise NotImplementedError


class MemoryProbe:
    """Measures how much of a GPU's memory a trial takes, inside an actor that has the GPU to itself.

    It builds and trains a little of several trials, one after another. It was never run on a real GPU.
    """

    def measure(
        self, trainable: type[TrialTrainable], settings: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """What the largest of the trials takes.

        Args:
            settings: of the trials, as in their Tune config. configs: their other keys.

        Returns: `card`, its bytes, None where torch sees no CUDA device; `taken`, bytes that torch held at most, as if
        the data set and the trial's batches lay there together, None of trials that did not train; `failures`, why.
        """
        if not torch.cuda.is_available():
            return {"card": None, "taken": None, "failures": []}
        card = torch.cuda.get_device_properties(0).total_memory
        peaks, failures = [], []
        resting = self._peak(trainable, {"settings": dict(settings), **configs[0]}, steps=0)[0]
        for config in configs:
            peak, failure = self._peak(trainable, {"settings": short_epochs(settings), **config}, steps=1)
            if failure is None:
                peaks.append(resting + peak)
            elif failure.startswith(OUT_OF_MEMORY):
                peaks.append(card)
            else:
                failures.append(failure)
        return {"card": card, "taken": max(peaks, default=None), "failures": failures}

    def _peak(self, trainable: type[TrialTrainable], config: dict[str, Any], *, steps: int) -> tuple[int, str | None]:
        """The bytes that torch reserved at most, and why the trial failed."""
        free_memory()
        torch.cuda.reset_peak_memory_stats()
        trial = trainable(config)
        try:
            trial.begin()
            failure = next((reason for _ in range(steps) if (reason := trial.step()["failure"])), None)
            return torch.cuda.max_memory_reserved(), failure
        finally:
            trial.cleanup()
            free_memory()


def short_epochs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of trials with a few batches of data; as they are where they name no batches."""
    training = settings.get("training", settings)
    if "batch_size" not in training or "data" not in settings:
        return dict(settings)
    points = max(BATCHES * training["batch_size"], EVALUATED)
    limit = settings["data"].get("limit")
    return {**settings, "data": {**settings["data"], "limit": points if limit is None else min(points, limit)}}
