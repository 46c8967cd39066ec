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

EXPLORATION = 1.0
FIRST_DEVIATION = 0.5  # in normal scores, of a value before any result
FIRST_BASE = -1.5  # a normal score: the lowest of interest while there are few results
LOWEST = 0.2  # how many of the results lie below the values of interest
FEW = 5  # results: with fewer, a quantile or a unit of theirs says little
NEGLIGIBLE = 1e-3  # the weight of a hypothesis that is not asked
# A whole front is to be ranked, not the head of the pool alone: unlike in the setting for one objective, metrics
# count by their ranks more than in proportion, and codes less, unless the results speak for them.
SETTING = KernelSetting(linear=0.8, smooth=2.0, encoding=0.15, counts=0.3)
BY_CODES = replace(SETTING, encoding=0.6, counts=1.2)
HYPOTHESES = (
    SETTING,
    BY_CODES,
    replace(BY_CODES, linear=0.0, smooth=0.0, prior=0.0),  # metrics tell nothing
    replace(SETTING, encoding=0.0, counts=0.0),  # codes tell nothing
)


class FrontSurrogate:
    """A mixture of Gaussian processes over n architectures, and the hypervolume that each may add.

    Args:
        scores: (n, m) normal scores of the metrics. codes: (n, d). See `RankKernel`.
        costs: (n, k) less is better, exact; NaN of a row that is not asked about.
        reference: (k,) the largest costs of interest.
        base: the lowest value of interest, the larger the better; None: what a fifth of the results is expected to be
            below.
        exploration: standard deviations by which a value is taken to deviate.
    """

    def __init__(
        self,
        scores: FloatArray,
        codes: IntArray,
        costs: FloatArray,
        reference: FloatArray,
        base: float | None = None,
        exploration: float = EXPLORATION,
    ) -> None:
        self._surrogate = RankSurrogate(scores, codes, hypotheses=HYPOTHESES)
        self._reference = reference
        self._costs = np.where(np.isfinite(costs).all(axis=1, keepdims=True), costs, np.inf)  # these add nothing
        self._base = base
        self._exploration = exploration

    def gain(self, rows: Sequence[int], losses: Sequence[float | None]) -> FloatArray:
        """(n,) the hypervolume that each architecture is expected to add, in the unit of value times costs.

        Args:
            rows: the architectures evaluated, or in flight, in the order of suggestion.
            losses: of each, the smaller the better; None: not in yet. At least one is known.
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
                deviation = self._exploration * posterior.deviation
                gain += weight * self._gain(scale, posterior.mean, deviation, rows, scale(mean), base)
        return (
            gain if gain.max() > 0 else np.sum([w * p.mean for w, p in zip(weights, posteriors, strict=True)], axis=0)
        )

    def first_gain(self, weights: FloatArray, rows: Sequence[int]) -> FloatArray:
        """(n,) the same before any result, in normal scores. weights: (m,) of the metrics. rows: those in flight."""
        mean = self._surrogate.scores @ weights / max(len(weights), 1)
        scale, deviation = ValueScale(np.zeros(0), np.zeros(0)), np.full(len(mean), FIRST_DEVIATION)
        return self._gain(scale, mean, deviation, rows, mean[list(rows)], FIRST_BASE)

    def _gain(
        self,
        scale: ValueScale,
        mean: FloatArray,
        deviation: FloatArray,
        rows: Sequence[int],
        values: FloatArray,
        base: float,
    ) -> FloatArray:
        """rows, values: what is trained or in flight, and what it is taken to be worth."""
        volumes, levels = level_volumes(self._costs, self._costs[list(rows)], values, base, self._reference)
        possible = np.stack([scale(mean + step * deviation) for step in STEPS])  # (s, n)
        return expected_improvement(possible, volumes, levels)
