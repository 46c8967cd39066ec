"""What training a row of a pool is expected to add to the hypervolume, where all costs are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from archray.searchers.arguments import FloatArray, IntArray
from archray.searchers.pareto.expected_improvement import STEPS, ValueScale, expected_improvement, level_volumes
from archray.searchers.rank_surrogate.metric_scores import result_scores
from archray.searchers.rank_surrogate.rank_kernel import KernelSetting
from archray.searchers.rank_surrogate.rank_surrogate import RankSurrogate, mixture

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
                known_costs = self._costs[list(rows)]
                volumes, levels = level_volumes(self._costs, known_costs, scale(mean), base, self._reference)
                gain += weight * expected_improvement(possible, volumes, levels)
        if gain.max() > 0:
            return gain
        return np.sum([w * p.mean for w, p in zip(weights, posteriors, strict=True)], axis=0)
