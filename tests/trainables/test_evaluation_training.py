"""Training as in DARTS' evaluation: the auxiliary tower, dropped paths, and networks that have neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.data import Dataset, Split
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import DARTS
from archray.trainables.supernets.networks import build_supernet
from archray.trainables.training import Trainer
from archray.trainables.training_settings import TrainingSettings
from archray.trainables.tune.standalone_trainable import StandaloneTrainable, load_trained

SPACE = DARTS()
# Pools, and one edge with weights: convolutions per channel are slow on a CPU, especially in bfloat16.
CELL = SPACE.encode(("0,1", "dil_conv_3x3", "max_pool_3x3", *("0,1", "max_pool_3x3", "skip_connect") * 3) * 2)
NB201 = "|nor_conv_3x3~0|+|none~0|nor_conv_1x1~1|+|skip_connect~0|none~1|avg_pool_3x3~2|"

USERS_SPACE = """
from torch import nn
from archray.trainables.spaces import Decision, Space

class Net(nn.Module):
    def __init__(self, inputs, classes, auxiliary):
        super().__init__()
        self.classifier = nn.Linear(inputs, classes)
        self.auxiliary = nn.Linear(inputs, classes) if auxiliary else None
        self.drop_path = 0.0

    def forward(self, images):
        x = images.flatten(1)
        logits = self.classifier(x)
        return (logits, self.auxiliary(x)) if self.training and self.auxiliary is not None else logits

class Own(Space):
    name = "own"
    decisions = (Decision("size", ("small", "large")),)

    def build(self, architecture, *, in_channels, num_classes, auxiliary):
        return Net(64 * in_channels, num_classes, auxiliary)
