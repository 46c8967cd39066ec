"""Bayesian optimization with scikit-optimize, and normal scores of ranks."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from archray.searchers.arguments import FloatArray


def next_point(
    points: Sequence[Sequence[float]], losses: Sequence[float | None], bounds: Sequence[tuple[float, float]], seed: int
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

    Returns: d coordinates within the bounds; uniformly random before the first loss.
    """
    from skopt import Optimizer  # imported here: it takes a second
    from skopt.space import Real

    finite = [loss for loss in losses if loss is not None]
    if not finite:
        return random_point(bounds, seed)
    lie = float(np.mean(finite))
    within = np.clip(points, *np.transpose(bounds)).tolist()  # a user's point may be outside, and so may 10 ** log10(x)
    optimizer = Optimizer(
        [Real(low, high) for low, high in bounds],
        base_estimator="GP",
        acq_func="EI",
        n_initial_points=0,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # Repeated points, and length scales at their bounds, are common for a piecewise constant objective.
        warnings.simplefilter("ignore")
        optimizer.tell(within, [lie if y is None else float(y) for y in losses])
        return [float(coordinate) for coordinate in optimizer.ask()]


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
