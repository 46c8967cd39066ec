"""Base classes of archray's Tune trainables: how a trial reads its config, starts, fails, is saved and reused."""

import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from pydantic import BaseModel, ValidationError
from ray import tune

from archray.errors import OUT_OF_MEMORY, InvalidInput
from archray.trainables.checkpoint import read_state, write_state
from archray.trainables.devices import choose_device, free_memory, limit_memory, out_of_memory

BATCHES = 8  # number of batches of an epoch that `MemoryProbe` trains, enough for kernels to allocate workspaces
EVALUATED = 1024  # minimum number of images of the probe: two passes of an evaluation

Result = dict[str, Any]
SettingsT = TypeVar("SettingsT", bound=BaseModel)
TrainerT = TypeVar("TrainerT")


class TrialFailed(Exception):
    """A failure that a retry cannot fix; the message is its reason. From `_build` or `_step` it becomes a result."""


class TrialTrainable(tune.Trainable):
    """Base class of Tune trainables whose failures are results and whose actors can be reused.

    A subclass sets the `settings_type` of the config's `settings` (with `device` and `seed`) and implements

    1. `_read(config)`: sets attributes from the other keys of the config. Raises: InvalidInput.
    2. `_build()`: creates the objects of the steps, on `_device`, before the first step or checkpoint.
    3. `_step()`: makes one step. Returns its result, with at least `failure` (None) and `done`.
    4. `_failed(reason)`: returns the result of a trial that failed, with the same keys.
    5. `_state()`: returns the checkpoint's content except seed, settings and last result; `_load(state)` restores it
       after `_build`.
    6. `_release()`: frees memory; called also before each trial.

    An exception of `_build` or `_step` becomes a failed result (done, metrics NaN, `failure` the reason) if it is one
    of `failures` or a lack of memory, which a retry cannot fix. Others are raised, so that Tune retries from the last
    checkpoint. After a result that is done, further steps repeat it, also after a restore. Reused actors
    (`reuse_actors=True`) give the same results as new ones.

    Config: `settings` (a dict; unknown keys raise an error), `seed` (optional), and the subclass's keys. Other keys
    belong to the searcher; Tune records them, and they change nothing.

    Raises: InvalidInput for invalid settings or an invalid config; DataNotFound.
    """

    settings_type: ClassVar[type[BaseModel]]
    failures: ClassVar[tuple[type[Exception], ...]] = (TrialFailed,)
    saves_files: ClassVar[bool] = True  # checkpoints are files that load without pickle, never dictionaries

    _settings: Any  # a `settings_type`
    _seed: int
    _device: torch.device
    _started: bool  # whether `_build` was called
    _result: Result | None  # the last one; before the first step None, or the failure of `_build`

    def __repr__(self) -> str:
        """Returns the trial's name for Ray's dashboard. A reused actor keeps the name of its first trial."""
        return self.trial_name if self.trial_id is not None else super().__repr__()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._release()
        free_memory()
        self.setup(new_config)
        return True

    def cleanup(self) -> None:
        self._release()

    def begin(self) -> None:
        """Calls `_build` once.

        It is not part of `setup`, because Tune (2.60) does not retry a trial whose process dies while its actor is
        reset. Tune does so from the first step on, and during a restore.
        """
        if not self._started:
            self._started = True
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

    def load_checkpoint(self, checkpoint: Any) -> None:
        state = read_state(checkpoint, self._device)
        if state["result"] is None or state["result"]["failure"] is None:
            self.begin()
            if self._result is not None and self._result["failure"] is not None:  # `_build` failed here
                return
            self._load(state)
        self._result = state["result"]

    def setup(self, config: dict[str, Any]) -> None:
        """Sets all state of a trial. Of the previous trial, only explicit caches of a subclass remain."""
        self._release()
        self._started, self._result = False, None
        self._settings = read_settings(self.settings_type, config.get("settings", {}))
        self._seed = read_whole_number(config, "seed", self._settings.seed, least=0)
        self._read(config)
        allotment = self.trial_resources  # None outside of Tune
        self._take(allotment.required_resources if allotment is not None else None)

    def _take(self, resources: Mapping[str, float] | None) -> None:
        """Takes the device and the threads that Tune assigned to the trial. resources: None outside of Tune."""
        gpus = None if resources is None else resources.get("GPU", 0.0)
        self._device = choose_device(self._settings.device, gpus=gpus)
        limit_memory(self._device, gpus)  # for each trial, as actors are reused
        # From the settings or their training, else the trial's CPUs: sums, and hence results, depend on the threads.
        threads: int | None = getattr(self._settings, "training", self._settings).threads
        if threads is None and resources is not None:
            threads = max(1, int(resources.get("CPU", 0.0)))
        if threads is not None:
            self._set_threads(threads)

    def _guarded(self, work: Callable[[], Result | None]) -> Result | None:
        """Returns the result of `work`, or a failed result."""
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
        torch.set_num_threads(threads)  # state of the process, which belongs to this trial in Tune

    # Methods of a subclass. The defaults are for a trial without state.

    def _read(self, config: dict[str, Any]) -> None: ...

    def _build(self) -> None: ...

    def _release(self) -> None: ...

    def _load(self, state: dict[str, Any]) -> None: ...

    def _state(self) -> dict[str, Any]:
        return {}

    def _step(self) -> Result:
        raise NotImplementedError

    def _failed(self, reason: str) -> Result:
        raise NotImplementedError


