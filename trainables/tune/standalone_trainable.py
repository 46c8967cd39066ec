"""The Tune trainable that trains one architecture as a standalone network, one epoch per step."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from archray.errors import InvalidArchitecture
from archray.settings import Settings
from archray.trainables.data import DataSettings, load_images
from archray.trainables.epoch_trainer import NO_METRICS, Metrics
from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.training import Trainer, TrainingSettings
from archray.trainables.tune.trial import EpochTrainable, TrialFailed
from archray.trainables.tune.trial_config import architecture_of

METRICS = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_loss", "test_accuracy")


class StandaloneSettings(Settings):
    """All options of a `StandaloneTrainable`; they stand in its Tune config under the key `settings`.

    Args:
        space: a registered name, or a reference to the user's own.
        device: "auto" (a GPU if the trial was given one, else the CPU), or torch's own word: "cpu", "cuda", "cuda:1".
        seed: of a trial whose config has no `seed` of its own: initial parameters, order, augmentation.
        evaluate_test: when the test split is evaluated. In other epochs `test_loss` and `test_accuracy` are NaN, so
            that every result has the same keys.
    """

    space: str = "nasbench201"
    data: DataSettings = DataSettings()
    network: NetworkSettings = NetworkSettings()
    training: TrainingSettings = TrainingSettings()
    device: str = "auto"
    seed: int = Field(0, ge=0)
    evaluate_test: Literal["last", "every", "never"] = "last"


class StandaloneTrainable(EpochTrainable[Trainer]):
    """Trains `config["architecture"]` from scratch; one `step` is one epoch.

    Config: `settings` (a `StandaloneSettings` as a dict, unknown keys refused), `architecture` (the space's string),
    `seed` (optional). Other keys belong to the searcher; Tune records them with the trial and they change nothing.

    Every result holds train_, validation_ and test_ loss and accuracy (fractions), `epoch`, `epochs`, `lr` (of the
    next step), `parameters` and `multiply_adds` (of one image; both without an auxiliary tower), `seconds_epoch`,
    `failure`, `done`. What a retry cannot cure (an architecture that its space refuses, a loss that is not finite,
    memory that ran out) is a result too: done, the metrics NaN, `failure` the reason. Anything else raises, so that
    Tune retries it from the last checkpoint.

    A trial restored after its last epoch reports its last result again and does no work. Reused actors
    (`reuse_actors=True`) give the same results as fresh ones.

    Raises: InvalidInput for settings that are wrong, DataNotFound.
    """

    settings_type = StandaloneSettings
    failures = (TrialFailed, InvalidArchitecture)
    _settings: StandaloneSettings

    def _read(self, config: dict[str, Any]) -> None:
        self._architecture = architecture_of(config)
        self._epochs = self._settings.training.epochs
        self._multiply_adds = 0

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
        size = dataset.image_size
        self._multiply_adds = count_multiply_adds(network, (dataset.in_channels, size, size))
        self._trainer = Trainer(network, dataset, settings.training, seed=self._seed)

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        train = trainer.epoch()
        validation = trainer.evaluate(trainer.dataset.validation)
        when = self._settings.evaluate_test
        tested = when == "every" or (when == "last" and trainer.finished)
        test = trainer.evaluate(trainer.dataset.test) if tested else NO_METRICS
        for split, metrics in (("training", train), ("validation", validation)):
            if math.isinf(metrics.loss) or (math.isnan(metrics.loss) and not math.isnan(metrics.accuracy)):
                raise TrialFailed(f"the {split} loss is {metrics.loss} in epoch {trainer.epochs_done}")
        return self._values(train, validation, test)

    def _no_values(self) -> dict[str, Any]:
        return self._values(NO_METRICS, NO_METRICS, NO_METRICS)

    def _values(self, train: Metrics, validation: Metrics, test: Metrics) -> dict[str, Any]:
        metrics = dict(zip(METRICS, (*train, *validation, *test), strict=True))
        return metrics | {"multiply_adds": self._multiply_adds}

    def _state(self) -> dict[str, Any]:
        return {"architecture": self._architecture, **super()._state()}
