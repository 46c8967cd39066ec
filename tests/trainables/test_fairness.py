"""Uniform architectures as paths: every operation gets its share of updates, with and without partial channels (note
E7).
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.controllers import UniformArchitectures
from archray.trainables.supernets.networks import build_supernet
from archray.trainables.supernets.settings import PathSettings
from archray.trainables.supernets.trainer import UpdateCounter, update_table
from archray.trainables.tune.settings import SupernetOptions
from archray.trainables.tune.supernet_trainable import SupernetTrainable

PATHS = {"relaxation": {"name": "path", "draws": "architectures"}, "optimizer": {"name": "none"}}
BOUND = 4.5  # standard deviations


def make_trainable(space: str, steps: int, **settings: Any) -> SupernetTrainable:
    """A tiny supernet with 12 images per step."""
    training = {"epochs": math.ceil(steps / 8), "batch_size": 12, "threads": 1, "momentum": 0, "weight_decay": 0}
    return SupernetTrainable(
        {
            "settings": {
                "space": space,
                "data": {"name": "digits", "limit": 96, "validation_fraction": 0.3},
                "network": {"channels": 4, "cells": 1},
                "partial_channels": 2,
                "training": training,
                **PATHS,
                **settings,
            },
            "seed": 3,
        }
    )


def last_result(trainable: SupernetTrainable) -> dict[str, Any]:
    result = trainable.step()
    while not result["done"]:
        result = trainable.step()
    return result


def deviations(table: pd.DataFrame) -> np.ndarray:
    mean = table["steps"] * table["chance"]
    return ((table["updates"] - mean).abs() / np.sqrt(mean * (1 - table["chance"]))).to_numpy()


@pytest.mark.parametrize("space", ["nasbench201", pytest.param("darts", marks=pytest.mark.slow)])
def test_updates_after_training_are_within_their_binomial(space: str) -> None:
    table = pd.DataFrame(
        json.loads(last_result(make_trainable(space, 80 if space == "nasbench201" else 48))["updates"])
    )
    assert len(table) == (6 * 4 if space == "nasbench201" else 2 * 14 * 7)  # without `none`
    assert table["steps"].nunique() == 1 and table["steps"][0] >= 48
    assert deviations(table).max() < BOUND


@pytest.mark.parametrize("space", ["nasbench201", "darts", "darts-none"])
def test_samples_are_within_their_binomial_over_many_steps(space: str) -> None:
    supernet = build_supernet(space, NetworkSettings(channels=2, cells=1), 1, 10, seed=0)
    counter, mixing = UpdateCounter(supernet.groups), UniformArchitectures(supernet)
    mixing.reseed(1)
    for _ in range(2000):
        counter.add(mixing.draw(0.0))
    chances = PathSettings(draws="architectures").chances(supernet)
    table = pd.DataFrame(update_table(counter, supernet.groups, chances))
    assert deviations(table).max() < BOUND
    if space == "darts":  # two inputs of a node's 2, 3, 4 and 5, and one operation of seven
        shares = {round(2 / inputs / 7, 6) for inputs in (2, 3, 4, 5)}
        assert set(table["chance"].round(6)) == shares


@pytest.mark.parametrize("space", ["nasbench201", "darts"])
def test_uncounted_operations_are_not_updated(space: str) -> None:
    trainable = make_trainable(space, 8)
    trainer = trainable.trainer
    before = {name: each.detach().clone() for name, each in trainer.supernet.named_parameters()}
    last_result(trainable)
    edges = [decision.name for decision in get_space("nasbench201").decisions]
    counts: dict[tuple[str, str], int] = {}
    if space == "nasbench201":
        table = pd.DataFrame(update_table(trainer.updates, trainer.supernet.groups, None))
        counts = {(edges[row.edge], row.operation): row.updates for row in table.itertuples()}
    seen = set()
    for name, parameter in trainer.supernet.named_parameters():
        parts = name.split(".")
        if "edges" not in parts:
            continue
        edge, operation = parts[parts.index("edges") + 1 :][:2]
        if space == "nasbench201":
            updates = counts[edge, operation]
        else:
            target, source = map(int, edge.split("<-"))
            cell = "reduce" if trainer.supernet.cells[int(parts[1])].reduction else "normal"
            group = next(group for group in trainer.supernet.groups if group.name == cell)
            row = sum(range(2, target)) + source
            updates = int(trainer.updates.counts[cell][row, group.operations.index(operation)])
        assert torch.equal(parameter, before[name]) == (updates == 0), name
        seen.add(updates == 0)
    assert seen == {True, False}


def test_partial_channels_need_whole_architectures() -> None:
    options = {"relaxation": {"name": "path"}, "optimizer": {"name": "none"}, "partial_channels": 2}
    with pytest.raises(ValidationError, match="path with draws architectures"):
        SupernetOptions.model_validate(options)
    SupernetOptions.model_validate({**options, **PATHS})
    with pytest.raises(ValidationError, match="expected draws edges with fair"):
        SupernetOptions.model_validate({**options, "relaxation": {**PATHS["relaxation"], "fair": True}})


def test_none_is_sampled_only_where_the_supernet_has_it() -> None:
    for none, left_out in ((True, True), (False, False)):
        supernet = build_supernet("nasbench201", NetworkSettings(channels=2, cells=1), 1, 10, seed=0, none=none)
        mixing = UniformArchitectures(supernet)
        mixing.reseed(0)
        drawn = torch.stack([mixing.draw(0.0)["edges"].chosen for _ in range(50)])
        assert bool((drawn < 0).any()) == left_out


def test_updates_are_reported_at_the_end() -> None:
    trainable = make_trainable("nasbench201", 16)
    assert trainable.step()["updates"] is None
    assert json.loads(trainable.step()["updates"])["steps"][0] == 16
