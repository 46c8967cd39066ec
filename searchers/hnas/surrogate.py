"""Where in the square to ask next, by what is selected there: Thompson sampling over the distinct selections.

What a search learns is piecewise constant over (mu, nu), and a Gaussian process over (mu, nu) has to learn its steps.
This one is over the rows of the pool, by where they stand in M and in kappa, so that a training tells of every point
that selects a row like it. Its parameters are fixed: there is nothing to fit in twenty trainings.
"""

from collections.abc import Mapping

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky
from scipy.stats import rankdata

from archray.searchers.arguments import BoolArray, FloatArray
from archray.searchers.bayesian_optimization import normal_scores, random_point
from archray.searchers.hnas.objective import Coordinates, Selection

POINTS = 48  # drawn for each question; they select some ten to forty different rows
LENGTH_SCALE = 0.3  # in quantiles of M and of kappa
NOISE = 0.1  # variance of a training's normal score that M and kappa do not explain
JITTER = 1e-5  # on the diagonal of what is sampled: rows may stand at the same place


class SelectionSurrogate:
    """Chooses the next point of the square.

    1. Draw points uniformly; each selects the row with the lowest objective that was not suggested yet.
    2. Draw one function from the Gaussian process over rows, given the values of those trained.
    3. Ask the point whose row is highest in it.

    Args:
        square: of (mu, nu), over the pool.
        selection: which row of the pool a (mu, nu) selects.
    """

    def __init__(self, square: Coordinates, selection: Selection) -> None:
        self.square = square
        self.selection = selection
        pool = square.pool
        self.places: FloatArray = np.stack([rankdata(pool.metric), rankdata(pool.kappa)], axis=1) / len(pool)  # (n, 2)

    def next_point(self, losses: Mapping[int, float], mask: BoolArray, seed: int) -> list[float]:
        """The point to ask.

        Args:
            losses: of the rows that were trained, to minimise.
            left_out: (n,) True for the rows that a point cannot select; not all of them.
            seed: of the points and of the function drawn.
        """
        if not losses:
            return random_point(self.square.bounds, seed)
        rng = np.random.default_rng(seed)
        points: dict[int, list[float]] = {}
        for place, weight in zip(*(rng.uniform(low, high, POINTS) for low, high in self.square.bounds), strict=True):
            row = self.selection.lowest(*self.square.mu_nu([place, weight]), mask)
            assert row is not None  # or all were left out
            points.setdefault(row, [float(place), float(weight)])
        values = thompson_sample(
            self.places[list(losses)], standard_scores(-np.array(list(losses.values()))), self.places[list(points)], rng
        )
        return list(points.values())[int(np.argmax(values))]


def standard_scores(values: FloatArray) -> FloatArray:
    """(n,) The values' normal scores at mean 0 and deviation 1: no tail counts."""
    scores = normal_scores(values)
    return (scores - scores.mean()) / (scores.std() or 1.0)


def thompson_sample(
    places: FloatArray, values: FloatArray, elsewhere: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """(k,) A function drawn from the posterior given values (n,) at places (n, d), at the places elsewhere (k, d)."""
    factor = cho_factor(matern(places, places) + NOISE * np.eye(len(places)))
    across = matern(elsewhere, places)  # (k, n)
    mean = across @ cho_solve(factor, values)
    covariance = matern(elsewhere, elsewhere) - across @ cho_solve(factor, across.T)
    root = cholesky(covariance + JITTER * np.eye(len(elsewhere)), lower=True)
    return mean + root @ rng.standard_normal(len(elsewhere))


def matern(left: FloatArray, right: FloatArray) -> FloatArray:
    """(n, k) The Matern 5/2 kernel of places (n, d) and (k, d), at unit variance."""
    squares = ((left[:, None] - right[None]) ** 2).sum(axis=-1)
    distance = np.sqrt(5 * squares) / LENGTH_SCALE
    return (1 + distance + distance**2 / 3) * np.exp(-distance)
