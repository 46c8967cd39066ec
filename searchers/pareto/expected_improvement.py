"""The hypervolume that a row of a pool is expected to add, its costs known exactly and its value uncertain.

With exact costs the expected hypervolume improvement of Emmerich et al. 2006 is a sum over the levels of the front so
far: at each cost that the row does not exceed, by how much its value surpasses the best known there.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import qmc

from archray.searchers.arguments import FloatArray

SAMPLES = 512  # places in the space of two costs or more; one cost is exact
# Three equally likely values with the mean and the variance of a normal one.
STEPS = np.array([-np.sqrt(1.5), 0.0, np.sqrt(1.5)])
STEEPEST = 4  # the top one in four results says how values go on above the best


def level_volumes(
    costs: FloatArray, known_costs: FloatArray, known_values: FloatArray, base: float, reference: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """How much room a row has over each level of what is known.

    Args:
        costs: (n, k) of every row. known_costs: (m, k). known_values: (m,) the larger the better.
        base: the lowest value of interest. reference: (k,) the largest costs of interest.

    Returns: (n, l) volumes and (l,) levels: of all costs between a row's own and the reference, the volume of those at
    which the best that is known and costs no more has this value. Two costs or more by a Sobol sequence.
    """
    values = np.maximum(known_values, base)
    if costs.shape[1] == 1:
        return _one_cost(costs[:, 0], known_costs[:, 0], values, base, float(reference[0]))
    low = np.minimum(costs.min(axis=0), reference)
    unit = qmc.Sobol(costs.shape[1], scramble=False).random(SAMPLES)
    places = low + unit * (reference - low)  # (s, k)
    covered = (known_costs[None] <= places[:, None]).all(axis=2)  # (s, m)
    best = np.where(covered, values, base).max(axis=1, initial=base)  # (s,)
    levels, which = np.unique(best, return_inverse=True)
    within = np.ones((len(costs), SAMPLES), dtype=bool)
    for own, at in zip(costs.T, places.T, strict=True):
        within &= own[:, None] <= at[None]
    volumes = np.stack([within[:, which == level].sum(axis=1) for level in range(len(levels))], axis=1)
    return volumes * float(np.prod(reference - low)) / SAMPLES, levels


def _one_cost(
    costs: FloatArray, known_costs: FloatArray, values: FloatArray, base: float, reference: float
) -> tuple[FloatArray, FloatArray]:
    order = np.lexsort((-values, known_costs))
    best = np.maximum.accumulate(np.append(base, values[order]))  # (m + 1,): before each, and after the last
    rises = np.append(True, best[1:] > best[:-1])
    starts = np.append(-np.inf, known_costs[order])[rises]
    ends = np.append(starts[1:], reference)
    volumes = ends[None] - np.maximum(costs[:, None], starts[None])
    return np.clip(volumes, 0.0, None), best[rises]


def expected_improvement(possible: FloatArray, volumes: FloatArray, levels: FloatArray) -> FloatArray:
    """(n,) hypervolume added on average. possible: (s, n) equally likely values. volumes: (n, l). levels: (l,)."""
    gain = np.zeros(possible.shape[1])
    for level, volume in zip(levels, volumes.T, strict=True):
        gain += volume * np.maximum(possible - level, 0.0).mean(axis=0)
    return gain


class ValueScale:
    """From normal scores of results to their values, as far as the results so far say.

    Straight between them, as high as the lowest below it, and above the best as steep as among the top quarter. Without
    two different results, the scores themselves.

    Args:
        scores: (t,) of the results. values: (t,) the larger the better.
    """

    def __init__(self, scores: FloatArray, values: FloatArray) -> None:
        self._scores, first = np.unique(scores, return_index=True)
        self._values = values[first]
        self._slope = 0.0
        if len(self._scores) > 1:
            back = min(len(self._scores) - 1, max(2, len(self._scores) // STEEPEST))
            rise, run = self._values[-1] - self._values[-1 - back], self._scores[-1] - self._scores[-1 - back]
            self._slope = float(rise / run)

    def __call__(self, scores: FloatArray) -> FloatArray:
        if len(self._scores) < 2:
            return scores
        above = np.maximum(scores - self._scores[-1], 0.0)
        return np.interp(scores, self._scores, self._values) + self._slope * above
