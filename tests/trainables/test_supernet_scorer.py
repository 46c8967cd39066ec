"""Scores with a trained supernet's weights equal separate scores; an architecture without a score is a row with the
reason.
"""

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
def trained_trial() -> SupernetTrainable:
    trainable = SupernetTrainable({"settings": SETTINGS, "seed": 3})
    assert trainable.step()["done"]
    return trainable


@pytest.fixture(scope="module")
def weights(trained_trial: SupernetTrainable, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Reads the weights back from a checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoint")
    trained_trial.save_checkpoint(str(folder))
    return trained_weights(folder)


def test_scores_of_a_group_equal_separate_scores(
    trained_trial: SupernetTrainable, weights: dict[str, np.ndarray]
) -> None:
    rows = SupernetScorer(SETTINGS, weights, "cpu")(CELLS)
    trainer = trained_trial.trainer
    for row, cell in zip(rows, CELLS, strict=True):
        [metrics] = score_architectures(trainer.supernet, [cell], trainer.dataset.validation)
        assert row == {
            "architecture": cell,
            "shared_loss": metrics.loss,
            "shared_accuracy": metrics.accuracy,
            "failure": None,
        }


def test_an_invalid_architecture_is_a_row_with_the_reason(weights: dict[str, np.ndarray]) -> None:
    scorer = SupernetScorer(SETTINGS, weights, "cpu")
    good = scorer(CELLS[:2])
    first, invalid, last = scorer([CELLS[0], "|conv9x9~0|", CELLS[1]])
    assert [first, last] == good
    assert invalid["architecture"] == "|conv9x9~0|" and invalid["failure"]
    assert math.isnan(invalid["shared_loss"]) and math.isnan(invalid["shared_accuracy"])  # type: ignore[arg-type]
    assert scorer(["|conv9x9~0|"])[0]["failure"] == invalid["failure"]


def test_nonfinite_outputs_have_no_accuracy(weights: dict[str, np.ndarray]) -> None:
    broken = {name: np.full_like(each, np.nan) for name, each in weights.items()}
    [row] = SupernetScorer(SETTINGS, broken, "cpu")(CELLS[:1])
    assert row["failure"] == "the validation loss is nan" and math.isnan(row["shared_accuracy"])  # type: ignore[arg-type]


def test_weights_of_another_supernet_raise_an_error(weights: dict[str, np.ndarray]) -> None:
    wider = {**SETTINGS, "network": {"channels": 4, "cells": 1}}
    with pytest.raises(InvalidInput, match="expected the weights to belong to a supernet with these settings' space"):
        SupernetScorer(wider, weights, "cpu")


def test_a_failed_trial_has_no_weights(tmp_path: Path) -> None:
    settings = {**SETTINGS, "training": {**SETTINGS["training"], "lr": 1e30}}
    trainable = SupernetTrainable({"settings": settings, "seed": 3})
    assert trainable.step()["failure"]
    trainable.save_checkpoint(str(tmp_path))
    with pytest.raises(InvalidInput, match="expected weights in the checkpoint"):
        trained_weights(tmp_path)


@pytest.mark.usefixtures("ray_session")
def test_weights_are_shared_through_the_object_store(
    trained_trial: SupernetTrainable, weights: dict[str, np.ndarray]
) -> None:
    stored = ray.put(arrays_of(trained_trial.trainer.supernet.state_dict()))
    assert SupernetScorer(SETTINGS, stored, "cpu")(CELLS) == SupernetScorer(SETTINGS, weights, "cpu")(CELLS)
