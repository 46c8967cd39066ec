"""Every family of methods returns only architectures that meet the cost constraints.

Impossible constraints raise an error at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_runs import method_parameters

import archray
from archray.errors import InvalidInput
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.config import TrainedSearchConfig
from archray.platform.methods.configure import make_config
from archray.platform.methods.plain.config import PlainConfig
from archray.trainables.costs import costs_of
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """80 cells of NAS-Bench-201 with an accuracy, a metric and the costs on a board."""
    rng = np.random.default_rng(0)
    space = get_space("nasbench201")
    names = list(dict.fromkeys(space.encode(space.canonical(space.sample(rng))) for _ in range(120)))[:80]
    convolutions = np.array([name.count("nor_conv_3x3") + 0.3 * name.count("nor_conv_1x1") for name in names])
    values = 60 + 5 * convolutions + rng.normal(0, 1, len(names))
    rows = pd.DataFrame({"arch": names, "val_accuracy": values, "snip": values + rng.normal(0, 3, len(names))})
    rows["board_latency_ms"] = 1 + 2 * convolutions
    rows.to_csv(tmp_path / "own.csv", index=False)
    return tmp_path / "own.csv"


def trials(run: Any) -> pd.DataFrame:
    return pd.read_parquet(Path(run.path) / "search" / "trials.parquet")


@pytest.mark.parametrize(
    ("method", "options"),
    [
        pytest.param("random", {}, marks=pytest.mark.slow),
        ("evolution", {"population": 3, "sample_size": 2}),
        pytest.param("local-search", {"initial": 2}, marks=pytest.mark.slow),
        ("reinforce", {}),
        ("zero-cost", {"proxy": "snip"}),
        pytest.param("zero-cost-evolution", {"proxy": "snip", "population": 3}, marks=pytest.mark.slow),
        ("rank-surrogate", {}),
        pytest.param("robot", {}, marks=pytest.mark.slow),
    ],
)
def test_all_evaluated_architectures_meet_the_constraints(
    method: str, options: dict[str, Any], table: Path, tmp_path: Path
) -> None:
    run = archray.search(
        method,
        space=f"table:{table}",
        preset="smoke",
        budget=10,
        constraint=["board_latency_ms <= 4", "board_latency_ms > 1"],
        random=3,
        out=tmp_path / "run",
        **options,
    )
    trial_rows = trials(run)
    assert len(trial_rows) == 10 and trial_rows["board_latency_ms"].between(1.0, 4.0, inclusive="right").all()
    drawn = pd.read_parquet(Path(run.path) / "baseline" / "trials.parquet")
    assert drawn["board_latency_ms"].between(1.0, 4.0, inclusive="right").all()
    if (Path(run.path) / "pool").exists():
        pool = pd.read_parquet(Path(run.path) / "pool" / "pool.parquet")
        assert 10 <= len(pool) < 80 and pool["board_latency_ms"].between(1.0, 4.0, inclusive="right").all()


def test_counted_costs_are_columns_next_to_those_of_a_table(table: Path, tmp_path: Path) -> None:
    run = archray.search(
        "random", space=f"table:{table}", preset="smoke", budget=5, cost="flops", constraint="parameters <= 0.5M",
        channels=4, cells=1, out=tmp_path / "run",
    )  # fmt: skip
    trial_rows = trials(run)
    network = NetworkSettings(channels=4, cells=1)
    expected = costs_of("nasbench201", trial_rows["architecture"], ("flops", "parameters"), network=network)
    assert trial_rows["flops"].tolist() == expected["flops"].tolist()
    assert trial_rows["parameters"].tolist() == expected["parameters"].tolist()


def test_an_impossible_constraint_raises_an_error_with_the_nearest_value(table: Path, tmp_path: Path) -> None:
    least = pd.read_csv(table)["board_latency_ms"].min()
    for method in ("random", "zero-cost"):
        proxy = {"proxy": "snip"} if method == "zero-cost" else {}
        with pytest.raises(InvalidInput, match=rf"board_latency_ms <= 0\.5.*has board_latency_ms {least:g}"):
            archray.search(
                method, space=f"table:{table}", preset="smoke", constraint="board_latency_ms <= 0.5",
                out=tmp_path / method, **proxy,
            )  # fmt: skip
        assert not (tmp_path / method / "search" / "trials.parquet").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed <= 5", "there is no cost 'speed'"),
        ("flops = 5", "expected a constraint with a cost"),
        ("flops <= 1M, flops > 2M", "contradict each other"),
    ],
)
def test_invalid_constraints_raise_before_the_start(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message):
        archray.search("random", preset="smoke", constraint=text, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


TRAINED_METHODS = [name for name in METHODS if issubclass(get_method(name).config, TrainedSearchConfig)]


@pytest.mark.parametrize("method", method_parameters(TRAINED_METHODS[::6]))
def test_every_method_rejects_an_unknown_cost(method: str, table: Path) -> None:
    for flags in ({"cost": ["speed"]}, {"constraint": ["speed <= 5"]}):
        with pytest.raises(InvalidInput, match="there is no cost 'speed'"):
            make_config(method, "smoke", None, flags).check()
    if issubclass(get_method(method).config, PlainConfig):
        with pytest.raises(InvalidInput, match="there is no cost 'speed'"):
            make_config(method, "smoke", None, {"space": f"table:{table}", "constraint": ["speed <= 5"]}).check()


def test_the_flag_can_repeat_and_differs_from_the_nu_rule_of_nasi() -> None:
    config: Any = make_config("random", "smoke", None, {"constraint": ["flops <= 1M", "parameters <= 5k"]})
    assert config.constraints == ("flops <= 1M", "parameters <= 5k")
    config = make_config("nasi", "smoke", None, {"constraint": ["flops <= 1M"], "nu_rule": "adaptive"})
    assert (config.constraints, config.nasi.nu_rule, config.nasi.steps) == (("flops <= 1M",), "adaptive", 4)
    with pytest.raises(InvalidInput, match="constraint"):
        make_config("nasi", "smoke", None, {"constraint": ["adaptive"]}).check()


SMALL: dict[str, Any] = {"preset": "smoke", "channels": 4, "cells": 1, "space": "nasbench201"}
ONE_SEED: dict[str, Any] = {"search_seeds": 1, "random": 0}
SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"budget": 2, "random": 0},
    "hnas": {"budget": 2, "pool_size": 8, "random": 0},
    "gdas": {"epochs": 1, **ONE_SEED, "cost_weight": 0.5, "cost": "flops"},
    "enas": {"epochs": 1, **ONE_SEED},
    "rs-ws": {"epochs": 1, **ONE_SEED},
    "supernet-halving": {"epochs": 1, **ONE_SEED},
    "nasi": ONE_SEED,
    "nesbs": {"random": 0},
    "urs": {"random": 0},
    "single-best": {"random": 0},
    "deep-ensemble": {"random": 0, "pool": 2},
    "nes-rs": {"random": 0, "pool": 4},
    "nes-re": {"random": 0, "pool": 4},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", method_parameters(SEARCHES))
def test_all_trained_architectures_meet_the_constraints(method: str, ray_session: None, tmp_path: Path) -> None:
    run = archray.search(method, **SMALL, **SEARCHES[method], constraint="parameters <= 9k", out=tmp_path / "run")
    found = json.loads((Path(run.path) / "architecture.json").read_text())
    names = found.get("members") or [found["architecture"]]
    network = NetworkSettings(channels=4, cells=1)
    costs = costs_of("nasbench201", names, ("parameters",), network=network, in_channels=1, image_size=8)
    assert (costs["parameters"] <= 9000).all()
