"""Rank correlations of few values with intervals, the best of k items, and claims with verdicts.

The intervals of `rank_agreement` are Fisher's, with the standard errors of arctanh tau and arctanh rho of Fieller et
al. 1957 and of Bonett and Wright 2000.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from archray.platform.quantities import Quantity

MIN_POINTS = 3  # minimum points of a correlation: two points always agree or disagree
MIN_POINTS_OF_INTERVAL = 5  # the standard error of tau has n - 4 under the root
Z = 1.959963985  # normal quantile of a 95 % interval
CORRELATION = Quantity("rank correlation", digits=2)

HOLDS, FAILS = "holds", "does not hold"  # verdicts on a claim; a study adds its word for an undecided one


@dataclass(frozen=True)
class Claim:
    """A claim of a paper and its verdict in a run.

    Attributes:
        text: text of the claim.
        measure: description of the measured quantity.
        verdict: HOLDS, FAILS or the study's word for undecided.
        source: section of the paper.
        value, low, high: measured quantity with its 95 % interval; NaN if it could not be computed.
    """

    text: str
    measure: str
    verdict: str
    source: str = ""
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


def best_of(choice: npt.ArrayLike, value: npt.ArrayLike, k: int) -> float:
    """Expected value of the item with the highest choice among k items drawn without replacement from n.

    The item of rank i (0 is best) is the best of C(n - 1 - i, k - 1) of the C(n, k) subsets. Items with equal choice
    count with the mean of their values.

    Args:
        choice: (n,) values by which the best item is selected, such as validation accuracies.
        value: (n,) values of the items, such as test accuracies.
        k: size of the subsets, 1 <= k <= n.
    """
    items = pd.DataFrame({"choice": choice, "value": value}).sort_values("choice", ascending=False)
    n = len(items)
    weights = [math.comb(n - 1 - i, k - 1) for i in range(n)]
    return float(np.average(items.groupby("choice")["value"].transform("mean"), weights=weights))


@dataclass(frozen=True)
class Agreement:
    """A rank correlation with its 95 % interval; NaN if too few values differ."""

    tau: float
    tau_interval: tuple[float, float]
    rho: float
    rho_interval: tuple[float, float]
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 is outside tau's interval."""
        low, high = self.tau_interval
        return low > 0 or high < 0


def rank_agreement(prediction: Sequence[float] | np.ndarray, value: Sequence[float] | np.ndarray) -> Agreement:
    """Computes rank correlations of the finite pairs.

    Args:
        prediction, value: (n,) each.
    """
    x, y = finite_pairs(prediction, value)
    n, nothing = len(x), (math.nan, math.nan)
    tau, rho = kendall(x, y), spearman(x, y)
    if n < MIN_POINTS_OF_INTERVAL or math.isnan(tau):
        return Agreement(tau, nothing, rho, nothing, n)
    of_rho = _interval(rho, math.sqrt((1 + rho**2 / 2) / (n - 3)))
    return Agreement(tau, _interval(tau, math.sqrt(0.437 / (n - 4))), rho, of_rho, n)


def spearman(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Computes Spearman's rho of the finite pairs; NaN without `variation`."""
    from scipy.stats import spearmanr  # half a second

    x, y = finite_pairs(x, y)
    return float(spearmanr(x, y).statistic) if variation(x, y) else math.nan


def kendall(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """Computes Kendall's tau of the finite pairs; NaN without `variation`."""
    from scipy.stats import kendalltau  # half a second

    x, y = finite_pairs(x, y)
    return float(kendalltau(x, y).statistic) if variation(x, y) else math.nan


def pearson(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Computes Pearson's correlation of the finite pairs; NaN without `variation`."""
    x, y = finite_pairs(x, y)
    return float(np.corrcoef(x, y)[0, 1]) if variation(x, y) else math.nan


def finite_pairs(x: npt.ArrayLike, y: npt.ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Returns the pairs in which both values are finite.

    Args:
        x, y: (n,) each.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    finite = np.isfinite(x) & np.isfinite(y)
    return x[finite], y[finite]


def variation(x: np.ndarray, y: np.ndarray) -> bool:
    """Returns whether a correlation of (n,) and (n,) exists: at least MIN_POINTS points, and both sides vary."""
    return bool(len(x) >= MIN_POINTS and np.ptp(x) > 0 and np.ptp(y) > 0)


def middle(draws: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Returns the middle 95 % of a bootstrap's draws; NaN without finite draws."""
    finite = np.asarray(draws)[np.isfinite(draws)]
    low, high = np.quantile(finite, (0.025, 0.975)) if finite.size else (np.nan, np.nan)
    return float(low), float(high)


def _interval(correlation: float, error: float) -> tuple[float, float]:
    """Returns the interval of a correlation. A correlation of +-1, which has no arctanh, is clipped to 1 - 1e-12.

    Args:
        error: standard error of arctanh of the correlation.
    """
    center = math.atanh(max(min(correlation, 1 - 1e-12), -1 + 1e-12))
    return math.tanh(center - Z * error), math.tanh(center + Z * error)
