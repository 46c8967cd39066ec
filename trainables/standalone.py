"""The Tune trainable that trains one architecture as a standalone network, one epoch per step."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from ray import tune

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.checkpoint import read_state, write_state
from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device, out_of_memory
from archray.trainables.gauges import EpochGauges
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.training import Metrics, Trainer, TrainingSettings

NO_METRICS = Metrics(math.nan, math.nan)
METRICS = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_loss", "test_accuracy")


class StandaloneSettings(BaseModel):
    """All options of a `StandaloneTrainable`; they stand in its Tune config under the key `settings`.

    Args:
        space: a registered name, or a reference to the user's own.
        device: "auto" (a GPU if the trial was given one, else the CPU), or torch's own word: "cpu", "cuda", "cuda:1".
        seed: of a trial whose config has no `seed` of its own: initial parameters, order, augmentation.
        evaluate_test: when the test split is evaluated. In other epochs `test_loss` and `test_accuracy` are NaN, so
            that every result has the same keys.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    space: str = "nasbench201"
    data: DataSettings = DataSettings()
    network: NetworkSettings = NetworkSettings()
    training: TrainingSettings = TrainingSettings()
    device: str = "auto"
    seed: int = Field(0, ge=0)
    evaluate_test: Literal["last", "every", "never"] = "last"


