"""The fast selection of (mu, nu) equals the formula over the whole pool, and the median equals that of NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from archray.searchers.hnas.objective import Pool, Selection, distance, median_distance, objective

penalties = st.sampled_from(["square", "absolute"])
values = st.floats(0.0, 1.0)


def pool(kappa: ArrayLike, metric: ArrayLike) -> Pool:
    metric = np.asarray(metric, dtype=np.float64)
    return Pool([f"a{row}" for row in range(len(metric))], metric, np.asarray(kappa, dtype=np.float64), 1.0, 0)


@pytest.mark.parametrize("penalty", ["square", "absolute"])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6])
def test_blocks_make_the_same_selection_as_the_formula(
    penalty: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "archray.searchers.hnas.objective.BLOCK", 7
    )  # so that forty rows are several blocks, and the last one is partial
    rng = np.random.default_rng(0)
    for _ in range(50):
        # few different values, so that there are equal rows, of which the first counts
        rows = pool(rng.integers(1, 4, 40), rng.choice([0.25, 0.5, 1.0], 40))
        left_out = rng.random(40) < rng.choice([0.0, 0.5, 0.95])
        mu, nu = float(10 ** rng.uniform(-3, 3)), float(rng.random())
        expected = np.where(left_out, np.inf, objective(rows.kappa, rows.metric, mu, nu, penalty, epsilon))
        row = None if left_out.all() else int(np.argmin(expected))
        assert Selection(rows, penalty, epsilon).lowest(mu, nu, left_out) == row


def test_no_remaining_row_and_overflow() -> None:
    rows = Selection(pool([1.0, math.inf, math.inf], [1.0, 1.0, 1.0]), "square")
    assert rows.lowest(1.0, 0.0, np.array([True, True, True])) is None
    assert rows.lowest(1.0, 0.0, np.array([True, False, False])) == 1


@given(st.lists(values, min_size=1, max_size=30), st.floats(-0.5, 1.5), penalties)
def test_median_distance_is_the_median(metric: list[float], nu: float, penalty: str) -> None:
    rows = np.sort(np.array(metric))
    expected = np.median(distance(rows, nu, penalty))
    assert median_distance(rows**2, nu, penalty) == pytest.approx(expected, rel=1e-12, abs=1e-300)
