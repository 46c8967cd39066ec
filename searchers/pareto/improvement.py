"""The hypervolume that training a row of a pool is expected to add, with exact costs. Emmerich et al. 2006."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import qmc

from archray.searchers.arguments import FloatArray, IntArray
from archray.searchers.rank_surrogate.surrogate import KernelSetting, RankSurrogate, mixture, result_scores

SAMPLES = 512  # places in the space of two costs or more; one cost is exact
# Three equally likely values with the mean and the variance of a normal one.
STEPS = np.array([-np.sqrt(1.5), 0.0, np.sqrt(1.5)])
STEEPEST = 4  # the top one in four results says how values go on above the best


def level_volumes(
    costs: FloatArray, result_costs: FloatArray, result_values: FloatArray, base: float, reference: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """How much room a row has over each level of what is known.

    Args:
        costs: (n, k) of every row. known_costs: (m, k). known_values: (m,) the larger the better.
        base: the lowest value of interest. reference: (k,) the largest costs of interest.

    Returns: (n, l) volumes and (l,) levels: of all costs between a row's own and the reference, the volume of those at
    which the best that is known and costs no more has this value. Two costs or more by a Sobol sequence.
    """
    values = np.maximum(result_values, base)
    if costs.shape[1] == 1:
        return _one_cost(costs[:, 0], result_costs[:, 0], values, base, float(reference[0]))
    low = np.minimum(costs.min(axis=0), reference)
    unit = qmc.Sobol(costs.shape[1], scramble=False).random(SAMPLES)
    places = low + unit * (reference - low)  # (s, k)
    covered = (result_costs[None] <= places[:, None]).all(axis=2)  # (s, m)
    best = np.where(covered, values, base).max(axis=1, initial=base)  # (s,)
    levels, positions = np.unique(best, return_inverse=True)
    within = np.ones((len(costs), SAMPLES), dtype=bool)
    for column, at in zip(costs.T, places.T, strict=True):
        within &= column[:, None] <= at[None]
    volumes = np.stack([within[:, positions == level].sum(axis=1) for level in range(len(levels))], axis=1)
    return volumes * float(np.prod(reference - low)) / SAMPLES, levels


def _one_cost(
    costs: FloatArray, result_costs: FloatArray, values: FloatArray, base: float, reference: float
) -> tuple[FloatArray, FloatArray]:
    order = np.lexsort((-values, result_costs))
    best = np.maximum.accumulate(np.append(base, values[order]))  # (m + 1,): before each, and after the last
    rises = np.append(True, best[1:] > best[:-1])
    starts = np.append(-np.inf, result_costs[order])[rises]
    ends = np.append(starts[1:], reference)
    volumes = ends[None] - np.maximum(costs[:, None], starts[None])
    return np.clip(volumes, 0.0, None), best[rises]


def expected_improvement(possible: FloatArray, volumes: FloatArray, levels: FloatArray) -> FloatArray:
    """(n,) hypervolume added on average: Emmerich et al. 2006 with exact costs, a sum over the levels of the front.

    possible: (s, n) equally likely values. volumes: (n, l). levels: (l,)."""
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


# Surrogate

FIRST_BASE = -1.5  # a normal score: the lowest of interest while there are few results
LOWEST = 0.1  # how many of the results lie below the values of interest
FEW = 5  # results: with fewer, a quantile or a unit of theirs says little
NEGLIGIBLE = 1e-3  # the weight of a hypothesis that is not asked
# A whole front is to be ranked, not the head of the pool alone: unlike in the setting for one objective, metrics
# count by their ranks more than in proportion, codes less, unless the results speak for them, and results more.
SETTING = KernelSetting(linear=0.8, smooth=1.0, encoding=0.15, counts=0.3, noise=0.03)
BY_CODES = replace(SETTING, encoding=0.6, counts=1.2)
HYPOTHESES = (SETTING, BY_CODES, replace(BY_CODES, linear=0.0, smooth=0.0, prior=0.0))  # the last: metrics tell nothing


class FrontSurrogate:
    """A mixture of Gaussian processes over n architectures, and the hypervolume that each may add.

    Args:
        scores: (n, m) normal scores of the metrics. codes: (n, d). See `RankKernel`.
        costs: (n, k) less is better, exact; NaN of a row that is not asked about.
        reference: (k,) the largest costs of interest.
        base: the lowest value of interest, the larger the better; None: what a tenth of the results is expected to be
            below.
    """

    def __init__(
        self,
        scores: FloatArray,
        codes: IntArray,
        costs: FloatArray,
        reference: FloatArray,
        base: float | None = None,
    ) -> None:
        self._surrogate = RankSurrogate(scores, codes, hypotheses=HYPOTHESES)
        self._reference = reference
        self._costs = np.where(np.isfinite(costs).all(axis=1, keepdims=True), costs, np.inf)  # these add nothing
        self._base = base

    def gain(self, rows: Sequence[int], losses: Sequence[float | None], exploration: float = 1.0) -> FloatArray:
        """(n,) the hypervolume that each architecture is expected to add, in the unit of value times costs.

        Args:
            rows: the architectures evaluated, or in flight, in the order of suggestion.
            losses: of each, the smaller the better; None: not in yet. At least one is known.
            exploration: standard deviations by which a value is taken to deviate.
        """
        targets = result_scores(losses)
        known = [
            (score, -loss)
            for score, loss in zip(targets, losses, strict=True)
            if score is not None and loss is not None
        ]
        few = len(known) < FEW
        scale = ValueScale(*np.array([] if few else known).reshape(-1, 2).T)
        posteriors = self._surrogate.posteriors(rows, targets)
        weights = mixture([posterior.evidence for posterior in posteriors])
        means = [posterior.mean[list(rows)] for posterior in posteriors]
        lowest = FIRST_BASE if few else float(np.quantile(np.concatenate(means), LOWEST))
        base = float(scale(np.array(lowest))) if self._base is None or few else self._base
        gain = np.zeros(len(self._costs))
        for weight, posterior, mean in zip(weights, posteriors, means, strict=True):
            if weight > NEGLIGIBLE:
                possible = scale(posterior.mean + exploration * STEPS[:, None] * posterior.deviation)  # (s, n)
                result_costs = self._costs[list(rows)]
                volumes, levels = level_volumes(self._costs, result_costs, scale(mean), base, self._reference)
                gain += weight * expected_improvement(possible, volumes, levels)
        if gain.max() > 0:
            return gain
        return np.sum([w * p.mean for w, p in zip(weights, posteriors, strict=True)], axis=0)
