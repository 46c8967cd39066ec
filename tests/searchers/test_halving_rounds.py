"""The computation of halving rounds, compared with the paper's numbers and slow references."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.searchers.halving import Schedule, average, rank, round_budget, round_sizes, survivor_count


def test_eight_rounds_for_256_candidates() -> None:
    assert round_sizes(256, 0.5) == [256, 128, 64, 32, 16, 8, 4, 2]


@given(st.integers(2, 5000), st.floats(0.01, 0.99))
def test_rounds_end_with_one_candidate(n: int, keep: float) -> None:
    sizes = [*round_sizes(n, keep), 1]
    assert sizes[0] == n
    for before, after in pairwise(sizes):
        assert 1 <= after < before
        assert after == min(math.ceil(keep * before - 1e-9), before - 1)
    if keep <= 0.5:
        assert len(sizes) - 1 <= math.ceil(math.log(n) / -math.log(keep) - 1e-9) + 1


def test_whole_products_are_not_rounded_up() -> None:
    assert 0.07 * 100 > 7
    assert survivor_count(100, 0.07) == 7
    assert survivor_count(7, 0.5) == 4
    assert survivor_count(2, 0.99) == 1


def test_budgets_grow_to_the_full_budget() -> None:
    grown = [round_budget(1000, math.sqrt(2), after) for after in range(8)]
    assert grown == [1000, 708, 500, 354, 250, 177, 125, 89]  # every second one is halved exactly
    assert [round_budget(1000, 1.0, after) for after in range(8)] == [1000] * 8
    assert round_budget(3, 1e300, 5) == 1


def test_average_has_no_number_for_a_candidate_that_failed_anywhere() -> None:
    scores = np.array([[1.0, 2.0, np.nan, 4.0], [3.0, 2.0, 1.0, np.inf]])
    np.testing.assert_array_equal(average(scores), [2.0, 2.0, np.nan, np.nan])
    assert np.isnan(average(np.empty((0, 3)))).all()


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf]), min_size=1, max_size=12), st.integers(0, 5))
def test_rank_orders_all_finite_losses(losses: list[float], seed: int) -> None:
    order = rank(np.array(losses), np.random.default_rng(seed))
    assert sorted(order) == [position for position, loss in enumerate(losses) if math.isfinite(loss)]
    assert [losses[position] for position in order] == sorted(loss for loss in losses if math.isfinite(loss))


def test_ties_are_broken_by_the_seed_and_not_by_position() -> None:
    first = [int(rank(np.zeros(4), np.random.default_rng(seed))[0]) for seed in range(200)]
    assert np.bincount(first, minlength=4).min() > 20
    assert first == [int(rank(np.zeros(4), np.random.default_rng(seed))[0]) for seed in range(200)]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_round_keeps_the_best_in_their_order(sign: int) -> None:
    schedule = Schedule(replicas=2, keep=0.5, budget=1, growth=1.0)
    current = schedule.round(1, ["a", "b", "c", "d", "e"])
    replies = [[sign * s for s in scores] for scores in ([5.0, 1.0, 3.0, 2.0, 9.0], [5.0, 3.0, 3.0, 2.0, 9.0])]
    ended = schedule.end(current, replies, sign, np.random.default_rng(0))
    following = schedule.following(ended)
    assert following.candidates == ["b", "c", "d"]
    assert list(following.numbers) == [3, 4]
