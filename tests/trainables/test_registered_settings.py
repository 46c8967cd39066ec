"""The registries of relaxations and architecture optimizers dispatch to the classes of archray and of a user."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import torch
from pydantic import Field, ValidationError
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.data import Dataset, DataSettings, load_images
from archray.trainables.nets import NetworkSettings
from archray.trainables.supernets import OPTIMIZERS, RELAXATIONS, build_mixing
from archray.trainables.supernets.networks import MixtureWeights, build_supernet
from archray.trainables.supernets.optimizers import GradientLearner, project_to_simplex
from archray.trainables.supernets.relaxations import ArchitectureParameters, Relaxation
from archray.trainables.supernets.settings import OptimizerSettings, RelaxationSettings
from archray.trainables.supernets.trainer import SupernetTrainer
from archray.trainables.tune.settings import SupernetOptions
from archray.trainables.tune.supernet_trainable import SupernetTrainable

TRAINING = {"epochs": 1, "batch_size": 10, "threads": 1}


class Sparsemax(Relaxation):
    """A user's mixture: the projection of logits onto the simplex."""

    def probabilities(self, parameters: Tensor) -> Tensor:
        return project_to_simplex(parameters)

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        return MixtureWeights(self.probabilities(parameters))


class SparsemaxSettings(RelaxationSettings):
    domains = ("logits",)

    name: Literal["users-sparsemax"] = "users-sparsemax"

    def make(self, generator: torch.Generator, domain: Any) -> Relaxation:
        return Sparsemax(generator, domain)


class DescentSettings(OptimizerSettings):
    """A user's optimizer: plain gradient descent on logits."""

    domain = "logits"

    name: Literal["users-descent"] = "users-descent"
    lr: float = Field(0.5, gt=0)

    def make(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=self.lr)


@pytest.fixture(scope="module", autouse=True)
def users_classes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for registry in (RELAXATIONS, OPTIMIZERS):
            patch.setattr(registry, "_entries", {name: registry.get(name) for name in registry})
        RELAXATIONS.register("users-sparsemax")(SparsemaxSettings)
        OPTIMIZERS.register("users-descent")(DescentSettings)
        yield


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_images(DataSettings(name="digits", limit=20))


def test_a_users_relaxation_and_optimizer_train_a_supernet(tmp_path: Any) -> None:
    settings = {
        "data": {"name": "digits", "limit": 20},
        "network": {"channels": 2, "cells": 1},
        "training": TRAINING,
        "relaxation": {"name": "users-sparsemax"},
        "optimizer": {"name": "users-descent", "lr": 0.25},
    }
    trainable = SupernetTrainable({"settings": settings, "seed": 1})
    mixing = trainable.trainer.mixing
    assert isinstance(mixing, ArchitectureParameters) and isinstance(mixing.relaxation, Sparsemax)
    assert isinstance(mixing.learner, GradientLearner) and isinstance(mixing.learner.optimizer, torch.optim.SGD)
    assert mixing.learner.optimizer.param_groups[0]["lr"] == 0.25
    before = mixing.parameters["edges"].detach().clone()
    result = trainable.step()
    assert result["failure"] is None and result["done"]
    trainable.trainer.supernet.space.decode(result["architecture"])
    assert not torch.equal(mixing.parameters["edges"].detach(), before)
    trainable.save_checkpoint(str(tmp_path))
    restored = SupernetTrainable({"settings": settings, "seed": 1})
    restored.load_checkpoint(str(tmp_path))
    assert repr(restored.step()) == repr(result)
    with pytest.raises(InvalidInput, match=r"expected the optimizer mirror-descent .*, got users-descent"):
        SupernetTrainable({"settings": {**settings, "relaxation": {"name": "simplex"}}})


def test_every_registered_pair_trains_or_raises_the_same_error(digits: Dataset) -> None:
    seen: set[str] = set()
    for relaxation in RELAXATIONS:
        for optimizer in OPTIMIZERS:
            parts = RELAXATIONS.get(relaxation)(), OPTIMIZERS.get(optimizer)()
            supernet = build_supernet("nasbench201", NetworkSettings(channels=2, cells=1), 1, 10, seed=0)
            values = {"relaxation": {"name": relaxation}, "optimizer": {"name": optimizer}, "training": TRAINING}
            try:
                mixing = build_mixing(supernet, *parts, seed=0)
            except InvalidInput:
                with pytest.raises(ValidationError):
                    SupernetOptions.model_validate(values)
                continue
            options = SupernetOptions.model_validate(values)
            assert (options.relaxation, options.optimizer) == parts
            assert math.isfinite(SupernetTrainer(supernet, digits, mixing, options.training, seed=0).epoch().loss)
            seen |= {relaxation, optimizer}
    assert seen == {*RELAXATIONS, *OPTIMIZERS}


def test_settings_round_trip_through_json_with_the_class_of_their_name() -> None:
    options = SupernetOptions.model_validate(
        {"relaxation": {"name": "gumbel", "end": 0.5}, "optimizer": {"name": "adam", "betas": [0.1, 0.2]}}
    )
    assert type(options.relaxation) is RELAXATIONS.get("gumbel") and type(options.optimizer) is OPTIMIZERS.get("adam")
    assert SupernetOptions.model_validate_json(options.model_dump_json()) == options
    assert SupernetOptions.model_validate(options.model_dump()) == options
    assert SupernetOptions.model_validate({"relaxation": "gumbel"}).relaxation == RELAXATIONS.get("gumbel")()
    dumped = options.model_dump(mode="json")["relaxation"]
    assert dumped == {"name": "gumbel", "start": 10.0, "end": 0.5, "form": "linear", "hard": True}


@pytest.mark.parametrize(
    ("values", "place", "message"),
    [
        ({"relaxation": {"name": "softmx"}}, ("relaxation",), "did you mean 'softmax'.*controller, gumbel, path"),
        ({"optimizer": {"name": "adan"}}, ("optimizer",), "no architecture optimizer 'adan'; did you mean 'adam'"),
        ({"relaxation": {"name": "gumbel", "start": -1}}, ("relaxation", "start"), "greater than 0"),
        ({"relaxation": {"name": "gumbel", "tau": 1}}, ("relaxation", "tau"), "not permitted"),
        ({"relaxation": {"start": 1}}, ("relaxation", "name"), "required"),
        ({"relaxation": 3}, ("relaxation",), "dictionary"),
    ],
)
def test_errors_name_the_key(values: Any, place: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValidationError, match=f"(?s){message}") as caught:
        SupernetOptions.model_validate(values)
    assert caught.value.errors()[0]["loc"] == place
