"""Bayesian optimization with scikit-optimize or scikit-learn, and normal scores of ranks."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray

logger = logging.getLogger(__name__)

Library = Literal["scikit-optimize", "scikit-learn"]


def check_library(library: str) -> None:
    """Raises: InvalidInput for an unknown library."""
    if library not in get_args(Library):
        raise InvalidInput(f"library: expected {' or '.join(get_args(Library))}, got {library!r}")


def next_point(
    points: Sequence[Sequence[float]],
    losses: Sequence[float | None],
    bounds: Sequence[tuple[float, float]],
    seed: int,
    library: Library = "scikit-optimize",
) -> list[float]:
    """Returns the point with the largest expected improvement of a Gaussian process (Matern 5/2 with noise).

    The optimizer is built for every point from all observations and a seed. So the observations are the entire state,
    and a restored search chooses the same points. A persistent optimizer would cost the same: one fit per point, about
    0.1 s.

    Args:
        points: n points of d coordinates each, in the order in which they were chosen.
        losses: n values to minimize; None for a pending result, which gets the mean of the others (constant liar), so
            that the next points are elsewhere.
        bounds: d pairs (low, high).
        seed: seed of the fit's restarts and of the candidates.
        library: the library of the Gaussian process. Without scikit-optimize, which is no longer developed,
            scikit-learn is used with a warning. Both run the same search, but their points differ.

    Returns: d coordinates within the bounds; uniformly random before the first loss.
    """
    finite = [loss for loss in losses if loss is not None]
    if not finite:
        return random_point(bounds, seed)
    lie = float(np.mean(finite))
    within = np.clip(points, *np.transpose(bounds))  # a user's point may be outside, and so may 10 ** log10(x)
    values = [lie if y is None else float(y) for y in losses]
    with warnings.catch_warnings():
        # Repeated points, and length scales at their bounds, are common for a piecewise constant objective.
        warnings.simplefilter("ignore")
        if library == "scikit-optimize":
            try:
                from skopt import Optimizer  # imported here: it takes a second
                from skopt.space import Real
            except Exception as error:  # an old package fails in many ways with new versions of others
                logger.warning("scikit-optimize cannot be imported (%s). Using scikit-learn instead.", error)
            else:
                dimensions = [Real(low, high) for low, high in bounds]
                options = {"base_estimator": "GP", "acq_func": "EI", "n_initial_points": 0, "random_state": seed}
                optimizer = Optimizer(dimensions, **options)
                optimizer.tell(within.tolist(), values)
                return [float(coordinate) for coordinate in optimizer.ask()]
        return _most_promising(within, np.array(values), np.array(bounds), seed)


# The constants of scikit-optimize
LEAST_GAIN = 0.01  # an improvement counts beyond this value
CANDIDATES = 10_000  # random points, of which the best are improved
POLISHED = 5


def _most_promising(points: FloatArray, losses: FloatArray, bounds: FloatArray, seed: int) -> list[float]:
    """Implements `next_point` with scikit-learn: (n, d), (n,), (d, 2) -> d coordinates."""
    from scipy.optimize import minimize  # as above: imported for the searches that need it
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    low, width = bounds[:, 0], bounds[:, 1] - bounds[:, 0]
    scale = losses.std() or 1.0
    kernel = ConstantKernel(1.0, (0.01, 1000.0)) * Matern(np.ones(len(bounds)), (0.01, 100.0), nu=2.5) + WhiteKernel()
    rng = np.random.RandomState(seed)  # scikit-learn takes no newer generator
    process = GaussianProcessRegressor(kernel, n_restarts_optimizer=2, random_state=rng)
    process.fit((points - low) / width, (losses - losses.mean()) / scale)
    noise = process.kernel_.k2.noise_level
    least = (losses.min() - losses.mean() - LEAST_GAIN) / scale

    def loss(unit: FloatArray) -> FloatArray:
        """Returns minus the expected improvement at points of the unit cube, (m, d) -> (m,)."""
        mean, deviation = process.predict(np.atleast_2d(unit), return_std=True)
        deviation = np.sqrt(np.maximum(deviation**2 - noise, 1e-12))  # of the function, without noise
        z = (least - mean) / deviation
        density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        return -deviation * (z * ndtr(z) + density)

    candidates = rng.uniform(size=(CANDIDATES, len(bounds)))
    starts = candidates[np.argsort(loss(candidates), kind="stable")[:POLISHED]]
    ends = [minimize(lambda x: float(loss(x)[0]), start, bounds=[(0.0, 1.0)] * len(bounds)).x for start in starts]
    best = min([*ends, starts[0]], key=lambda x: float(loss(x)[0]))
    return [float(coordinate) for coordinate in low + best * width]


def random_point(bounds: Sequence[tuple[float, float]], seed: int) -> list[float]:
    """Returns d coordinates, drawn uniformly within the bounds."""
    rng = np.random.default_rng(seed)
    return [float(rng.uniform(low, high)) for low, high in bounds]


def losses_of_answers(answers: Sequence[int | None], losses: Mapping[int, float | None]) -> list[float | None]:
    """Returns the losses of points, in their order. A failed trial gets the worst loss so far.

    Args:
        answers: for each point the number of the trial that has its loss; None: the point gave no trial, which counts
            as a failure.
        losses: losses of the ended trials, by number; None for a failed trial.

    Returns: one loss per point; None if the trial has not ended, or if it failed before the first loss.
    """
    worst = max((loss for loss in losses.values() if loss is not None), default=None)
    losses_by_point: list[float | None] = []
    for number in answers:
        loss = None if number is None else losses.get(number)
        failed = number is None or (number in losses and loss is None)
        losses_by_point.append(worst if failed else loss)
    return losses_by_point


def normal_scores(values: FloatArray) -> FloatArray:
    """Returns the standard normal quantiles at rank / (n + 1), (n,) -> (n,); equal values share one, NaN stays NaN.

    Only the order of the values matters; the largest value has the largest score. The divisor is n + 1, since the best
    of a few results is not the best of all.
    """
    scores = np.full(len(values), np.nan)
    finite = np.isfinite(values)
    if finite.any():
        scores[finite] = ndtri(rankdata(values[finite]) / (finite.sum() + 1))
    return scores
