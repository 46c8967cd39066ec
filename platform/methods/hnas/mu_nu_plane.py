"""Which architecture of the pool each (mu, nu) selects. Shu 2022, Eq. 7.7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archray.platform.methods.hnas.hnas_tables import Objective
from archray.platform.methods.hnas.penalty_share import PenaltyScale
from archray.searchers.hnas.objective import Pool, distance, objective

ODDS = (0.01, 100.0)  # of the penalty, that a plane has at least: a share from 1 % to 99 %, the default of the search
_GRID = 144  # points of the plane on either axis: finer than a region that can be seen


@dataclass(frozen=True)
class Plane:
    """Which architecture each (mu, nu) selects."""

    root_nu: NDArray[np.float64]  # (w,) evenly spaced, in its logarithm if it does not begin at 0
    odds: NDArray[np.float64]  # (h,) of the penalty, evenly spaced in their logarithm; see `PenaltyScale`
    mu: NDArray[np.float64]  # (h, w) that have these odds at each nu
    selected: NDArray[np.int64]  # (h, w) rows of the pool


def plane(pool: Pool, how: Objective, odds: tuple[float, float] = ODDS) -> Plane:
    """The plane of (odds, sqrt(nu)) over the bounds of both, by the objective that the search itself used."""
    root_nu = (np.geomspace if how.root_nu_bounds[0] > 0 else np.linspace)(*how.root_nu_bounds, _GRID)
    scale, rising = PenaltyScale(pool, how), np.geomspace(*odds, _GRID)
    mu = rising[:, None] * np.array([scale.unit(root**2) for root in root_nu.tolist()])  # (h, w)
    selected = np.empty(mu.shape, dtype=np.int64)
    quotient = pool.kappa / (pool.metric + how.epsilon)
    rising_quotient = np.argsort(quotient, kind="stable")
    for j, root in enumerate(root_nu.tolist()):
        far = distance(pool.metric[rising_quotient], root**2, how.penalty)
        nearest = np.minimum.accumulate(np.concatenate([[np.inf], far[:-1]]))
        rows = rising_quotient[far < nearest]  # no other row has both a smaller kappa/M and a smaller penalty
        weights: Any = mu[:, j, None]
        values = objective(pool.kappa[rows], pool.metric[rows], weights, root**2, how.penalty, how.epsilon)  # (h, rows)
        selected[:, j] = rows[values.argmin(1)]
    return Plane(root_nu, rising, mu, selected)
