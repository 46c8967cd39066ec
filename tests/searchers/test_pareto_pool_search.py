"""ParetoPoolSearch: the conformance suite, costs known in advance, and the front that it finds in few evaluations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from archray.errors import InvalidInput, InvalidPool
from archray.searchers import ParetoPoolSearch, drive
from archray.searchers.pareto.front import hypervolume, non_dominated
from archray.searchers.testing import ConformanceSuite, SearcherConformance, TunerConformance

ARGUMENTS: dict[str, Any] = {"metric": "score", "mode": "max"}


def table(digits: int = 3, seed: int = 0) -> pd.DataFrame:
    """Strings of digits, their values, a correlated metric, and their costs."""
    rng = np.random.default_rng(seed)
    rows = np.array(list(itertools.product(range(4), repeat=digits)))
    worth = np.sqrt(rows @ np.arange(1, digits + 1)) + (rows == 2).sum(axis=1) / 4
    frame = pd.DataFrame({"architecture": ["-".join(map(str, row)) for row in rows], "worth": worth})
    frame["hint"] = worth + rng.normal(0, 0.5, len(rows))
    frame["noise"] = rng.random(len(rows))
    frame["cost"] = 1 + rows.sum(axis=1) + 0.1 * rng.random(len(rows))
    frame["memory"] = rng.random(len(rows))
    return frame


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pool") / "pool.parquet"
    table().drop(columns="worth").to_parquet(path)
    return path


class ParetoPoolSuite(ConformanceSuite):
    further = "-cost"

    @pytest.fixture(autouse=True)
    def _take_pool(self, pool: Path) -> None:
        self.pool = pool

    def make(self, **arguments: Any) -> ParetoPoolSearch:
        return ParetoPoolSearch(self.pool, self.further, **arguments)


class TestOneCost(ParetoPoolSuite, SearcherConformance):
    pass


class TestTwoCosts(ParetoPoolSuite, SearcherConformance):
    further = "-cost, -memory"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(ParetoPoolSuite, TunerConformance):
    pass


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    path, frame = tmp_path_factory.mktemp("large") / "pool.parquet", table(5)
    frame.drop(columns="worth").to_parquet(path)
    return path, frame


def share(frame: pd.DataFrame, names: Any) -> float:
    """Returns the share of the total hypervolume that these rows have."""
    losses, corner = np.stack([-frame["worth"], frame["cost"]], axis=1), [0.0, frame["cost"].max()]
    return hypervolume(losses[frame["architecture"].isin(names)], corner) / hypervolume(losses, corner)


@pytest.mark.parametrize("sign", [1, -1])  # a metric with the wrong sign costs some evaluations
def test_it_finds_most_of_a_front_in_twenty_evaluations(sign: int, tmp_path: Path) -> None:
    shares, drawn = [], []
    for seed in range(5):  # the first suggestions do not depend on the searcher's seed, so the table does
        frame = table(5, seed)
        frame["hint"] *= sign
        frame.drop(columns="worth").to_parquet(tmp_path / "pool.parquet")
        worth = dict(zip(frame["architecture"], frame["worth"], strict=True))
        search = ParetoPoolSearch(
            tmp_path / "pool.parquet", "-cost", ["hint", "noise"], budget=20, seed=seed, **ARGUMENTS
        )
        names = drive(search, lambda config, worth=worth: worth[config["architecture"]], concurrency=2)["architecture"]
        shares.append(share(frame, names))
        drawn += [share(frame, frame["architecture"].sample(20, random_state=number)) for number in range(4)]
    assert np.median(shares) > (0.9 if sign > 0 else np.mean(drawn))
    assert min(shares) > np.mean(drawn)


def test_rows_beyond_the_reference_are_not_trained(large: tuple[Path, pd.DataFrame]) -> None:
    path, frame = large
    cost = dict(zip(frame["architecture"], frame["cost"], strict=True))
    search = ParetoPoolSearch(path, "-cost", budget=12, reference={"cost": 6.0, "score": 0.0}, **ARGUMENTS)
    names = drive(search, lambda config: float(cost[config["architecture"]]))["architecture"]
    assert max(cost[name] for name in names) < 6.0
    assert search.front()["cost"].is_monotonic_decreasing  # here more expensive rows are better


def test_the_first_rows_are_on_the_front_of_metric_and_cost(large: tuple[Path, pd.DataFrame]) -> None:
    path, frame = large
    front = frame["architecture"][non_dominated(np.stack([-frame["hint"], frame["cost"]], axis=1))]
    names = {}
    for concurrency in (1, 4):
        search = ParetoPoolSearch(path, "-cost", ["hint"], budget=4, max_concurrent=concurrency, **ARGUMENTS)
        names[concurrency] = drive(search, lambda config: 1.0, concurrency=concurrency)["architecture"].tolist()
    assert names[1] == names[4]  # no result is used
    assert len(set(names[1])) == 4 and set(names[1]) <= set(front)


def test_a_row_without_its_cost_is_not_suggested(tmp_path: Path) -> None:
    frame = table().drop(columns="worth").head(10)
    frame.loc[[2, 5], "cost"] = np.nan
    frame.to_parquet(tmp_path / "pool.parquet")
    search = ParetoPoolSearch(tmp_path / "pool.parquet", "-cost", budget=20, **ARGUMENTS)
    names = set(drive(search, lambda config: 1.0)["architecture"])
    assert names == set(frame["architecture"]) - {frame["architecture"][2], frame["architecture"][5]}


def test_costs_are_metrics_only_if_they_are_named(pool: Path) -> None:
    assert ParetoPoolSearch(pool, "-cost", **ARGUMENTS).metrics == ("hint", "noise", "memory")
    assert ParetoPoolSearch(pool, "-cost", ["hint", "-cost"], **ARGUMENTS).metrics == ("hint", "-cost")


def test_the_history_includes_the_costs(pool: Path) -> None:
    search = ParetoPoolSearch(pool, "-cost", budget=3, **ARGUMENTS)
    drive(search, lambda config: float("nan"))
    costs = table().set_index("architecture")["cost"]
    history = search.history()
    assert history["cost"].tolist() == costs[history["architecture"]].tolist()
    assert search.front().empty


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"further": "-latency"}, InvalidPool, "no column latency"),
        ({"further": "-architecture"}, InvalidPool, "expected numbers in the column architecture"),
        ({"further": ""}, InvalidInput, "expected names"),
        ({"exploration": -1}, InvalidInput, "exploration"),
        ({"reference": {"price": 3.0}}, InvalidInput, "expected values of cost, score, got 'price'"),
        ({"reference": {"cost": float("nan")}}, InvalidInput, "finite number for cost"),
        ({"results": "worth"}, InvalidInput, "results: expected a list"),
    ],
)
def test_wrong_arguments_raise_an_error(
    pool: Path, arguments: Mapping[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ParetoPoolSearch(pool, **{"further": "-cost", **ARGUMENTS, **arguments})