"""


def split(count: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    return Split(torch.randn(count, 1, 8, 8, generator=generator), torch.randint(3, (count,), generator=generator))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Dataset(
        name="noise",
        train=split(24, 0),
        validation=split(8, 1),
        test=split(8, 2),
        num_classes=3,
        in_channels=1,
        image_size=8,
    )


def network_of(*, auxiliary: bool = True, seed: int = 0) -> nn.Module:
    settings = NetworkSettings(channels=2, cells=1, auxiliary=auxiliary)
    return build(SPACE, CELL, network=settings, in_channels=1, num_classes=3, seed=seed)


def make_config(*, network: dict[str, Any], training: dict[str, Any], space: str = "darts") -> dict[str, Any]:
    settings = {
        "space": space,
        "data": {"name": "digits", "limit": 40},
        "network": {"channels": 2, "cells": 1, **network},
        "training": {"epochs": 4, "batch_size": 16, **training},
    }
    return {"settings": settings, "architecture": NB201 if space == "nasbench201" else CELL, "seed": 1}


# Auxiliary tower


def test_a_step_reduces_both_losses_and_reports_that_of_the_network(dataset: Dataset) -> None:
    network, same = network_of(), network_of()
    outputs = same(dataset.train.images)
    own, second = (F.cross_entropy(logits, dataset.train.labels, label_smoothing=0.1) for logits in outputs)
    gradients = torch.autograd.grad(own + 0.4 * second, list(same.parameters()), allow_unused=True)
    assert all(gradient is not None for gradient in gradients)

    settings = TrainingSettings(
        epochs=1,
        batch_size=24,
        lr=0.1,
        momentum=0,
        nesterov=False,
        weight_decay=0,
        label_smoothing=0.1,
        augmentation=None,
        auxiliary_weight=0.4,
    )
    metrics = Trainer(network, dataset, settings, seed=0).epoch()
    assert metrics.loss == pytest.approx(own.item(), rel=1e-5)
    for got, before, gradient in zip(network.parameters(), same.parameters(), gradients, strict=True):
        torch.testing.assert_close(got, before - 0.1 * gradient, rtol=1e-4, atol=1e-5)


def test_the_tower_is_not_used_in_evaluation_and_is_not_counted(tmp_path: Path) -> None:
    training = {"auxiliary_weight": 0.4, "epochs": 1}
    towered = StandaloneTrainable(make_config(network={"auxiliary": True}, training=training))
    bare = StandaloneTrainable(make_config(network={}, training={"epochs": 1}))
    one, other = towered.step(), bare.step()
    assert one["failure"] is None
    assert (one["parameters"], one["multiply_adds"]) == (other["parameters"], other["multiply_adds"])
    towered.save_checkpoint(str(tmp_path))
    network, test = load_trained(tmp_path), towered.trainer.dataset.test
    accuracy = (network(test.images).argmax(1) == test.labels).double().mean().item()
    assert accuracy == pytest.approx(one["test_accuracy"])


# Dropped paths


def test_paths_are_dropped_more_often_from_epoch_to_epoch(dataset: Dataset) -> None:
    network = network_of(auxiliary=False)
    trainer = Trainer(network, dataset, TrainingSettings(epochs=4, drop_path=0.2), seed=0)
    seen = []
    while not trainer.finished:
        trainer.epoch()
        seen.append(network.drop_path)
    assert seen == pytest.approx([0, 0.05, 0.1, 0.15])


@pytest.mark.slow
def test_a_rising_probability_is_not_recompiled(dataset: Dataset) -> None:
    torch.compiler.reset()
    counter, network = CompileCounter(), network_of()
    compiled = torch.compile(network, backend=counter)
    images = dataset.train.images
    for probability in (0.0, 0.1):
        network.drop_path = probability
        compiled(images)
    once = counter.frame_count
    drawn = []
    for probability in (0.2, 0.3, 0.9):
        network.drop_path = probability
        drawn.append(compiled(images)[0])
    assert counter.frame_count == once
    assert not torch.equal(drawn[0], drawn[1])


# Both; test_trials.py tests exact continuation


def test_the_network_for_large_images_trains() -> None:
    config = make_config(
        network={"stem": "imagenet", "auxiliary": True},
        training={"auxiliary_weight": 0.4, "drop_path": 0.2, "epochs": 2},
    )
    trainable = StandaloneTrainable(config)
    assert [trainable.step()["failure"] for _ in range(2)] == [None, None]


def test_a_users_network_can_have_both(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(USERS_SPACE)
    config = make_config(
        network={"auxiliary": True},
        training={"auxiliary_weight": 0.4, "drop_path": 0.2},
        space=f"{tmp_path / 'own.py'}:Own",
    )
    trainable = StandaloneTrainable(config | {"architecture": "size=small"})
    results = [trainable.step() for _ in range(4)]
    assert results[-1]["done"]
    assert results[-1]["failure"] is None
    assert (results[-1]["parameters"], results[-1]["multiply_adds"]) == (650, 640)
    assert trainable.trainer.network.drop_path == pytest.approx(0.15)


# Networks without them


@pytest.mark.parametrize(
    ("space", "network", "training", "message"),
    [
        ("nasbench201", {"auxiliary": True}, {"auxiliary_weight": 0.4}, "nasbench201 have no auxiliary classifier"),
        ("nasbench201", {"stem": "imagenet"}, {}, "expected the stem cifar, .* got imagenet"),
        ("nasbench201", {}, {"auxiliary_weight": 0.4}, "expected auxiliary_weight 0, .* got 0.4"),
        ("nasbench201", {}, {"drop_path": 0.2}, "expected drop_path 0, .* got 0.2"),
        ("darts", {}, {"auxiliary_weight": 0.4}, "Set network.auxiliary to true"),
        ("darts", {"auxiliary": True}, {}, "expected auxiliary_weight above 0, .* got 0"),
    ],
)
def test_options_that_a_network_lacks_raise_before_training(
    space: str, network: dict[str, Any], training: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        StandaloneTrainable(make_config(space=space, network=network, training=training)).step()


@pytest.mark.parametrize("network", [{"auxiliary": True}, {"stem": "imagenet"}])
def test_a_supernet_has_no_tower_and_no_other_stem(network: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="expected the stem cifar and no auxiliary classifier"):
        build_supernet("darts", NetworkSettings(channels=4, cells=1, **network), 1, 3, seed=0)


def test_a_network_for_scoring_has_no_tower() -> None:
    settings = NetworkSettings(channels=2, cells=1, auxiliary=True)
    network = build(SPACE, CELL, network=settings, in_channels=1, num_classes=3, seed=0, for_scoring=True)
    assert network.auxiliary is None
