"""The Tune trainable of a sliced supernet, and what scores architectures with its weights. Yu and Huang 2019."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from archray.errors import InvalidArchitecture
from archray.trainables.checkpoint import load_weights
from archray.trainables.data import load_images
from archray.trainables.devices import choose_device
from archray.trainables.epoch_trainer import NO_METRICS
from archray.trainables.nets import count_parameters
from archray.trainables.spaces import get_space
from archray.trainables.supernets.elastic import SlicedSupernet, build_sliced
from archray.trainables.supernets.elastic.sandwich_trainer import SandwichTrainer
from archray.trainables.supernets.elastic.slices import score_slices, sliced_class
from archray.trainables.supernets.sandwich_settings import SlicedSettings
from archray.trainables.tune.epoch_trainable import EpochTrainable
from archray.trainables.tune.trial import TrialFailed, read_settings

VALUES = ("train_loss", "train_accuracy")
EXTREMES = ("smallest", "largest")


class SlicedTrainable(EpochTrainable[SandwichTrainer]):
    """Trains a sliced supernet. Config: see `TrialTrainable`.

    Every result holds `train_loss`, `train_accuracy` (the largest network's, of the batches), `smallest_loss`,
    `smallest_accuracy`, `largest_loss`, `largest_accuracy` (of these networks with the shared weights, on the
    validation data), and what `EpochTrainable` says. A loss that is not finite is a failed result.
    """

    settings_type = SlicedSettings
    failures = (TrialFailed,)
    _settings: SlicedSettings

    def _read(self, config: dict[str, Any]) -> None:
        sliced_class(get_space(self._settings.space))  # raises
        self._epochs = self._settings.training.epochs

    def _build(self) -> None:
        settings = self._settings
        dataset = load_images(settings.data, device=self._device)
        shape = {"in_channels": dataset.in_channels, "num_classes": dataset.num_classes}
        supernet = build_sliced(settings.space, settings.network, seed=self._seed, **shape)
        self._parameters = count_parameters(supernet)
        self._trainer = SandwichTrainer(supernet, dataset, settings.training, seed=self._seed)

    def _epoch(self) -> dict[str, Any]:
        trainer = self.trainer
        train = trainer.epoch()
        extremes = trainer.score([trainer.smallest, trainer.largest])
        for which, metrics in (("training", train), *zip(EXTREMES, extremes, strict=True)):
            if not math.isfinite(metrics.loss) and not math.isnan(metrics.accuracy):
                raise TrialFailed(f"the {which} loss is {metrics.loss} in epoch {trainer.epochs_done}")
        return _named(train, *extremes)

    def _no_values(self) -> dict[str, Any]:
        return _named(NO_METRICS, NO_METRICS, NO_METRICS)


def _named(*metrics: tuple[float, float]) -> dict[str, Any]:
    names = ("train", *EXTREMES)
    return {
        key: value
        for name, (loss, accuracy) in zip(names, metrics, strict=True)
        for key, value in ((f"{name}_loss", loss), (f"{name}_accuracy", accuracy))
    }


class SlicedScorer:
    """Holds a sliced supernet with trained weights and the data; scores architectures, in this process.

    Args:
        settings: fields of `SlicedSettings`, those that the weights were trained with.
        weights: the supernet's state. device: `auto` takes a GPU where one is visible.

    Raises: InvalidInput if the weights are of another supernet.
    """

    def __init__(self, settings: Mapping[str, Any], weights: Mapping[str, Tensor], device: str = "auto") -> None:
        self.settings = read_settings(SlicedSettings, settings)
        self.device = choose_device(device)
        self.dataset = load_images(self.settings.data, device=self.device)
        shape = {"in_channels": self.dataset.in_channels, "num_classes": self.dataset.num_classes}
        self.supernet: SlicedSupernet = build_sliced(
            self.settings.space, self.settings.network, seed=self.settings.seed, **shape
        )
        load_weights(self.supernet, weights, "the weights")
        self.supernet.to(self.device)

    def __call__(self, architectures: Sequence[str]) -> list[dict[str, float | str | None]]:
        """A row for each: `architecture`, `shared_loss`, `shared_accuracy` (on validation data), `failure`.

        One that the space refuses, or whose loss is not finite, has no values and the reason.
        """
        return [self._row(architecture) for architecture in architectures]

    def _row(self, architecture: str) -> dict[str, float | str | None]:
        training, metrics, failure = self.settings.training, NO_METRICS, None
        try:
            choices = self.supernet.space.decode(architecture)
        except InvalidArchitecture as error:
            failure = str(error)
        else:
            [metrics] = score_slices(
                self.supernet, [choices], self.dataset.validation, training.evaluation_batch, amp=training.amp
            )
            if not math.isfinite(metrics.loss):
                metrics, failure = NO_METRICS, f"the validation loss is {metrics.loss}"
        return {
            "architecture": architecture,
            "shared_loss": metrics.loss,
            "shared_accuracy": metrics.accuracy,
            "failure": failure,
        }
