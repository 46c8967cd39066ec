"""Scoring with a trained supernet's weights: the same as one by one; what cannot be scored is a row with its reason."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray

from archray.errors import InvalidInput
from archray.trainables.supernets.evaluation import score_architectures
from archray.trainables.tune.scorers import SupernetScorer, arrays_of, trained_weights
from archray.trainables.tune.supernet_trainable import SupernetTrainable

CELLS = [
    "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|",
    "|skip_connect~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|none~0|nor_conv_3x3~1|skip_connect~2|",
    "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
]
SETTINGS: dict[str, Any] = {
    "data": {"name": "digits", "limit": 40},
    "network": {"channels": 2, "cells": 1},
    "relaxation": {"name": "path"},
    "optimizer": {"name": "none"},
    "training": {"epochs": 1, "batch_size": 10, "threads": 1},
}


@pytest.fixture(scope="module")
def trained() -> SupernetTrainable:
    trainable = SupernetTrainable({"settings": SETTINGS, "seed": 3})
    assert trainable.step()["done"]
    return trainable


@pytest.fixture(scope="module")
def weights(trained: SupernetTrainable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Read back from a checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoint")
    trained.save_checkpoint(str(folder))
    return trained_weights(folder)


def test_a_group_is_scored_as_its_architectures_one_by_one(
    trained: SupernetTrainable, weights: dict[str, np.ndarray]
) -> None:
    rows = SupernetScorer(SETTINGS, weights, "cpu")(CELLS)
    trainer = trained.trainer
    for row, cell in zip(rows, CELLS, strict=True):
        [metrics] = score_architectures(trainer.supernet, [cell], trainer.dataset.validation)
        assert row == {
            "architecture": cell,
            "shared_loss": metrics.loss,
            "shared_accuracy": metrics.accuracy,
            "failure": None,
        }


def test_an_architecture_that_the_space_refuses_is_a_row_with_its_reason(weights: dict[str, np.ndarray]) -> None:
    scorer = SupernetScorer(SETTINGS, weights, "cpu")
    good = scorer(CELLS[:2])
    first, refused, last = scorer([CELLS[0], "|conv9x9~0|", CELLS[1]])
    assert [first, last] == good
    assert refused["architecture"] == "|conv9x9~0|" and refused["failure"]
    assert math.isnan(refused["shared_loss"]) and math.isnan(refused["shared_accuracy"])  # type: ignore[arg-type]
    assert scorer(["|conv9x9~0|"])[0]["failure"] == refused["failure"]


def test_outputs_that_are_not_finite_have_no_accuracy(weights: dict[str, np.ndarray]) -> None:
    broken = {name: np.full_like(each, np.nan) for name, each in weights.items()}
    [row] = SupernetScorer(SETTINGS, broken, "cpu")(CELLS[:1])
    assert row["failure"] == "the validation loss is nan" and math.isnan(row["shared_accuracy"])  # type: ignore[arg-type]


def test_weights_of_another_supernet_are_refused(weights: dict[str, np.ndarray]) -> None:
    wider = {**SETTINGS, "network": {"channels": 4, "cells": 1}}
    with pytest.raises(InvalidInput, match="expected the weights to belong to a supernet with these settings' space"):
        SupernetScorer(wider, weights, "cpu")


def test_a_trial_that_failed_has_no_weights(tmp_path: Path) -> None:
    settings = {**SETTINGS, "training": {**SETTINGS["training"], "lr": 1e30}}
    trainable = SupernetTrainable({"settings": settings, "seed": 3})
    assert trainable.step()["failure"]
    trainable.save_checkpoint(str(tmp_path))
    with pytest.raises(InvalidInput, match="expected weights in the checkpoint"):
        trained_weights(tmp_path)


@pytest.mark.usefixtures("ray_session")
def test_weights_come_through_the_object_store(trained: SupernetTrainable, weights: dict[str, np.ndarray]) -> None:
    stored = ray.put(arrays_of(trained.trainer.supernet.state_dict()))
    assert SupernetScorer(SETTINGS, stored, "cpu")(CELLS) == SupernetScorer(SETTINGS, weights, "cpu")(CELLS)
