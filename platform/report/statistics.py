"""How well one order agrees with another, with an interval: Kendall's tau and Spearman's rho of few values.

The intervals are Fisher's, with the standard errors of arctanh tau and arctanh rho of Fieller et al. 1957 and of
Bonett and Wright 2000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import kendalltau, spearmanr

FEWEST = 3  # values that a rank correlation needs: two always agree or disagree
FEWEST_FOR_INTERVAL = 5  # the standard error of tau has n - 4 below the root
Z = 1.959963985  # of a 95 % interval


@dataclass(frozen=True)
class Agreement:
    """A rank correlation with its 95 % interval; NaN where too few values differ."""

    tau: float
    tau_interval: tuple[float, float]
    rho: float
    rho_interval: tuple[float, float]
    n: int

    @property
    def told(self) -> bool:
        """Whether tau's interval leaves 0 out."""
        low, high = self.tau_interval
        return low > 0 or high < 0


def rank_agreement(promise: Sequence[float] | np.ndarray, value: Sequence[float] | np.ndarray) -> Agreement:
    """Of the pairs that are finite on both sides. promise, value: (n,) each."""
    x, y = np.asarray(promise, dtype=float), np.asarray(value, dtype=float)
    known = np.isfinite(x) & np.isfinite(y)
    x, y, n = x[known], y[known], int(known.sum())
    nothing = (math.nan, math.nan)
    if n < FEWEST or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Agreement(math.nan, nothing, math.nan, nothing, n)
    tau, rho = float(kendalltau(x, y).statistic), float(spearmanr(x, y).statistic)
    if n < FEWEST_FOR_INTERVAL:
        return Agreement(tau, nothing, rho, nothing, n)
    of_rho = _interval(rho, math.sqrt((1 + rho**2 / 2) / (n - 3)))
    return Agreement(tau, _interval(tau, math.sqrt(0.437 / (n - 4))), rho, of_rho, n)


def _interval(correlation: float, error: float) -> tuple[float, float]:
    """error: the standard error of arctanh of it. Of +-1, which has no arctanh, that of the last float before it."""
    centre = math.atanh(max(min(correlation, 1 - 1e-12), -1 + 1e-12))
    return math.tanh(centre - Z * error), math.tanh(centre + Z * error)
