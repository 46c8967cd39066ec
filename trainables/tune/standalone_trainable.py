"""Tune trainables of a standalone network, a member and snapshots of an ensemble; networks from checkpoints."""

import json
import math
import zlib
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.checkpoint import read_state, read_weights, write_weights
from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device
from archray.trainables.ensembles.prediction import DROP_PATH, DroppedPaths, predict
from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.joint_space import split_training
from archray.trainables.training import ALONE, NO_METRICS, Metrics, Team, Trainer
from archray.trainables.training_settings import TrainingSettings, with_values
from archray.trainables.tune.settings import TrialSettings
from archray.trainables.tune.trial import EpochTrainable, TrialFailed, read_architecture, read_settings

METRICS = ("train_loss", "train_accuracy", "validation_loss", "validation_accuracy", "test_loss", "test_accuracy")


class StandaloneSettings(TrialSettings):
    """All options of a `StandaloneTrainable`.

    Attributes:
        space: Name of a registered space, or a reference to a custom one.
        network: Width, depth, stem and initialization of the network.
        training: Training of the network.
        evaluate_test: Epochs that evaluate the test split. In other epochs `test_loss` and `test_accuracy` are NaN.
        decided: Training decisions of a `JointSpace`, such as `train.lr`. The string of a trial's architecture contains
            their values (JSON), which override `training`.
    """

    space: str = "nasbench201"
    network: NetworkSettings = NetworkSettings()
    training: TrainingSettings = TrainingSettings()
    evaluate_test: Literal["last", "every", "never"] = "last"
    decided: tuple[str, ...] = ()

    def of_trial(self, architecture: str) -> tuple[str, Self]:
        """Returns the string of the architecture alone, and the settings with the decided training.

        Raises: InvalidArchitecture for a string without these decisions.
        """
        architecture, choices = split_training(architecture, self.decided)
        values = {name.partition(".")[2]: json.loads(choice) for name, choice in choices.items()}
        update = {"training": with_values(self.training, values), "decided": ()} if values else {}
        return architecture, self.model_copy(update=update)


class StandaloneTrainable(EpochTrainable[Trainer]):
    """Trains an architecture from scratch. Config: see `TrialTrainable`, and `architecture`, the space's string.

    Every result contains train_, validation_ and test_ loss and accuracy (fractions), `multiply_adds` (of one image;
    like `parameters` without an auxiliary classifier), and the entries of `EpochTrainable`. An architecture that its
    space rejects and an infinite or NaN loss are failed results.

    Example:
        >>> from ray import tune
        >>> settings = StandaloneSettings(training={"epochs": 2}).model_dump(mode="json")
        >>> cell = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|nor_conv_1x1~2|"
        >>> tuner = tune.Tuner(StandaloneTrainable, param_space={"architecture": cell, "settings": settings})
    """

    settings_type = StandaloneSettings
    failures = (TrialFailed, InvalidArchitecture)
    _settings: StandaloneSettings

    def _read(self, config: dict[str, Any]) -> None:
        architecture = read_architecture(config, "its space's string")
        self._architecture, self._settings = self._settings.of_trial(architecture)
        get_space(self._settings.space)  # raises
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
    """Builds a trainer before its first epoch. Also returns the parameters and multiply-adds of its network.

    Raises: InvalidArchitecture.
    """
    dataset = load_images(settings.data, device=device)
    shape: dict[str, Any] = {"in_channels": dataset.in_channels, "num_classes": dataset.num_classes}
    network = build(settings.space, architecture, network=settings.network, seed=seed, **shape)
    multiply_adds = count_multiply_adds(network, (dataset.in_channels, dataset.image_size, dataset.image_size))
    trainer = Trainer(network, dataset, settings.training, seed=seed, team=team)
    return trainer, count_parameters(network), multiply_adds


def train_epoch(trainer: Trainer, evaluate_test: str) -> tuple[Metrics, Metrics, Metrics]:
    """Trains one epoch. Returns its metrics on training, validation and test images.

    Args:
        evaluate_test: As in `StandaloneSettings`.

    Raises: TrialFailed for an infinite or NaN loss.
    """
    train = trainer.epoch()
    validation = trainer.evaluate(trainer.dataset.validation)
    tested = evaluate_test == "every" or (evaluate_test == "last" and trainer.finished)
    test = trainer.evaluate(trainer.dataset.test) if tested else NO_METRICS
    for split, metrics in (("training", train), ("validation", validation)):
        if math.isinf(metrics.loss) or (math.isnan(metrics.loss) and not math.isnan(metrics.accuracy)):
            raise TrialFailed(
                f"expected a finite {split} loss, got {metrics.loss} in epoch {trainer.epochs_done}. Lower lr"
            )
    return train, validation, test