def read_settings(model: type[SettingsT], values: Mapping[str, Any] | SettingsT) -> SettingsT:
    """Validates settings. Raises: InvalidInput, with each unknown or invalid key."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}" for e in error.errors())
        raise InvalidInput(f"expected valid settings of the trainable, got errors: {wrong}") from error


def read_whole_number(config: Mapping[str, Any], key: str, default: int, *, least: int) -> int:
    """Reads the entry `key` of a Tune config. Raises: InvalidInput unless it is an integer of at least `least`."""
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"expected an integer of {least} or more as `{key}` in the config, got {value!r}")
    return value


def read_architecture(config: Mapping[str, Any], meaning: str) -> str:
    """Reads the entry `architecture` of a Tune config. Raises: InvalidInput, with its meaning, unless it is text."""
    architecture = config.get("architecture")
    if not isinstance(architecture, str):
        raise InvalidInput(f"expected {meaning} as `architecture` in the config, got {architecture!r}")
    return architecture


def candidates_of(config: Mapping[str, Any], kind: str = "architecture") -> tuple[str, ...] | None:
    """Reads the entry `candidates` of a Tune config; None without it. kind: kind of the candidates.

    Raises: InvalidInput unless it is a list of one or more strings.
    """
    candidates = config.get("candidates")
    if candidates is None:
        return None
    if not isinstance(candidates, (list, tuple)) or not all(isinstance(candidate, str) for candidate in candidates):
        raise InvalidInput(f"expected strings of the space as `candidates` in the config, got {candidates!r}")
    if not candidates:
        raise InvalidInput(f"expected one {kind} or more as `candidates` in the config, got none")
    return tuple(candidates)


class EpochTrainable(TrialTrainable, Generic[TrainerT]):
    """Base class: a `TrialTrainable` with a trainer, one epoch per step.

    A subclass's `_read` sets `_epochs`, and its `_build` sets `_trainer` and `_parameters`. Its `_epoch()` returns the
    values of one epoch, and its `_no_values()` those of a trial that failed. Every result also contains `epoch`,
    `epochs`, `lr` (of the next step), `parameters`, `seconds_epoch`, `gpu_memory_peak` (torch's peak during the epoch,
    in bytes; NaN without a GPU), `failure`, `done`.
    """

    _trainer: Any  # a TrainerT; None before `_build` and after a failure
    _epochs: int
    _parameters: int

    @property
    def trainer(self) -> TrainerT:
        """The trainer. Raises: RuntimeError for a trial that failed."""
        if self._result is None:
            self.begin()
        if self._trainer is None:
            raise RuntimeError("expected a trial with a trainer, got a failed trial; see `failure` in its result")
        trainer: TrainerT = self._trainer
        return trainer

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
        """Returns `epoch`, `epochs` and further numbers of the trainer's progress."""
        epoch, lr = (self._trainer.epochs_done, self._trainer.lr) if self._trainer else (0, math.nan)
        return {"epoch": epoch, "epochs": self._epochs, "lr": lr}

    def _state(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "in_channels": trainer.dataset.in_channels if trainer else None,
            "num_classes": trainer.dataset.num_classes if trainer else None,
            "trainer": trainer.state_dict() if trainer else None,
        }

    def _load(self, state: dict[str, Any]) -> None:
        self._trainer.load_state_dict(state["trainer"])

    def _release(self) -> None:
        self._trainer = None
        self._parameters = 0

    def _epoch(self) -> dict[str, Any]:
        raise NotImplementedError

    def _no_values(self) -> dict[str, Any]:
        raise NotImplementedError


class MemoryProbe:
    """Measures the memory of a trial, inside an actor that has the GPU to itself.

    It builds several trials, one after another, and trains each for a few batches.
    """

    def measure(
        self, trainable: type[TrialTrainable], settings: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Measures the memory of the largest trial.

        Args:
            settings: Settings of the trials, as in their Tune config.
            configs: Other keys of the configs.

        Returns: `gpu`, the GPU's bytes, None if torch sees no CUDA device; `taken`, torch's peak in bytes, as if the
            data set and a trial's batches were in memory together, None if no trial trained; `resident`, the peak of
            the process's main memory in bytes; `failures`, the reasons.
        """
        if not torch.cuda.is_available():
            return {"gpu": None, "taken": None, "resident": resident_peak(), "failures": []}
        gpu_bytes = torch.cuda.get_device_properties(0).total_memory
        peaks, failures = [], []
        resting = self._peak(trainable, {"settings": dict(settings), **configs[0]}, steps=0)[0]
        for config in configs:
            peak, failure = self._peak(trainable, {"settings": short_epochs(settings), **config}, steps=1)
            if failure is None:
                peaks.append(resting + peak)
            elif failure.startswith(OUT_OF_MEMORY):
                peaks.append(gpu_bytes)
            else:
                failures.append(failure)
        taken = max(peaks, default=None)
        return {"gpu": gpu_bytes, "taken": taken, "resident": resident_peak(), "failures": failures}

    def _peak(self, trainable: type[TrialTrainable], config: dict[str, Any], *, steps: int) -> tuple[int, str | None]:
        """Returns torch's peak of reserved bytes, and the trial's failure."""
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


def resident_peak() -> int:
    """Returns the peak of this process's main memory, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB


def short_epochs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of trials with a few batches of data; unchanged without a batch size."""
    training = settings.get("training", settings)
    if "batch_size" not in training or "data" not in settings:
        return dict(settings)
    points = max(BATCHES * training["batch_size"], EVALUATED)
    limit = settings["data"].get("limit")
    return {**settings, "data": {**settings["data"], "limit": points if limit is None else min(points, limit)}}
