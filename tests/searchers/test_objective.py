"""Eq. 7.7 over a whole pool equals a plain loop, and has the invariances of the scale and the penalty."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from archray.searchers.hnas.objective import Pool, build_pool, objective

positive = st.floats(1e-3, 1e3)
rows = st.lists(st.tuples(positive, positive), min_size=1, max_size=30)
weight = st.floats(1e-4, 1e2)
target = st.floats(0.0, 1.0)
penalties = st.sampled_from(["square", "absolute"])


def pool_of(metric: ArrayLike, kappa: ArrayLike = 1.0) -> Pool:
    table = pd.DataFrame({"m": np.asarray(metric), "kappa": kappa})
    return build_pool(table.assign(architecture=[f"a{row}" for row in table.index]), "m")


def loop(kappa: float, metric: float, mu: float, nu: float, penalty: str, epsilon: float) -> float:
    distance = metric * metric - nu
    return kappa / (metric + epsilon) + mu * (distance * distance if penalty == "square" else abs(distance))


@given(rows, weight, target, penalties, st.sampled_from([0.0, 1e-6]))
def test_it_equals_a_plain_loop(
    table: list[tuple[float, float]], mu: float, nu: float, penalty: str, epsilon: float
) -> None:
    kappa, metric = np.array(table).T
    values = objective(kappa, metric, mu, nu, penalty, epsilon)
    expected = [loop(k, m, mu, nu, penalty, epsilon) for k, m in table]
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    assert expected[np.argmin(values)] == pytest.approx(min(expected))


@given(rows, weight, target, penalties, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    table: list[tuple[float, float]], mu: float, nu: float, penalty: str, random: object
) -> None:
    kappa, metric = np.array(table).T
    order = np.random.default_rng(len(table)).permutation(len(table))
    values = objective(kappa, metric, mu, nu, penalty)
    np.testing.assert_array_equal(objective(kappa[order], metric[order], mu, nu, penalty), values[order])


@given(rows, st.floats(1e-3, 1e3))
def test_units_and_sign_of_the_metric_do_not_matter(table: list[tuple[float, float]], unit: float) -> None:
    metric = np.array(table)[:, 1]
    scaled = pool_of(metric)
    assert scaled.metric.max() == 1.0
    np.testing.assert_allclose(scaled.metric * scaled.factor, metric)
    for other in (metric * unit, -metric * unit):
        np.testing.assert_allclose(pool_of(other).metric, scaled.metric, rtol=1e-12)


@given(rows, st.floats(1e-3, 1e3), weight, target, penalties)
def test_kappa_and_mu_share_a_unit(
    table: list[tuple[float, float]], unit: float, mu: float, nu: float, penalty: str
) -> None:
    kappa, metric = np.array(table).T
    values = objective(kappa, metric, mu, nu, penalty)
    np.testing.assert_allclose(objective(unit * kappa, metric, unit * mu, nu, penalty), unit * values, rtol=1e-9)


@given(rows, target, penalties)
def test_a_heavy_penalty_selects_the_row_nearest_to_nu(
    table: list[tuple[float, float]], nu: float, penalty: str
) -> None:
    kappa, metric = np.array(table).T
    selected = np.argmin(objective(kappa, metric, 1e30, nu, penalty))
    distance = np.abs(metric**2 - nu)
    assert distance[selected] <= distance.min() + 1e-9


def test_usable_rows() -> None:
    metric = [1.0, 0.0, math.nan, math.inf, -2.0, 1.0, 1.0]
    kappa = [1.0, 1.0, 1.0, 1.0, 1.0, math.nan, math.inf]
    assert pool_of(metric, kappa).architectures == ["a0", "a4"]
