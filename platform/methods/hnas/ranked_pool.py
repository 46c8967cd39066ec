"""The pool as HNAS sees it, and which of its architectures each (mu, nu) selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archray.platform.methods.hnas.hnas_tables import Objective
from archray.searchers.hnas.scored_pool import Pool, objective

_GRID = 144  # points of the plane on either axis: finer than a region that can be seen
_PRUNED = 20_000  # candidates for one row of the plane; of more, the best per bin of M are kept
_BINS = 4096
_BLOCK = 100_000  # values of the objective at a time: they stay in the processor's cache


def rank(pool: Pool, mu: float, nu: float, how: Objective) -> NDArray[np.float64]:
    """The objective of every row of the pool, (n,); lower is better."""
    return objective(pool.kappa, pool.metric, mu, nu, how.penalty, how.epsilon)


@dataclass(frozen=True)
class Plane:
    """Which architecture each (mu, nu) selects.

    Args:
        root_nu: (w,) evenly spaced, in its logarithm if it does not begin at 0; mu: (h,) in its logarithm.
        selected: (h, w) rows of the pool.
    """

    root_nu: NDArray[np.float64]
    mu: NDArray[np.float64]
    selected: NDArray[np.int64]


def plane(pool: Pool, how: Objective) -> Plane:
    """The plane of (mu, sqrt(nu)) over the objective's bounds, by the objective that the search itself used."""
    root_nu = (np.geomspace if how.root_nu_bounds[0] > 0 else np.linspace)(*how.root_nu_bounds, _GRID)
    mu = np.geomspace(*how.mu_bounds, _GRID)
    selected = np.empty((mu.size, root_nu.size), dtype=np.int64)
    for i, weight in enumerate(mu.tolist()):
        rows = _candidates(pool, weight, how)
        kappa, metric = pool.kappa[rows], pool.metric[rows]
        step = max(1, _BLOCK // rows.size)
        for j in range(0, root_nu.size, step):
            nu: Any = root_nu[j : j + step, None] ** 2  # (step, 1): one row of values for each
            values = objective(kappa, metric, weight, nu, how.penalty, how.epsilon)  # (step, rows)
            selected[i, j : j + step] = rows[values.argmin(1)]
    return Plane(root_nu, mu, selected)


def _candidates(pool: Pool, mu: float, how: Objective) -> NDArray[np.int64]:
    """The rows that some nu may select at this mu.

    The row with the lowest kappa/M has at most that plus the largest possible penalty; a row whose kappa/M alone is
    above this is never selected.
    """
    quotient = pool.kappa / (pool.metric + how.epsilon)
    furthest = max(1.0, max(abs(bound) for bound in how.root_nu_bounds) ** 2)  # of M^2 from nu
    rows = np.flatnonzero(quotient <= quotient.min() + mu * furthest ** (2 if how.penalty == "square" else 1))
    if rows.size > _PRUNED:
        by_quotient = rows[np.argsort(quotient[rows], kind="stable")]
        _, first = np.unique((pool.metric[by_quotient] * _BINS).astype(np.int64), return_index=True)
        rows = np.sort(by_quotient[first])
    return rows
