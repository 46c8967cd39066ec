"""rs-ws and halving over a supernet: complete runs, and scoring that resumes where it stopped."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_runs import ONE_AT_A_TIME
from rich.console import Console

import archray
from archray.cluster.settings import ResourceSettings
from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.methods.supernets.random_paths import best_of, draw_architectures, score_with_shared_weights
from archray.trainables.spaces import get_space
from archray.trainables.tune.scorers import SupernetScorer, arrays_of
from archray.trainables.tune.settings import SupernetOptions
from archray.trainables.tune.supernet_trainable import SupernetTrainable

TINY: dict[str, Any] = {
    "preset": "smoke",
    "space": "nasbench201",
    "data": "digits",
    "data__limit": 60,
    "epochs": 1,
    "final_epochs": 1,
    "random": 0,
    "search_seeds": 1,
    "selection__epoch": 1,
    "seed": 1,
    **ONE_AT_A_TIME,
}


@pytest.fixture(scope="module")
def random_search(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rs-ws") / "run"
    archray.search("rs-ws", **TINY, samples=12, out=out)
    return out


# Sampling


def test_sampled_architectures_are_distinct_and_depend_on_the_seed() -> None:
    drawn = draw_architectures("nasbench201", SupernetOptions(), 50, seed=0)
    assert len(set(drawn)) == 50 and all(get_space("nasbench201").decode(each) for each in drawn)
    assert drawn == draw_architectures("nasbench201", SupernetOptions(), 60, seed=0)[:50]
    assert drawn != draw_architectures("nasbench201", SupernetOptions(), 50, seed=1)


def test_operations_are_sampled_uniformly_and_none_only_where_the_supernet_has_it() -> None:
    drawn = draw_architectures("nasbench201", SupernetOptions(), 500, seed=0)
    chosen = [operation for each in drawn for operation in get_space("nasbench201").decode(each)]
    shares = pd.Series(chosen).value_counts(normalize=True)
    assert len(shares) == 5 and (shares - 0.2).abs().max() < 0.03  # 3000 samples: deviation 0.007
    without = draw_architectures("nasbench201", SupernetOptions(none=False), 100, seed=0)
    assert not any("none" in each for each in without)


def test_more_architectures_than_the_supernet_can_find_are_all() -> None:
    space = get_space("examples/own_model.py:network")
    forms = {space.encode(space.canonical(architecture)) for architecture in space.enumerate()}
    assert set(draw_architectures(space, SupernetOptions(), 10**6, seed=0)) == forms


# Scoring


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
def test_only_architectures_without_a_shard_are_scored(tmp_path: Path) -> None:
    settings = {
        "data": {"name": "digits", "limit": 60},
        "network": {"channels": 2, "cells": 1},
        "training": {"epochs": 1, "threads": 1},
    }
    weights = arrays_of(SupernetTrainable({"settings": settings, "seed": 0}).trainer.supernet.state_dict())
    pool = ["|no_such_operation~0|", *draw_architectures("nasbench201", SupernetOptions(), 11, seed=0)]
    printed = io.StringIO()

    def score(architectures: list[str]) -> pd.DataFrame:
        return score_with_shared_weights(
            Folder(tmp_path),
            architectures,
            settings=settings,
            weights=weights,
            resources=ResourceSettings(actors=1),
            console=Console(file=printed, width=200),
        )

    score(pool[:5])
    before = {shard.name: shard.read_bytes() for shard in (tmp_path / "shards").iterdir()}
    table = score(pool)
    assert "5 of 12 architectures already scored" in printed.getvalue()
    assert {name: (tmp_path / "shards" / name).read_bytes() for name in before} == before
    assert sum(len(pd.read_parquet(shard)) for shard in (tmp_path / "shards").iterdir()) == 12
    assert list(table["architecture"]) == pool
    assert table["failure"].notna().tolist() == [True] + 11 * [False]
    rows = pd.DataFrame(SupernetScorer(settings, weights, "cpu")(pool))
    np.testing.assert_allclose(table["shared_loss"], rows["shared_loss"], rtol=1e-5)


def test_the_best_has_the_highest_accuracy_and_then_the_lowest_loss() -> None:
    scores = pd.DataFrame(
        {
            "architecture": ["a", "b", "c", "d"],
            "shared_loss": [0.1, 2.0, 1.0, math.nan],
            "shared_accuracy": [0.5, 0.75, 0.75, math.nan],
            "failure": [None, None, None, "rejected"],
        }
    )
    assert best_of(scores) == {"architecture": "c", "shared_accuracy": 0.75, "failure": None}
    nothing = best_of(scores[3:])
    assert nothing["architecture"] is None and nothing["failure"] == "no architecture has a score: rejected"


# Complete runs


@pytest.mark.slow
def test_random_search_takes_the_best_of_its_scores(random_search: Path) -> None:
    scores = pd.read_parquet(random_search / "search" / "scores.parquet")
    [found] = pd.read_parquet(random_search / "search" / "found.parquet").to_dict("records")
    assert scores["architecture"].nunique() == 12 and set(scores["trial_id"]) == {found["trial_id"]}
    assert found["shared_accuracy"] == scores["shared_accuracy"].max()
    assert found["architecture"] in set(
        scores.loc[scores["shared_accuracy"] == found["shared_accuracy"], "architecture"]
    )
    assert 0 <= found["mixture_accuracy"] <= 1
    assert (random_search / "report.html").exists() and (random_search / "final" / "trials.parquet").exists()


@pytest.mark.slow
@pytest.mark.ci
def test_a_search_killed_during_its_scoring_resumes_there(random_search: Path) -> None:
    """Leaves the folder as a kill would: without the tables and without one shard."""
    search = random_search / "search"
    scores, trials = (pd.read_parquet(search / name) for name in ("scores.parquet", "trials.parquet"))
    shards = sorted(search.glob("scores-*/shards/part-*.parquet"))
    kept = {shard.name: shard.read_bytes() for shard in shards[1:]}
    lost = len(pd.read_parquet(shards[0]))
    for file in (shards[0], *(search / name for name in ("done.json", "scores.parquet", "found.parquet"))):
        file.unlink()
    archray.resume(random_search)
    pd.testing.assert_frame_equal(pd.read_parquet(search / "scores.parquet"), scores)
    assert pd.read_parquet(search / "trials.parquet")["trial_id"].equals(trials["trial_id"]), "no supernet was trained"
    now = sorted(search.glob("scores-*/shards/part-*.parquet"))
    assert {shard.name: shard.read_bytes() for shard in now if shard.name in kept} == kept
    assert sum(len(pd.read_parquet(shard)) for shard in now if shard.name not in kept) == lost


@pytest.mark.slow
def test_halving_continues_survivors_from_the_round_before(ray_session: None, tmp_path: Path) -> None:
    result = archray.search("supernet-halving", **TINY, out=tmp_path / "run")
    search = tmp_path / "run" / "search"
    rounds = pd.read_parquet(search / "rounds.parquet")
    assert rounds.groupby("round").size().tolist() == [4, 2, 1]
    for number in (2, 3):
        survivors = rounds[(rounds["round"] == number - 1) & rounds["kept"]]["candidate"]
        assert set(rounds[rounds["round"] == number]["candidate"]) == set(survivors)
    trials = pd.read_parquet(search / "trials.parquet").sort_values("round")
    assert pd.isna(trials["warm_start"].iloc[0])
    assert trials["warm_start"].tolist()[1:] == trials["weights"].tolist()[:-1]
    assert all(search in Path(uri.removeprefix("file://")).parents for uri in trials["weights"])
    [found] = pd.read_parquet(search / "found.parquet").to_dict("records")
    assert found["architecture"] == result.architecture == rounds["candidate"].iloc[-1]
    assert found["trial_id"] == trials["trial_id"].iloc[-1] and 0 <= found["shared_accuracy"] <= 1
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("rs-ws", {"supernet__relaxation__name": "simplex"}, "to be path for rs-ws, .* got simplex"),
        ("supernet-halving", {"search_seeds": 2}, "search_seeds"),
        ("halving", {}, "the method supernet-halving"),
    ],
)
def test_invalid_input_raises_before_ray_starts(
    method: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    known = {"space": "nasbench201"} if method == "halving" else TINY
    with pytest.raises(InvalidInput, match=message):
        archray.search(method, **{**known, **options}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
