"""The mu and nu of Eq. 7.6 that order given values best, as Tables 7.1 and 7.5 fitted theirs. Shu 2022; note P6."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

LEVELS = 33  # of the fit, of mu and of nu each
LOG10_MU = (-4.0, 4.0)  # in units that balance the two terms; beyond, one of them decides alone
SAMPLE = 2000  # rows that the whole grid is tried on; the best of it on all
TRIED_ON_ALL = 20


@dataclass(frozen=True)
class Fit:
    """The trade-off with the highest Spearman correlation: mu and nu of Eq. 7.6, M over its largest."""

    mu: float
    nu: float


def fit_trade_off(metric: np.ndarray, quotient: np.ndarray, values: np.ndarray) -> Fit:
    """The mu and nu under which -(quotient + mu (M^2 - nu)^2) has the highest Spearman correlation with the values.

    Args:
        metric: (n,) M, positive. quotient: (n,) 1/M or kappa/M. values: (n,) the higher the better.

    Of a grid of LEVELS x LEVELS: root nu at the quantiles of M, mu even in its logarithm around where both terms have
    one median (note H1). All of it is tried on SAMPLE rows, evenly spaced by value, the best TRIED_ON_ALL on all.
    """
    grid = _grid(metric, quotient)
    order = np.argsort(values, kind="stable")
    sample = order[np.linspace(0, len(order) - 1, min(SAMPLE, len(order))).round().astype(int)]
    scores = _standard_ranks(-_bounds(grid, metric[sample], quotient[sample])) @ _standard_ranks(values[sample])
    best = grid[:, np.argsort(-scores, kind="stable")[:TRIED_ON_ALL]]
    scores = _standard_ranks(-_bounds(best, metric, quotient)) @ _standard_ranks(values)
    mu, nu = best[:, int(np.argmax(scores))]
    return Fit(float(mu), float(nu))


def chance_correlations(metric: np.ndarray, quotient: np.ndarray, orders: int, seed: int = 0) -> np.ndarray:
    """(orders,): the Spearman correlations that the fit reaches with values in a random order, its rows at most SAMPLE.

    metric, quotient: as of `fit_trade_off`.
    """
    rng = np.random.default_rng(seed)
    ranks = _standard_ranks(-_bounds(_grid(metric, quotient), metric, quotient))  # (k, n)
    drawn = _standard_ranks(rng.random((orders, len(metric))))
    return np.asarray((ranks @ drawn.T).max(axis=0))


def _grid(metric: np.ndarray, quotient: np.ndarray) -> np.ndarray:
    """(2, k): mu and nu of every point that is tried."""
    points = []
    for root in np.quantile(metric, np.linspace(0, 1, LEVELS)):
        penalty = (metric**2 - root**2) ** 2
        unit = np.median(quotient) / max(float(np.median(penalty)), np.finfo(float).tiny)
        mus = unit * 10.0 ** np.linspace(*LOG10_MU, LEVELS)
        points.append(np.stack([mus, np.full(LEVELS, root**2)]))
    return np.concatenate(points, axis=1)


def _bounds(grid: np.ndarray, metric: np.ndarray, quotient: np.ndarray) -> np.ndarray:
    """(k, n): the bound of every row at every point of a grid (2, k)."""
    mu, nu = grid[:, :, None]
    return np.asarray(quotient + mu * (metric**2 - nu) ** 2)


def _standard_ranks(values: np.ndarray) -> np.ndarray:
    """Ranks along the last axis, centred and of length 1, so that a product is Spearman's correlation; 0 of equals."""
    ranks = rankdata(values, axis=-1)
    ranks -= ranks.mean(axis=-1, keepdims=True)
    norms = np.linalg.norm(ranks, axis=-1, keepdims=True)
    return np.asarray(ranks / np.maximum(norms, np.finfo(float).tiny))
