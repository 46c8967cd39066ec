"""The hypervolume that a row adds: the levels of a front, compared with the hypervolume, for one cost and several."""

from __future__ import annotations

import numpy as np
import pytest

from archray.searchers.pareto.front import hypervolume
from archray.searchers.pareto.pool_search import ValueScale, expected_improvement, level_volumes


@pytest.mark.parametrize(("k", "tolerance"), [(1, 1e-12), (2, 0.03)])  # two costs: 512 points
def test_for_a_certain_value_it_is_the_growth_of_the_hypervolume(k: int, tolerance: float) -> None:
    rng = np.random.default_rng(k)
    costs, values, reference, base = rng.random((30, k)), rng.random(30), np.ones(k), 0.2
    known = [3, 7, 7, 11, 20]
    volumes, levels = level_volumes(costs, costs[known], values[known], base, reference)
    gain = expected_improvement(values[None], volumes, levels)
    losses, corner = np.column_stack([-values, costs]), [-base, *reference]
    before = hypervolume(losses[known], corner)
    grown = [hypervolume(losses[[*known, row]], corner) - before for row in range(30)]
    assert gain == pytest.approx(grown, abs=tolerance)


def test_without_results_it_is_the_base() -> None:
    costs = np.array([[1.0], [3.0], [5.0], [np.inf]])
    volumes, levels = level_volumes(costs, np.zeros((0, 1)), np.zeros(0), 2.0, np.array([4.0]))
    assert levels.tolist() == [2.0]
    assert expected_improvement(np.full((1, 4), 3.0), volumes, levels).tolist() == [3.0, 1.0, 0.0, 0.0]


def test_uncertain_values_are_averaged() -> None:
    volumes, levels = level_volumes(np.array([[0.0]]), np.zeros((0, 1)), np.zeros(0), 0.0, np.array([2.0]))
    assert expected_improvement(np.array([[-3.0], [0.0], [3.0]]), volumes, levels).tolist() == [2.0]


def test_scores_become_values() -> None:
    scale = ValueScale(np.array([0.0, -1.0, 1.0, 0.0]), np.array([70.0, 50.0, 80.0, 70.0]))
    assert scale(np.array([-9.0, -1.0, 0.5, 1.0])).tolist() == [50.0, 50.0, 75.0, 80.0]
    assert scale(np.array([2.0]))[0] == pytest.approx(80 + 15)  # as steep as from -1 to 1
    same = np.array([0.3])
    assert ValueScale(np.array([0.0]), np.array([70.0]))(same) is same  # a single result has no scale
