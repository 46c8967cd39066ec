"""Nondominated sorting and crowding distance, compared with a slow reference and by hand (Deb et al. 2002)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from archray.searchers.pareto.front import crowded_order, crowding_distance, front_ranks, non_dominated, spread_order


def dominates(one: np.ndarray, other: np.ndarray) -> bool:
    return bool((one <= other).all() and (one < other).any())


def points(k: int) -> st.SearchStrategy[np.ndarray]:
    return st.integers(0, 14).flatmap(
        lambda n: arrays(np.float64, (n, k), elements=st.integers(0, 5).map(float))  # many ties
    )


@pytest.mark.parametrize("k", [1, 2, 3])
def test_fronts_agree_with_peeling_by_the_definition(k: int) -> None:
    @given(points(k))
    def check(losses: np.ndarray) -> None:
        ranks, left, rank = front_ranks(losses), set(range(len(losses))), 0
        while left:
            front = {i for i in left if not any(dominates(losses[j], losses[i]) for j in left)}
            assert {i for i in range(len(losses)) if ranks[i] == rank} == front
            left, rank = left - front, rank + 1
        firsts = [i for i in np.flatnonzero(ranks == 0) if not (losses[:i] == losses[i]).all(axis=1).any()]
        assert non_dominated(losses).tolist() == firsts

    check()


def test_crowding_by_hand() -> None:
    losses = np.array([[0.0, 4.0], [1.0, 3.0], [2.0, 1.0], [4.0, 0.0]])
    assert crowding_distance(losses).tolist() == [np.inf, 2 / 4 + 3 / 4, 3 / 4 + 3 / 4, np.inf]
    assert crowding_distance(np.array([[1.0, 0.0], [1.0, 1.0]])).tolist() == [np.inf, np.inf]
    assert crowding_distance(np.ones((3, 2))).tolist() == [0, 0, 0]  # no objective distinguishes them


def test_the_crowded_order_is_by_front_and_then_by_distance() -> None:
    losses = np.array([[5.0, 5.0], [1.0, 3.0], [0.0, 4.0], [2.0, 1.0], [4.0, 0.0]])
    assert crowded_order(losses).tolist() == [2, 4, 3, 1, 0]


def test_every_prefix_of_the_spread_order_is_spread_out() -> None:
    line = np.array([[float(x), 10.0 - x] for x in (0, 1, 2, 5, 8.5, 10)])
    assert spread_order(line).tolist() == [0, 5, 3, 2, 4, 1]  # the ends, the middle, then the largest gap
    assert spread_order(line * [1e6, 1e-6]).tolist() == spread_order(line).tolist(), "in units of the ranges"
    assert spread_order(np.array([[0.0, 2, 3], [1, 0, 5], [2, 9, 0]]))[:3].tolist() == [0, 1, 2], "the best in each"
    assert spread_order(np.zeros((0, 2))).tolist() == [] and spread_order(np.ones((2, 2))).tolist() == [0, 1]