def load_trained(folder: str | Path, space: str | Space | None = None) -> nn.Module:
    """Loads the network in a checkpoint of a `StandaloneTrainable`, on the CPU, in evaluation mode.

    Args:
        space: Replaces the trial's space, for a reference whose file has moved.

    Raises: InvalidInput for the checkpoint of a trial that failed.
    """
    state = read_state(folder)
    if state["trainer"] is None:
        raise InvalidInput(
            f"expected a network in the checkpoint {folder}, got none, as its trial failed: "
            f"{state['result']['failure']}"
        )
    settings = read_settings(StandaloneSettings, state["settings"])
    shape = {name: state[name] for name in ("in_channels", "num_classes")}
    space = settings.space if space is None else space
    network = build(space, state["architecture"], network=settings.network, seed=state["seed"], **shape)
    network.load_state_dict(state["trainer"]["network"])
    dropped = state.get(DROP_PATH)
    return network.eval() if dropped is None else DroppedPaths(network, **dropped)


class TrainedPredictor:
    """Stores the test images, in an actor or in this process, and predicts them with trained networks.

    Args:
        data: Settings of the data, as a dict.
        space: Space of the networks, as in `load_trained`.
        amp: Whether forward passes run in bfloat16.
        device: Torch device; `auto` takes a GPU if one is visible.
    """

    def __init__(self, data: dict[str, Any], space: str, amp: bool, device: str) -> None:
        self.device = choose_device(device)
        self.test = load_images(DataSettings(**data), device=self.device).test
        self.space, self.amp = space, amp

    def __call__(self, checkpoint: Any) -> npt.NDArray[np.float32]:
        """Returns probabilities (images, classes) of the network in a Tune checkpoint of a `StandaloneTrainable`."""
        with checkpoint.as_directory() as place:
            return predict(load_trained(place, space=self.space).to(self.device), self.test, amp=self.amp)


class MemberSettings(StandaloneSettings):
    """All options of a `MemberTrainable`.

    Attributes:
        predictions_dir: Folder for the predictions, a local path or a pyarrow URI that every node can read.
    """

    predictions_dir: str


class MemberTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` that, after its last epoch, writes its class probabilities on the validation images.

    It is a member of the pool from which ensembles are selected (Zaidi et al. 2021 (NES), section 4). Results have
    another entry, `predictions`, the URI for `read_predictions`; None before the last epoch and after a failure.
    """

    settings_type: ClassVar[type[StandaloneSettings]] = MemberSettings
    _settings: MemberSettings

    def _epoch(self) -> dict[str, Any]:
        values = super()._epoch()
        trainer, settings = self.trainer, self._settings
        if trainer.finished:
            probabilities = predict(trainer.network.eval(), trainer.dataset.validation, amp=settings.training.amp)
            name = f"{self._seed}-{zlib.crc32(self._architecture.encode()):08x}.pt"
            state = {"validation": torch.from_numpy(probabilities)}
            values["predictions"] = write_weights(settings.predictions_dir, name, state)
        return values

    def _values(self, *metrics: Any) -> dict[str, Any]:
        return {**super()._values(*metrics), "predictions": None}

    def _state(self) -> dict[str, Any]:
        """Includes the settings of a `StandaloneTrainable`, so that `load_trained` can read this checkpoint."""
        return {"settings": self._settings.model_dump(mode="json", exclude={"predictions_dir"}), **super()._state()}


def read_predictions(uri: str | Path) -> npt.NDArray[np.float32]:
    """Reads (images, classes) probabilities of a pool's network on the validation images. Raises: FileNotFoundError."""
    probabilities: npt.NDArray[np.float32] = read_weights(str(uri))["validation"].numpy()
    return probabilities


class SnapshotTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` that stores the network's weights at the end of each cycle of `training.cycles`.

    At the end of a cycle, the learning rate is zero and the network at a minimum. The next cycle starts at the full
    rate and leads to another minimum (Huang et al. 2017, section 3). The last snapshot is the network after its last
    epoch. `snapshot_states` reads the snapshots from a checkpoint.
    """

    _snapshots: list[dict[str, torch.Tensor]]

    def _epoch(self) -> dict[str, Any]:
        values = super()._epoch()
        if self.trainer.epochs_done in self._settings.training.cycle_ends:
            state = self.trainer.network.state_dict()
            self._snapshots.append({name: tensor.detach().cpu().clone() for name, tensor in state.items()})
        return values

    def _state(self) -> dict[str, Any]:
        return {"snapshots": self._snapshots, **super()._state()}

    def _load(self, state: dict[str, Any]) -> None:
        super()._load(state)
        self._snapshots = [{name: tensor.cpu() for name, tensor in part.items()} for part in state["snapshots"]]

    def _release(self) -> None:
        self._snapshots = []
        super()._release()


def snapshot_states(folder: str | Path) -> list[dict[str, Any]]:
    """Reads, for the end of each cycle in order, the state that a `StandaloneTrainable` would save.

    Args:
        folder: Folder of a checkpoint of a `SnapshotTrainable`.

    Raises: InvalidInput without a snapshot.
    """
    state = read_state(folder)
    snapshots = state.pop("snapshots", [])
    if not snapshots:
        raise InvalidInput(
            f"expected the checkpoint of a SnapshotTrainable after a cycle's end, got {folder} without snapshots"
        )
    return [{**state, "trainer": {"network": weights}} for weights in snapshots]
