"""Hypervolume and contributions: by hand, against Monte Carlo and inclusion-exclusion, and bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from archray.errors import InvalidInput
from archray.searchers.pareto.front import contributions, hypervolume


def by_inclusion_and_exclusion(losses: np.ndarray, reference: np.ndarray) -> float:
    """The union of boxes, term by term."""
    total = 0.0
    for size in range(1, len(losses) + 1):
        for some in itertools.combinations(losses, size):
            corner = np.max(some, axis=0)  # of the points that all of them dominate
            total += (-1) ** (size + 1) * float(np.prod(np.maximum(reference - corner, 0.0)))
    return total


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_it_agrees_with_inclusion_and_exclusion(k: int) -> None:
    rng = np.random.default_rng(k)
    for _ in range(20):
        losses, reference = rng.integers(0, 6, (8, k)).astype(float), np.full(k, 5.0)
        assert hypervolume(losses, reference) == pytest.approx(by_inclusion_and_exclusion(losses, reference))


def test_by_hand() -> None:
    losses = np.array([[0.0, 2.0], [1.0, 1.0], [3.0, 0.0], [1.0, 1.0], [2.0, 2.0], [9.0, 9.0], [np.nan, 0.0]])
    assert hypervolume(losses, [4, 3]) == 1 * 1 + 2 * 2 + 1 * 3
    assert contributions(losses, [4, 3]).tolist() == [1, 0, 1, 0, 0, 0, 0]  # two are equal: either can be removed
    assert hypervolume(np.zeros((0, 2)), [1, 1]) == 0
    assert hypervolume(np.array([[1.0, 0.0]]), [1, 1]) == 0  # no better than the reference in the first objective


def test_a_contribution_is_the_loss_of_volume_without_the_point() -> None:
    rng = np.random.default_rng(0)
    losses, reference = rng.random((12, 3)), np.ones(3)
    whole = hypervolume(losses, reference)
    without = [whole - hypervolume(np.delete(losses, row, axis=0), reference) for row in range(12)]
    assert contributions(losses, reference) == pytest.approx(without, abs=1e-12)


@pytest.mark.parametrize(
    ("losses", "reference", "message"),
    [
        (np.zeros((3, 2)), [1.0], "shape"),
        (np.zeros(3), [1.0], "shape"),
        (np.zeros((3, 2)), [1.0, np.inf], "finite reference"),
    ],
)
def test_bad_input_raises_an_error(losses: np.ndarray, reference: list[float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        hypervolume(losses, reference)
