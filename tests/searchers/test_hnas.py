"""HNASSearch: Algorithm 7.1 step by step, repeats, budget, points of the user, and a million rows."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest

from archray.errors import InvalidInput, InvalidPool
from archray.searchers import HNASSearch, drive
from archray.searchers.hnas.mu_nu_search import MAX_REPEATS
from archray.searchers.hnas.objective import FIRST_POINTS, load_pool, objective
from archray.searchers.pool_file import PoolFile
from archray.searchers.testing import hashed_score

Make = Callable[..., HNASSearch]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    path = tmp_path_factory.mktemp("pool") / "pool.parquet"
    frame = pd.DataFrame({"architecture": [f"a{row}" for row in range(30)]})
    frame.assign(snip=rng.uniform(0.5, 8.0, 30), kappa=rng.uniform(0.0, 2e-3, 30)).to_parquet(path)
    return path


@pytest.fixture
def make(table: Path) -> Make:
    def search(**arguments: Any) -> HNASSearch:
        return HNASSearch(
            table,
            **{"proxy": "snip", "budget": 8, "metric": "accuracy", "mode": "max", "on_repeat": "next-best"} | arguments,
        )

    return search


def score(config: dict[str, Any]) -> float:
    return hashed_score({"architecture": config["architecture"]})


def test_each_answer_minimizes_the_requested_objective(make: Make, table: Path) -> None:
    search = make(on_repeat="reuse")
    drive(search, score)
    pool = load_pool(PoolFile.of(table), "snip")
    questions = search.questions()
    trained: set[str] = set()
    free = 0
    for row in questions.itertuples():
        values = objective(pool.kappa, pool.metric, row.mu, row.nu)
        free = free + 1 if row.repeat else 0
        if free == 0 and pool.architectures[np.argmin(values)] in trained:  # the bound on free answers was reached
            taken = np.array([name in trained for name in pool.architectures])
            assert row.architecture == pool.architectures[np.argmin(np.where(taken, np.inf, values))]
        else:
            assert row.architecture == pool.architectures[np.argmin(values)]
        assert row.repeat == (row.architecture in trained)
        assert free <= MAX_REPEATS
        trained.add(row.architecture)
    assert len(trained) == 8
    assert questions["repeat"].any()
    assert (questions.groupby("architecture")["value"].nunique() == 1).all()
    assert questions["number"].tolist() == list(range(len(questions)))


def test_first_points_are_spread_over_the_pool(make: Make, table: Path) -> None:
    search = make(on_repeat="next-best")
    drive(search, score)
    targets = np.sqrt(search.questions()["nu"].head(FIRST_POINTS))
    np.testing.assert_allclose(
        targets, np.quantile(load_pool(PoolFile.of(table), "snip").metric, [0, 0.25, 0.5, 0.75, 1])
    )
    low, high = search.coordinates.mu_bounds()
    assert search.questions()["mu"].between(low, high).all()
    assert search.questions()["nu"].between(0, 1).all()


def test_random_points_fill_the_square_and_wait_for_nothing(make: Make) -> None:
    search = make(points="uniform", on_repeat="next-best", budget=30)
    search.set_max_concurrency(30)
    for number in range(30):  # no result is reported
        assert isinstance(search.suggest(f"t{number}"), dict)
    points = np.array([search.coordinates.point(mu, nu) for mu, nu in search.questions()[["mu", "nu"]].to_numpy()])
    low, high = search.coordinates.log10_mu
    weights = (points[:, 1] - low) / (high - low)
    for axis in (points[:, 0], weights):
        assert (np.histogram(axis, bins=3, range=(0, 1))[0] >= 4).all()
    assert abs(np.corrcoef(points[:, 0], weights)[0, 1]) < 0.5


@pytest.mark.parametrize("on_repeat", [pytest.param("reuse", marks=pytest.mark.slow), "next-best"])
def test_no_architecture_is_trained_twice_and_the_pool_is_exhausted(
    table: Path, tmp_path: Path, on_repeat: Literal["reuse", "next-best"]
) -> None:
    pd.read_parquet(table).head(9).to_parquet(tmp_path / "small.parquet")
    search = HNASSearch(
        tmp_path / "small.parquet", "snip", budget=100, on_repeat=on_repeat, metric="accuracy", mode="max"
    )
    names = drive(search, score, concurrency=3)["architecture"]
    assert len(names) == 9
    assert names.is_unique


def test_next_best_makes_one_request_per_training(make: Make) -> None:
    search = make(on_repeat="next-best")
    drive(search, score)
    assert not search.questions()["repeat"].any()
    assert len(search.questions()) == 8


def test_best_is_the_best_validation(make: Make) -> None:
    for mode, pick in (("max", max), ("min", min)):
        search = make(mode=mode)
        values = drive(search, score)["value"]
        best = search.best()
        assert best["value"] == pick(values)
        assert score(best) == best["value"]


def test_failures_are_stored_as_failures(make: Make) -> None:
    def evaluate(config: dict[str, Any]) -> dict[str, Any]:
        value = score(config)
        return {"accuracy": math.nan, "failure": "diverged"} if value > 0.5 else {"accuracy": value}

    search = make()
    drive(search, evaluate)
    history = search.history()
    assert (history["failure"] == "diverged").equals(history["value"].isna())
    assert history["failure"].notna().any()
    best = search.best()
    assert best["value"] <= 0.5


@pytest.mark.slow
def test_points_to_evaluate(make: Make) -> None:
    points = [{"architecture": "a7"}, {"mu": 0.5, "nu": 0.25}, {"architecture": "a7", "mu": 0.1, "nu": 0.1}]
    search = make(points_to_evaluate=points, on_repeat="reuse")
    configs = drive(search, score)
    assert configs["architecture"][0] == "a7"
    assert (configs["mu"][1], configs["nu"][1]) == (0.5, 0.25)
    assert len(configs) == 8
    assert configs["architecture"].is_unique
    third = search.questions().iloc[2]
    assert third["repeat"]
    assert (third["trial"], third["architecture"]) == (1, "a7")


def test_add_evaluated_point(make: Make) -> None:
    plain = drive(make(), score)["architecture"].tolist()
    search = make()
    search.add_evaluated_point({"architecture": plain[0], "mu": 0.01, "nu": 0.0, "other": 1}, 2.0)
    names = drive(search, score)["architecture"].tolist()
    assert plain[0] not in names
    assert len(names) == 8
    best = search.best()
    assert (best["architecture"], best["value"]) == (plain[0], 2.0)
    assert search.history()["given"].sum() == 1


def test_extended_budget_continues(make: Make) -> None:
    short = make(budget=4)
    drive(short, score)
    longer = make(budget=8)
    longer.set_state(short.get_state())
    drive(longer, score)
    whole = make(budget=8)
    drive(whole, score)
    assert longer.questions().equals(whole.questions())


def test_paper_code_preset(make: Make, table: Path) -> None:
    search = make(preset="paper-code", on_repeat=None)
    assert (search.penalty, search.on_repeat) == ("absolute", "next-best")
    drive(search, score)
    pool = load_pool(PoolFile.of(table), "snip")
    questions = search.questions()
    np.testing.assert_allclose(np.sqrt(questions["nu"].head(FIRST_POINTS)), np.linspace(0, 1, FIRST_POINTS))
    metric, taken = pool.metric * pool.factor, []  # the authors' program does not scale
    for row in questions.itertuples():
        mu, nu = row.mu / pool.factor**3, row.nu * pool.factor**2
        values = pool.kappa / (metric + 1e-6) + mu * np.abs(metric**2 - nu)
        values[taken] = np.inf
        assert row.architecture == pool.architectures[int(values.argmin())]
        taken.append(int(values.argmin()))
        assert mu * (1 + 1e-9) >= 1e-4
        assert mu <= 1 + 1e-9


def test_paper_code_candidates_grow(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"a{row}" for row in range(10_000)]
    pd.DataFrame({"architecture": names, "snip": rng.random(10_000) + 0.1, "kappa": rng.random(10_000)}).to_parquet(
        tmp_path / "pool.parquet"
    )
    search = HNASSearch(tmp_path / "pool.parquet", "snip", preset="paper-code", metric="accuracy", mode="max")
    candidates = [search.candidates(number) for number in range(1, 7)]
    assert [rows.sum() for rows in candidates] == [2000, 4000, 6000, 8000, 10_000, 10_000]
    assert all((smaller <= larger).all() for smaller, larger in pairwise(candidates))


@pytest.mark.slow
def test_a_million_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    n = 10**6
    names = np.char.add("a", np.arange(n).astype(str))
    path = tmp_path / "pool.parquet"
    pd.DataFrame({"architecture": names, "snip": rng.random(n), "kappa": rng.random(n) * 1e-3}).to_parquet(path)

    def search() -> HNASSearch:
        return HNASSearch(path, "snip", budget=7, metric="accuracy", mode="max", on_repeat="next-best")

    original = search()
    assert len(pickle.dumps(original)) < 10_000
    first = drive(original, score, max_trials=5)["architecture"].tolist()
    original.save(str(tmp_path / "state"))
    assert os.path.getsize(tmp_path / "state") < 10**6
    assert len(pickle.dumps(original)) < 10**6
    continued = search()
    continued.restore(str(tmp_path / "state"))
    whole = drive(search(), score)["architecture"].tolist()
    assert first + drive(continued, score)["architecture"].tolist() == whole


def test_a_pickled_searcher_notices_a_changed_pool(tmp_path: Path, table: Path) -> None:
    copy = tmp_path / "pool.parquet"
    copy.write_bytes(table.read_bytes())
    pickled = pickle.dumps(HNASSearch(copy, "snip", metric="accuracy", mode="max"))
    pd.read_parquet(copy).head(20).to_parquet(copy)
    with pytest.raises(InvalidPool, match="has changed"):
        pickle.loads(pickled).set_search_properties(None, None, {"settings": {}})
    with pytest.raises(InvalidPool, match="has changed"):
        pickle.loads(pickled).suggest("t")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budget": 0}, "budget: expected a whole number of 1 or more, got 0"),
        ({"budget": 2.5}, "budget"),
        ({"penalty": "cubic"}, "square or absolute"),
        ({"points": "grid"}, "selections or bayesian or uniform"),
        ({"points": "selections", "on_repeat": "reuse"}, "never repeats"),
        ({"preset": "paper"}, "paper-code"),
        ({"on_repeat": "again"}, "reuse or next-best"),
        ({"log10_mu": (0, -4)}, "low < high"),
        ({"library": "botorch"}, "scikit-optimize or scikit-learn"),
        ({"mode": "largest"}, "'min' or 'max'"),
        ({"seed": -1}, "seed"),
        ({"points_to_evaluate": [{"mu": 0.1}]}, "architecture, or with mu and nu"),
        ({"points_to_evaluate": [{"mu": -0.1, "nu": 0.1}]}, "mu > 0"),
    ],
)
def test_bad_arguments_raise_an_error(make: Make, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(**change)


def test_a_missing_proxy_lists_the_columns(make: Make) -> None:
    with pytest.raises(InvalidPool, match="no column ntk_trace; it has architecture, snip, kappa"):
        make(proxy="ntk_trace")


def test_asynchronous_search_uses_the_available_results(make: Make, tmp_path: Path) -> None:
    def search(asynchronous: bool = True) -> HNASSearch:
        searcher = make(asynchronous=asynchronous, on_repeat="next-best", budget=7)
        searcher.set_max_concurrency(2)
        return searcher

    def suggestions(searcher: HNASSearch, trials: range) -> list[Any]:
        """The first trial never ends; the others end at once."""
        given = []
        for number in trials:
            given.append(searcher.suggest(f"t{number}"))
            if number and isinstance(given[-1], dict):
                searcher.on_trial_complete(trial_id=f"t{number}", result={"accuracy": score(given[-1])})
        return given

    whole = suggestions(search(), range(8))
    assert whole[-1] == HNASSearch.FINISHED
    original = search()
    first = suggestions(original, range(4))
    original.save(str(tmp_path / "state"))
    continued = search()
    continued.restore(str(tmp_path / "state"))
    assert first + suggestions(continued, range(4, 8)) == whole
    ordered = search(asynchronous=False)
    assert suggestions(ordered, range(4))[2:] == [None, None]  # the third needs the first
