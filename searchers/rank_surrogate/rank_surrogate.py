"""What several metrics and an architecture's own codes say about results not known yet, and what to evaluate next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from archray.searchers.arguments import FloatArray, IntArray
from archray.searchers.rank_surrogate.gaussian_process import PoolProcess, Posterior
from archray.searchers.rank_surrogate.metric_scores import result_scores
from archray.searchers.rank_surrogate.rank_kernel import KernelSetting, RankKernel

KAPPA = 2.0  # deviations above the mean; at 0.5 a search stayed where it began


class RankSurrogate:
    """A mixture of Gaussian processes over n architectures, one for each hypothesis of a setting of the kernel.

    Args:
        scores: (n, m) normal scores of the metrics. codes: (n, d). See `RankKernel`.
        kappa: of the upper confidence bound.
        hypotheses: None: those of `setting`.
    """

    def __init__(
        self,
        scores: FloatArray,
        codes: IntArray,
        setting: KernelSetting | None = None,
        kappa: float = KAPPA,
        hypotheses: Sequence[KernelSetting] | None = None,
    ) -> None:
        self._hypotheses = tuple(hypotheses or (setting or KernelSetting()).hypotheses)
        self.kappa = kappa
        self._kernel = kernel = RankKernel(scores, codes)
        self.scores = kernel.scores  # as the linear part sees them
        self._processes = [
            PoolProcess(
                partial(kernel.row, setting=hypothesis),
                kernel.variance(hypothesis),
                kernel.mean(hypothesis),
                hypothesis.noise,
            )
            for hypothesis in self._hypotheses
        ]

    def promise(self, rows: Sequence[int], losses: Sequence[float | None]) -> FloatArray:
        """(n,) what each architecture's result may come to: its upper confidence bound, in normal scores.

        Each process counts by how well it explains the results.

        Args:
            rows: the architectures evaluated, or in flight, in the order of suggestion.
            losses: of each, the smaller the better; None: not in yet.
        """
        posteriors = self.posteriors(rows, result_scores(losses))
        bounds = np.stack([posterior.mean + self.kappa * posterior.deviation for posterior in posteriors])
        return mixture([posterior.evidence for posterior in posteriors]) @ bounds

    def metric_weights(self, rows: Sequence[int], losses: Sequence[float]) -> FloatArray:
        """(m,) the weight of each metric's normal score in what is expected, after these results."""
        kernel, observed, targets = self._kernel, list(rows), result_scores(losses)
        scores, metrics = kernel.scores[observed], kernel.scores.shape[1]
        weights = []
        for hypothesis in self._hypotheses:
            covariance = np.array([kernel.row(row, hypothesis)[observed] for row in observed]).reshape(2 * [len(rows)])
            noisy = covariance + hypothesis.noise * np.eye(len(rows))
            solved = np.linalg.solve(noisy, np.array(targets) - kernel.mean(hypothesis)[observed])
            weights.append((hypothesis.prior + hypothesis.linear * scores.T @ solved) / max(metrics, 1))
        evidence = [posterior.evidence for posterior in self.posteriors(observed, targets)]
        return mixture(evidence) @ np.array(weights)

    def posteriors(self, rows: Sequence[int], targets: Sequence[float | None]) -> list[Posterior]:
        """What each hypothesis expects of all architectures, in normal scores; `mixture` weighs them by evidence.

        rows: as of `promise`. targets: the normal scores of their results; None: not in yet.
        """
        for process in self._processes:
            process.observe(rows)
        return [process.posterior(targets) for process in self._processes]


def mixture(evidence: Sequence[float]) -> FloatArray:
    """(s,) the posterior probability of each hypothesis, equal before: softmax of the log evidence."""
    weights = np.exp(np.array(evidence) - max(evidence))
    return weights / weights.sum()
