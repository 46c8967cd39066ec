"""The Tune trainable of a standalone network, the network out of its checkpoint, and the worker that predicts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from archray.errors import InvalidArchitecture, InvalidInput
from archray.settings import Seed, Settings
from archray.trainables.checkpoint import read_state
from archray.trainables.data import DataSettings, load_images
from archray.trainables.data_parallel import ALONE, Team
from archray.trainables.devices import choose_device
from archray.trainables.ensembles.prediction import DROP_PATH, DroppedPaths, predict
from archray.trainables.epoch_trainer import NO_METRICS, Metrics
from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.spaces import Space, get_space
from archray.trainables.training import Trainer
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.epoch_trainable import EpochTrainable
from archray.trainables.tune.trial import TrialFailed, read_settings

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
    seed: Seed = 0
    evaluate_test: Literal["last", "every", "never"] = "last"


class StandaloneTrainable(EpochTrainable[Trainer]):
    """Trains an architecture from scratch. Config: see `TrialTrainable`, and `architecture`, the space's string.

    Every result holds train_, validation_ and test_ loss and accuracy (fractions), what `EpochTrainable` says, and
    `multiply_adds` (of one image; as `parameters` without an auxiliary tower). An architecture that its space refuses
    and a loss that is not finite are failed results.
    """

    settings_type = StandaloneSettings
    failures = (TrialFailed, InvalidArchitecture)
    _settings: StandaloneSettings

    def _read(self, config: dict[str, Any]) -> None:
        architecture = config.get("architecture")
        if not isinstance(architecture, str):
            raise InvalidInput(f"expected the config's `architecture` to be its space's string, got {architecture!r}")
        get_space(self._settings.space)  # raises
        self._architecture = architecture
        self._epochs = self._settings.training.epochs
        self._multiply_adds = 0

    def _build(self) -> None:
        self._trainer, self._parameters, self._multiply_adds = build_trainer(
            self._settings, self._architecture, seed=self._seed, device=self._device
        )

    def _epoch(self) -> dict[str, Any]:
        return self._values(*train_epoch(self.trainer, self._settings.evaluate_test))

    def _no_values(self) -> dict[str, Any]:
        return self._values(NO_METRICS, NO_METRICS, NO_METRICS)

    def _values(self, train: Metrics, validation: Metrics, test: Metrics) -> dict[str, Any]:
        metrics = dict(zip(METRICS, (*train, *validation, *test), strict=True))
        return metrics | {"multiply_adds": self._multiply_adds}

    def _state(self) -> dict[str, Any]:
        return {"architecture": self._architecture, **super()._state()}


def build_trainer(
    settings: StandaloneSettings, architecture: str, *, seed: int, device: torch.device, team: Team = ALONE
) -> tuple[Trainer, int, int]:
    """A trainer before its first epoch, and the parameters and multiply-adds of its network.

    Raises: InvalidArchitecture.
    """
    dataset = load_images(settings.data, device=device)
    network = build(
        settings.space,
        architecture,
        network=settings.network,
        in_channels=dataset.in_channels,
        num_classes=dataset.num_classes,
        seed=seed,
    )
    parameters, size = count_parameters(network), dataset.image_size
    multiply_adds = count_multiply_adds(network, (dataset.in_channels, size, size))
    return Trainer(network, dataset, settings.training, seed=seed, team=team), parameters, multiply_adds


def train_epoch(trainer: Trainer, evaluate_test: str) -> tuple[Metrics, Metrics, Metrics]:
    """Trains one epoch; its metrics on training, validation and test images.

    evaluate_test: as of `StandaloneSettings`. Raises: TrialFailed for a loss that is not finite.
    """
    train = trainer.epoch()
    validation = trainer.evaluate(trainer.dataset.validation)
    tested = evaluate_test == "every" or (evaluate_test == "last" and trainer.finished)
    test = trainer.evaluate(trainer.dataset.test) if tested else NO_METRICS
    for split, metrics in (("training", train), ("validation", validation)):
        if math.isinf(metrics.loss) or (math.isnan(metrics.loss) and not math.isnan(metrics.accuracy)):
            raise TrialFailed(f"the {split} loss is {metrics.loss} in epoch {trainer.epochs_done}")
    return train, validation, test


def load_trained(folder: str | Path, space: str | Space | None = None) -> nn.Module:
    """The network in a `StandaloneTrainable`'s checkpoint, on the CPU, in evaluation mode.

    space: instead of the trial's own, for a reference whose file has moved.
    Raises: InvalidInput for the checkpoint of a trial that failed: it holds no network.
    """
    state = read_state(folder)
    if state["trainer"] is None:
        raise InvalidInput(f"the checkpoint {folder} holds no network, its trial failed: {state['result']['failure']}")
    settings = read_settings(StandaloneSettings, state["settings"])
    network = build(
        settings.space if space is None else space,
        state["architecture"],
        network=settings.network,
        in_channels=state["in_channels"],
        num_classes=state["num_classes"],
        seed=state["seed"],
    )
    network.load_state_dict(state["trainer"]["network"])
    dropped = state.get(DROP_PATH)
    return network.eval() if dropped is None else DroppedPaths(network, **dropped)


class TrainedPredictor:
    """Holds the test images, inside an actor or here; gives the probabilities on them of trained networks.

    Args:
        data: settings of the data, as a dict.
        space: of the networks, instead of their trials' own; see `load_trained`.
        amp: forward passes in bfloat16. device: `auto` takes a GPU where one is visible.
    """

    def __init__(self, data: dict[str, Any], space: str, amp: bool, device: str) -> None:
        self.device = choose_device(device)
        self.test = load_images(DataSettings(**data), device=self.device).test
        self.space, self.amp = space, amp

    def __call__(self, checkpoint: Any) -> NDArray[np.float32]:
        """(images, classes), of the network in a checkpoint of Tune's, of a `StandaloneTrainable`."""
        with checkpoint.as_directory() as place:
            return predict(load_trained(place, space=self.space).to(self.device), self.test, amp=self.amp)