class StandaloneTrainable(tune.Trainable):
    """Trains `config["architecture"]` from scratch; one `step` is one epoch.

    Config: `settings` (a `StandaloneSettings` as a dict, unknown keys refused), `architecture` (the space's string),
    `seed` (optional). Other keys belong to the searcher; Tune records them with the trial and they change nothing.

    Every result holds train_, validation_ and test_ loss and accuracy (fractions), `epoch`, `epochs`, `lr` (of the
    next step), `parameters`, `seconds_epoch`, `failure`, `done`. What a retry cannot cure (an architecture that its
    space refuses, a loss that is not finite, memory that ran out) is a result too: done, the metrics NaN, `failure`
    the reason. Anything else raises, so that Tune retries it from the last checkpoint.

    A trial restored after its last epoch reports its last result again and does no work. Reused actors
    (`reuse_actors=True`) give the same results as fresh ones.

    Raises: InvalidInput for settings that are wrong, DataNotFound.
    """

    _trainer: Trainer | None
    _result: dict[str, Any] | None  # the last one; before the first epoch None, or the failure that building met
    _gauges: EpochGauges

    def setup(self, config: dict[str, Any]) -> None:
        self._begin(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        self._release()

    def step(self) -> dict[str, Any]:
        if self._result is not None and self._result["done"]:
            return dict(self._result)
        self._result = self._guarded(self._epoch)
        assert self._result is not None  # an epoch always has a result
        self._gauges.report(self._result)
        return dict(self._result)

    @property
    def trainer(self) -> Trainer:
        """The trainer at work. Raises: RuntimeError for a trial that failed: it has none."""
        if self._trainer is None:
            raise RuntimeError("the trial failed and holds no trainer; see `failure` in its result")
        return self._trainer

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        trainer = self._trainer
        write_state(
            checkpoint_dir,
            {
                "architecture": self._architecture,
                "seed": self._seed,
                "settings": self._settings.model_dump(mode="json"),
                "in_channels": trainer.dataset.in_channels if trainer else None,
                "num_classes": trainer.dataset.num_classes if trainer else None,
                "trainer": trainer.state_dict() if trainer else None,
                "result": self._result,
            },
        )

    def load_checkpoint(self, checkpoint: Any) -> None:  # the folder that `save_checkpoint` was given
        state = read_state(checkpoint, self._device)
        if state["trainer"] is None:  # the trial had failed
            self._result = state["result"]
        elif self._trainer is not None:  # else building it failed here and now, which `_result` says
            self._trainer.load_state_dict(state["trainer"])
            self._result = state["result"]

    def _begin(self, config: dict[str, Any]) -> None:
        """Sets all state of a trial; nothing of the trial before is left."""
        self._release()
        self._settings = read_settings(config.get("settings", {}))
        self._architecture = _architecture_of(config)
        self._seed = _seed_of(config, self._settings.seed)
        self._result = None
        self._parameters = 0
        given = self.trial_resources  # by Tune; None outside it
        resources = given.required_resources if given is not None else None
        self._device = choose_device(
            self._settings.device, gpus=None if resources is None else resources.get("GPU", 0.0)
        )
        self._gauges = EpochGauges(trial=self.trial_id)
        self._set_threads(None if resources is None else resources.get("CPU", 0.0))
        self._result = self._guarded(self._build)

    def _build(self) -> None:
        settings = self._settings
        dataset = load_images(settings.data, device=self._device)
        network = build(
            settings.space,
            self._architecture,
            network=settings.network,
            in_channels=dataset.in_channels,
            num_classes=dataset.num_classes,
            seed=self._seed,
        )
        self._parameters = count_parameters(network)
        self._trainer = Trainer(network, dataset, settings.training, seed=self._seed)

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        start = time.perf_counter()
        train = trainer.epoch()
        validation = trainer.evaluate(trainer.dataset.validation)
        when = self._settings.evaluate_test
        tested = when == "every" or (when == "last" and trainer.finished)
        test = trainer.evaluate(trainer.dataset.test) if tested else NO_METRICS
        for split, metrics in (("training", train), ("validation", validation)):
            if math.isinf(metrics.loss) or (math.isnan(metrics.loss) and not math.isnan(metrics.accuracy)):
                return self._failed(f"the {split} loss is {metrics.loss} in epoch {trainer.epochs_done}")
        return self._results(train, validation, test, seconds=time.perf_counter() - start)

    def _results(
        self, train: Metrics, validation: Metrics, test: Metrics, *, seconds: float, failure: str | None = None
    ) -> dict[str, Any]:
        trainer = self._trainer
        return {
            **dict(zip(METRICS, (*train, *validation, *test), strict=True)),
            "epoch": trainer.epochs_done if trainer else 0,
            "epochs": self._settings.training.epochs,
            "lr": trainer.lr if trainer else math.nan,
            "parameters": self._parameters,
            "seconds_epoch": seconds,
            "failure": failure,
            "done": failure is not None or (trainer is not None and trainer.finished),
        }

    def _failed(self, reason: str) -> dict[str, Any]:
        return self._results(NO_METRICS, NO_METRICS, NO_METRICS, seconds=math.nan, failure=reason)

    def _guarded(self, work: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
        """What `work` returns; a failed result where it meets something that a retry cannot cure."""
        result: dict[str, Any] | None
        try:
            result = work()
        except InvalidArchitecture as error:
            result = self._failed(str(error))
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            reason = out_of_memory(error)
            if reason is None:
                raise
            result = self._failed(reason)
        if result is not None and result["failure"] is not None:
            self._release()
        return result

    def _release(self) -> None:
        """Gives the memory of the network back, so that the next trial of a reused actor finds it free."""
        self._trainer = None
        gc.collect()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def _set_threads(self, cpus: float | None) -> None:
        """As many torch threads as the trial has CPUs: sums, and so results, depend on the number of threads.

        It is state of the process, and in Tune the process is this trial's own. Outside Tune only the setting counts.
        """
        threads = self._settings.training.threads
        if threads is None and cpus is not None:
            threads = max(1, int(cpus))
        if threads is not None:
            torch.set_num_threads(threads)


def read_settings(values: dict[str, Any] | StandaloneSettings) -> StandaloneSettings:
    """The settings in `values`. Raises: InvalidInput, naming each key that is unknown or wrong."""
    try:
        return StandaloneSettings.model_validate(values)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'settings'}: {e['msg']}" for e in error.errors())
        raise InvalidInput(f"the settings of the trainable cannot be used: {wrong}") from error


def _architecture_of(config: dict[str, Any]) -> str:
    architecture = config.get("architecture")
    if not isinstance(architecture, str):
        raise InvalidInput(f"expected the config's `architecture` to be its space's string, got {architecture!r}")
    return architecture


def _seed_of(config: dict[str, Any], default: int) -> int:
    seed = config.get("seed", default)
    if not isinstance(seed, int) or seed < 0:
        raise InvalidInput(f"expected the config's `seed` to be an integer of 0 or more, got {seed!r}")
    return seed
