"""How many validation points suffice for so many architecture parameters, with intervals over seeds. NumPy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 1000  # of the bootstrap
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Interval(NamedTuple):
    """A value and the middle 90 % of it over resampled seeds; infinite where the tolerance is never met."""

    value: float
    low: float
    high: float


def crossing(sizes: Sequence[int], excess: Sequence[float] | Array, tolerance: float) -> float:
    """The size from which on a curve stays at or below the tolerance: between sizes, by its line in log and log.

    The smallest size where it does so everywhere, infinity where it is above it at the largest.
    """
    above = [place for place, value in enumerate(excess) if not value <= tolerance]
    if not above:
        return float(sizes[0])
    last = above[-1]
    if last == len(sizes) - 1:
        return math.inf
    high, low = math.log(excess[last]), math.log(max(excess[last + 1], tolerance * 1e-3))
    share = (high - math.log(tolerance)) / (high - low)
    return math.exp(math.log(sizes[last]) + share * math.log(sizes[last + 1] / sizes[last]))


def points_needed(sizes: Sequence[int], excess: Array, tolerance: float, seed: int = 0) -> Interval:
    """Where the median over seeds of the excess, (seeds, sizes), has come within the tolerance, and stays."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(excess), size=(RESAMPLES, len(excess)))
    values = [crossing(sizes, np.median(excess[chosen], axis=0), tolerance) for chosen in drawn]
    return _interval(crossing(sizes, np.median(excess, axis=0), tolerance), values)


def growth(sizes: Sequence[int], excess: Mapping[int, Array], tolerance: float, seed: int = 0) -> Interval:
    """The exponent b of points = c h^b, by least squares in log and log, over the numbers h of parameters.

    excess: by h, (seeds, sizes). Numbers h at which the tolerance is never met, or met at the smallest size, say only
    a bound and are left out; NaN with fewer than two others. The theory has b <= 1 up to logarithms.
    """
    rng = np.random.default_rng(seed)
    value = _slope(sizes, excess, tolerance)
    resampled = []
    for _ in range(RESAMPLES // 2):
        drawn = {h: of[rng.integers(len(of), size=len(of))] for h, of in excess.items()}
        resampled.append(_slope(sizes, drawn, tolerance))
    return _interval(value, [one for one in resampled if not math.isnan(one)])


def _slope(sizes: Sequence[int], excess: Mapping[int, Array], tolerance: float) -> float:
    pairs = [(h, crossing(sizes, np.median(of, axis=0), tolerance)) for h, of in excess.items()]
    known = [(math.log(h), math.log(points)) for h, points in pairs if sizes[0] < points < math.inf]
    if len(known) < 2:
        return math.nan
    x, y = np.array(known).T
    return float(np.polyfit(x, y, 1)[0])


def decay(sizes: Sequence[float], values: Array, seed: int = 0) -> Interval:
    """The exponent b of value = c points^b of the mean over seeds, values (seeds, sizes); concentration has -1/2."""
    rng = np.random.default_rng(seed)

    def exponent(rows: Array) -> float:
        return float(np.polyfit(np.log(sizes), np.log(rows.mean(0)), 1)[0])

    drawn = rng.integers(len(values), size=(RESAMPLES, len(values)))
    return _interval(exponent(values), [exponent(values[chosen]) for chosen in drawn])


def _interval(value: float, resampled: Sequence[float]) -> Interval:
    if not resampled:
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(np.array(resampled), [0.05, 0.95], method="nearest")
    return Interval(value, float(low), float(high))
