"""An ensemble as one module: its averages, and its restoration from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from archray.errors import InvalidInput
from archray.trainables.data import DataSettings, load_images
from archray.trainables.data.dataset import Split
from archray.trainables.ensembles.ensemble import Ensemble, Member, ensemble_files, load_ensemble, member_of
from archray.trainables.ensembles.measures import average
from archray.trainables.ensembles.prediction import predict
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.tune.standalone_trainable import StandaloneTrainable

CELLS = [
    "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|",
    "|skip_connect~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|none~0|nor_conv_3x3~1|skip_connect~2|",
]
MEMBERS = [
    Member(
        space="nasbench201",
        architecture=cell,
        network=NetworkSettings(channels=channels, cells=1),
        in_channels=1,
        num_classes=10,
    )
    for cell, channels in zip(CELLS, (2, 4), strict=True)
]


@pytest.fixture(scope="module")
def split() -> Split:
    return load_images(DataSettings(name="digits", limit=40)).validation


def make_ensemble(**options: Any) -> Ensemble:
    return Ensemble([member.build() for member in MEMBERS], **options).eval()


def save(folder: Path, *arguments: Any) -> None:
    folder.mkdir(exist_ok=True)
    for name, content in ensemble_files(*arguments).items():
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("averaged", ["probabilities", "logits"])
def test_an_ensemble_averages_the_predictions_of_its_members(averaged: Any, split: Split) -> None:
    ensemble = make_ensemble(average=averaged)
    expected = average([predict(member, split, batch=7) for member in ensemble.members], averaged)
    with torch.no_grad():
        found = ensemble(split.images)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4)
        ensemble.output = "log_probabilities"
        torch.testing.assert_close(ensemble(split.images), found.log())
        assert ensemble.member_logits(split.images).shape == (2, len(split), 10)


def test_log_probabilities_stay_finite_where_probabilities_do_not() -> None:
    member = torch.nn.Linear(1, 2)
    with torch.no_grad():
        member.weight.copy_(torch.tensor([[0.0], [1.0]]))
        member.bias.zero_()
    ensemble = Ensemble([member, member], output="log_probabilities")
    assert ensemble(torch.tensor([[500.0]]))[0, 0].item() == pytest.approx(-500)


def test_members_with_an_auxiliary_tower_in_train_mode() -> None:
    network = NetworkSettings(channels=4, cells=3, auxiliary=True)

    space = get_space("darts")
    genotype = space.encode(space.sample(np.random.default_rng(0)))
    member = Member(space="darts", architecture=genotype, network=network, in_channels=3, num_classes=10).build()
    ensemble = Ensemble([member]).train()
    assert ensemble(torch.randn(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("averaged", ["probabilities", "logits"])
def test_an_ensemble_is_restored_from_its_files(averaged: Any, split: Split, tmp_path: Path) -> None:
    ensemble = make_ensemble(average=averaged)
    save(tmp_path, ensemble, MEMBERS, {"test_accuracy": 0.5})
    loaded = load_ensemble(tmp_path)
    assert not loaded.training and loaded.average == averaged
    with torch.no_grad():
        torch.testing.assert_close(loaded(split.images), ensemble(split.images), rtol=0, atol=0)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["architecture.json", "state_dict.pt"]
    assert json.loads((tmp_path / "architecture.json").read_text())["test_accuracy"] == 0.5
    again = load_ensemble(lambda name: (tmp_path / name).read_bytes(), output="log_probabilities")
    assert again.output == "log_probabilities"


def test_members_are_loaded_from_the_checkpoints_of_their_trials(split: Split, tmp_path: Path) -> None:
    settings = {
        "data": {"name": "digits", "limit": 40},
        "network": {"channels": 2, "cells": 1},
        "training": {"epochs": 1, "batch_size": 10, "threads": 1},
    }
    trained = StandaloneTrainable({"settings": settings, "architecture": CELLS[0], "seed": 1})
    trained.step()
    (tmp_path / "checkpoint").mkdir()
    trained.save_checkpoint(str(tmp_path / "checkpoint"))
    member, network = member_of(tmp_path / "checkpoint")
    assert member.architecture == CELLS[0] and member.space == "nasbench201"
    save(tmp_path / "model", Ensemble([network]), [member])
    with torch.no_grad():
        found = load_ensemble(tmp_path / "model")(split.images)
        expected = trained.trainer.network.eval()(split.images).softmax(1)
    torch.testing.assert_close(found, expected)


def test_an_invalid_ensemble_raises_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="one or more members"):
        Ensemble([])
    with pytest.raises(InvalidInput, match="expected probabilities or logits to average"):
        make_ensemble(average="votes")
    with pytest.raises(InvalidInput, match="as output"):
        make_ensemble(output="logits")
    with pytest.raises(InvalidInput, match="the settings of 2 members, got 1"):
        save(tmp_path, make_ensemble(), MEMBERS[:1])
    with pytest.raises(InvalidInput, match="entries other than"):
        save(tmp_path, make_ensemble(), MEMBERS, {"kind": "mine"})
    (tmp_path / "architecture.json").write_text('{"architecture": "|none~0|"}')
    with pytest.raises(InvalidInput, match="single network"):
        load_ensemble(tmp_path)
