"""Bayesian optimization: the next point by scikit-optimize, and values as normal scores of their ranks."""

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from archray.searchers.arguments import FloatArray


def next_point(
    points: Sequence[Sequence[float]], losses: Sequence[float | None], bounds: Sequence[tuple[float, float]], seed: int
) -> list[float]:
    """Where expected improvement of a Gaussian process (Matern 5/2, observation noise) is largest.

    The optimizer is built for every point from all observations and a seed: the list is the entire state, and a
    restored search chooses the same points. One fit per point (about 0.1 s) is the cost of a live optimizer too.

    Args:
        points: n points of d coordinates each, in the order they were asked for.
        losses: n values to minimise; None for a point whose result is not in, which gets the mean of the known
            ones (constant liar), so that points asked for meanwhile lie elsewhere.
        bounds: d pairs (low, high).
        seed: of the fit's restarts and of the candidates.

    Returns: d coordinates within the bounds. Uniformly random ones while no loss is known.
    """
    from skopt import Optimizer  # not above: a second of imports, for those who do search
    from skopt.space import Real

    finite = [loss for loss in losses if loss is not None]
    if not finite:
        return random_point(bounds, seed)
    lie = float(np.mean(finite))
    within = np.clip(points, *np.transpose(bounds)).tolist()  # a user's may lie outside, and so may 10 ** log10(x)
    optimizer = Optimizer(
        [Real(low, high) for low, high in bounds],
        base_estimator="GP",
        acq_func="EI",
        n_initial_points=0,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # A point asked for twice, and length scales at their bounds: both usual on a piecewise constant objective.
        warnings.simplefilter("ignore")
        optimizer.tell(within, [lie if y is None else float(y) for y in losses])
        return [float(coordinate) for coordinate in optimizer.ask()]


def random_point(bounds: Sequence[tuple[float, float]], seed: int) -> list[float]:
    """d coordinates, uniformly from within the bounds."""
    rng = np.random.default_rng(seed)
    return [float(rng.uniform(low, high)) for low, high in bounds]


def losses_of_answers(answers: Sequence[int | None], losses: Mapping[int, float | None]) -> list[float | None]:
    """The losses to tell, in the order of the points. What failed counts as the worst loss known.

    Args:
        answers: per point the number of the trial whose loss it is told; None: none could be suggested for it.
        losses: of the trials that have ended, by number; None for one that failed.

    Returns: None for a point whose trial has not ended, and while no loss is known.
    """
    worst = max((loss for loss in losses.values() if loss is not None), default=None)
    losses_by_point: list[float | None] = []
    for number in answers:
        loss = None if number is None else losses.get(number)
        failed = number is None or (number in losses and loss is None)
        losses_by_point.append(worst if failed else loss)
    return losses_by_point


def normal_scores(values: FloatArray) -> FloatArray:
    """(n,) -> (n,) the standard normal's quantiles at rank / (n + 1); equal values share one, NaN stays NaN.

    Only their order counts. The largest has the largest score. Among one more than there are: the best of a few results
    is not the best there is.
    """
    scores = np.full(len(values), np.nan)
    finite = np.isfinite(values)
    if finite.any():
        scores[finite] = ndtri(rankdata(values[finite]) / (finite.sum() + 1))
    return scores
