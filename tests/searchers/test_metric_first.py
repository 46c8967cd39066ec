"""MetricFirst: a pool in the order of a column, as a search and as a start for others."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from archray.errors import InvalidInput, InvalidPool
from archray.searchers import MetricFirst, RegularizedEvolution, best_of_pool, drive
from archray.searchers.testing import ConformanceSuite, SearcherConformance, TunerConformance, hashed_score
from archray.trainables.spaces import get_space

ROWS = {"architecture": ["a", "b", "c", "d"], "snip": [2.0, math.nan, 5.0, -1.0], "flops": [1, 1, 1, 2]}


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    pd.DataFrame(ROWS).to_parquet(tmp_path / "pool.parquet")
    return tmp_path / "pool.parquet"


class MetricFirstSuite(ConformanceSuite):
    @pytest.fixture(autouse=True)
    def _make_pool(self, tmp_path: Path) -> None:
        self.path = tmp_path / "long.csv"
        pd.DataFrame({"architecture": [f"a{row}" for row in range(20)], "m": [row % 7 for row in range(20)]}).to_csv(
            self.path, index=False
        )

    def make(self, **arguments: Any) -> MetricFirst:
        return MetricFirst(self.path, "m", **arguments)


class TestConformance(MetricFirstSuite, SearcherConformance):
    pass


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(MetricFirstSuite, TunerConformance):
    budget = 4


def order(search: MetricFirst, **options: Any) -> list[str]:
    return drive(search, lambda config: 0.0, **options)["architecture"].tolist()


def test_the_best_are_first(pool: Path) -> None:
    keywords: dict[str, Any] = {"budget": None, "metric": "m", "mode": "max"}
    assert order(MetricFirst(pool, "snip", **keywords)) == ["c", "a", "d"]
    assert order(MetricFirst(pool, "snip", order="smallest", **keywords)) == ["d", "a", "c"]
    assert order(MetricFirst(pool, "snip", **{**keywords, "budget": 2}), concurrency=3) == ["c", "a"]


def test_the_seed_orders_equal_rows(pool: Path) -> None:
    orders = [order(MetricFirst(pool, "flops", None, seed=s, metric="m", mode="max")) for s in range(20)]
    assert all(names[0] == "d" for names in orders)
    assert {names[1] for names in orders} == {"a", "b", "c"}


def test_points_are_first_and_once(pool: Path) -> None:
    points = [{"architecture": "d"}]
    search = MetricFirst(pool, "snip", None, points_to_evaluate=points, metric="m", mode="max")
    search.add_evaluated_point({"architecture": "c"}, 1.0)
    assert order(search) == ["d", "a"]


def test_a_changed_pool_raises_an_error(pool: Path, tmp_path: Path) -> None:
    original = MetricFirst(pool, "snip", metric="m", mode="max")
    original.save(str(tmp_path / "state"))
    pd.DataFrame(ROWS).iloc[::-1].to_parquet(pool)
    other = MetricFirst(pool, "snip", metric="m", mode="max")
    other.restore(str(tmp_path / "state"))
    with pytest.raises(Exception, match="pool was"):
        other.suggest("t")


def test_the_best_of_a_pool_are_the_first_population_of_evolution(tmp_path: Path) -> None:
    space = get_space("nasbench201")
    forms = sorted({space.encode(space.canonical(architecture)) for architecture in space.enumerate()})[:200]
    values = [hashed_score({"architecture": name}) for name in forms]
    pd.DataFrame({"architecture": forms, "synflow": values}).to_parquet(tmp_path / "pool.parquet")
    start = best_of_pool(tmp_path / "pool.parquet", "synflow", 6)
    search = RegularizedEvolution(
        space, budget=9, population=6, sample_size=2, points_to_evaluate=start, metric="m", mode="max"
    )
    names = drive(search, lambda config: config["architecture"].count("conv"))["architecture"].tolist()
    best = [name for _, name in sorted(zip(values, forms, strict=True), reverse=True)]
    assert names[:6] == best[:6]
    assert all(
        min(sum(a != b for a, b in zip(name.split("|"), parent.split("|"), strict=True)) for parent in names[:row]) > 0
        for row, name in enumerate(names[6:], 6)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "nwot"}, "no column nwot; it has architecture, snip, flops"),
        ({"by": "architecture"}, "numbers in the column architecture"),
        ({"by": "empty"}, "a finite empty in .*, got none in 4 rows"),
        ({"by": "constant"}, "constant in .*, got 3 in every row"),
        ({"by": "snip", "order": "best"}, "order: expected largest or smallest"),
        ({"by": "snip", "points_to_evaluate": [{"name": "a"}]}, "a point with architecture"),
    ],
)
def test_wrong_arguments_raise_an_error(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    table = pd.DataFrame(ROWS)
    table.to_csv(tmp_path / "pool.csv", index=False)
    if arguments["by"] in ("empty", "constant"):
        table.assign(empty=math.nan, constant=3.0).to_csv(tmp_path / "pool.csv", index=False)
    with pytest.raises(InvalidInput, match=message):
        MetricFirst(tmp_path / "pool.csv", **arguments)


def test_a_budget_above_the_pool_size(pool: Path) -> None:
    with pytest.raises(InvalidPool, match=r"4 rows with a finite snip in .*, got 3"):
        best_of_pool(pool, "snip", 4)
