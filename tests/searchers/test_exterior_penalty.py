"""The exterior penalty: Eq. 6.8 as printed, its order of a pool, and the input that it rejects."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.errors import InvalidInput
from archray.searchers import MetricFirst, SearcherStateError, best_of_pool, drive
from archray.searchers.exterior_penalty import ExteriorPenalty
from archray.searchers.testing import SearcherConformance
from archray.trainables.nasi.one_step import reward

VALUES = np.array([1.0, 7.0, 3.0, 20.0, 5.0])
NUMBERS = st.floats(-1e6, 1e6)


def names(pool: Path, **options: Any) -> list[str]:
    keywords: dict[str, Any] = {"budget": None, "metric": "m", "mode": "max", **options}
    return drive(MetricFirst(pool, "trace", **keywords), lambda config: 0.0)["architecture"].tolist()


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    frame = pd.DataFrame({"architecture": list("abcdef"), "trace": [*VALUES, math.nan]})
    frame.to_parquet(tmp_path / "pool.parquet")
    return tmp_path / "pool.parquet"


@given(values=st.lists(NUMBERS, min_size=1), nu=NUMBERS, mu=st.floats(1.0, 10.0))
def test_the_objective_equals_the_reward_in_the_supernet_search(values: list[float], nu: float, mu: float) -> None:
    """Two forms of one function: the search in a supernet differentiates it, and this search ranks by it."""
    expected = reward(np.array(values), nu, mu)
    assert ExteriorPenalty(mu, nu).objective(np.array(values)) == pytest.approx(expected, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("mu", "nu", "ranked"),
    [
        (1.0, 4.0, [5, 7, 20, 3, 1]),  # above nu all are equal; these start from the smallest
        (2.0, 4.25, [5, 3, 7, 1, 20]),  # the nearest to nu from either side
        (3.0, 4.25, [3, 5, 1, 7, 20]),
        (2.0, 100.0, [20, 7, 5, 3, 1]),  # no value is above nu
        (1.0, 0.0, [1, 3, 5, 7, 20]),
        (2.0, 4.0, [3, 5, 1, 7, 20]),  # of equal R, 3 and 5, 1 and 7, the one below nu
        (1.0, None, [20, 7, 5, 3, 1]),  # the mean is 7.2
    ],
)
def test_the_order_of_a_pool(mu: float, nu: float | None, ranked: list[float], pool: Path) -> None:
    assert VALUES[ExteriorPenalty(mu, nu).ranking(VALUES)].tolist() == ranked
    expected = [list("abcde")[VALUES.tolist().index(value)] for value in ranked]
    assert names(pool, mu=mu, nu=nu) == expected, "f has no value"
    assert [p["architecture"] for p in best_of_pool(pool, "trace", 2, mu=mu, nu=nu)] == expected[:2]


@given(values=st.lists(NUMBERS, min_size=2, unique=True), nu=NUMBERS)
def test_at_mu_1_rounding_does_not_decide_the_order(values: list[float], nu: float) -> None:
    """M - (M - nu) equals nu except for its last digits."""
    metric = np.array(values)
    ranked = metric[ExteriorPenalty(1.0, nu).ranking(metric)].tolist()
    assert ranked == sorted(v for v in values if v >= nu) + sorted((v for v in values if v < nu), reverse=True)


def test_the_seed_orders_equal_values(tmp_path: Path) -> None:
    frame = pd.DataFrame({"architecture": list("abcd"), "trace": [2.0, 2.0, 2.0, 9.0]})
    frame.to_csv(tmp_path / "pool.csv", index=False)
    orders = {tuple(names(tmp_path / "pool.csv", mu=2.0, nu=2.0, seed=seed)) for seed in range(20)}
    assert len(orders) > 1 and {order[-1] for order in orders} == {"d"}


def test_a_state_of_another_constraint_raises_an_error(pool: Path, tmp_path: Path) -> None:
    MetricFirst(pool, "trace", mu=1.0, metric="m", mode="max").save(str(tmp_path / "state"))
    MetricFirst(pool, "trace", mu=1.0, metric="m", mode="max").restore(str(tmp_path / "state"))
    for other in ({}, {"mu": 2.0}, {"mu": 1.0, "nu": 3.0}):
        restored = MetricFirst(pool, "trace", metric="m", mode="max", **other)
        restored.restore(str(tmp_path / "state"))
        with pytest.raises(SearcherStateError, match=r"mu was 1.0|nu was None"):
            restored.suggest("t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mu": 0.5}, "mu: expected 1 or more, got 0.5. .* Leave mu out"),
        ({"mu": math.inf}, "mu: expected 1 or more, got inf"),
        ({"mu": "2"}, "mu: expected 1 or more, got '2'"),
        ({"mu": 1, "nu": math.nan}, "nu: expected a finite number .* got nan. Leave nu out"),
        ({"nu": 3.0}, "nu: expected mu and nu together, got nu=3.0 without mu. Add mu=1"),
        (
            {"mu": 2, "order": "smallest"},
            "mu: expected a metric whose largest values come first, got trace, smallest first.* Leave mu and nu out",
        ),
    ],
)
def test_wrong_arguments_raise_an_error(pool: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        MetricFirst(pool, "trace", **arguments)
    with pytest.raises(InvalidInput, match=message):
        best_of_pool(pool, "trace", 1, **arguments)


class TestConformance(SearcherConformance):
    @pytest.fixture(autouse=True)
    def _make_pool(self, tmp_path: Path) -> None:
        self.path = tmp_path / "long.csv"
        pd.DataFrame({"architecture": [f"a{row}" for row in range(20)], "m": [row % 7 for row in range(20)]}).to_csv(
            self.path, index=False
        )

    def make(self, **arguments: Any) -> MetricFirst:
        return MetricFirst(self.path, "m", mu=1.0, **arguments)
