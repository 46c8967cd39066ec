"""The next point of a Gaussian process by expected improvement, with both libraries."""

import logging
import sys

import numpy as np
import pytest

from archray.searchers.bayesian_optimization import Library, next_point

BOUNDS = [(-5.0, 10.0), (0.0, 15.0)]
LIBRARIES: list[Library] = ["scikit-optimize", "scikit-learn"]


def branin(point: list[float]) -> float:
    """Three minima of 0.398; its mean over the square is 54."""
    x, y = point
    return (y - 5.1 * x**2 / (4 * np.pi**2) + 5 * x / np.pi - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def search(library: Library, seed: int, steps: int = 20) -> list[float]:
    points: list[list[float]] = []
    losses: list[float] = []
    for step in range(steps):
        points.append(next_point(points, losses, BOUNDS, 100 * seed + step, library))
        losses.append(branin(points[-1]))
    return losses


@pytest.mark.parametrize("library", LIBRARIES)
def test_both_libraries_find_a_minimum(library: Library) -> None:
    best = [min(search(library, seed)) for seed in range(3)]
    assert np.median(best) < 1.0


@pytest.mark.parametrize("library", LIBRARIES)
def test_points_depend_only_on_the_observations_and_the_seed(library: Library) -> None:
    points = [[0.0, 0.0], [1.0, 2.0], [1.0, 2.0], [30.0, 2.0]]  # the last is outside of the bounds
    losses = [1.0, 3.0, None, 2.0]  # one is pending
    found = [next_point(points, losses, BOUNDS, seed, library) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    assert all(low <= x <= high for point in found for x, (low, high) in zip(point, BOUNDS, strict=True))


@pytest.mark.parametrize("library", LIBRARIES)
def test_equal_losses_are_no_error(library: Library) -> None:
    assert len(next_point([[0.5]] * 3, [2.0, 2.0, 2.0], [(0.0, 1.0)], 0, library)) == 1


def test_scikit_learn_replaces_a_library_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points, losses = [[0.2], [0.8]], [1.0, 2.0]
    expected = next_point(points, losses, [(0.0, 1.0)], 0, "scikit-learn")
    monkeypatch.setitem(sys.modules, "skopt", None)  # what an import then raises is an ImportError
    with caplog.at_level(logging.WARNING):
        assert next_point(points, losses, [(0.0, 1.0)], 0) == expected
    assert "scikit-optimize cannot be imported" in caplog.text
