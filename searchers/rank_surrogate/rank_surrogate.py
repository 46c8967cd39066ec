"""What several metrics and an architecture's own codes say about results not known yet, and what to evaluate next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from archray.searchers.arguments import FloatArray, IntArray
from archray.searchers.rank_surrogate.gaussian_process import PoolProcess
from archray.searchers.rank_surrogate.rank_kernel import KernelSetting, RankKernel

SETTINGS = (KernelSetting(),)
KAPPA = 2.0  # deviations above the mean; at 0.5 a search stayed where it began


class RankSurrogate:
    """A mixture of Gaussian processes over n architectures, one for each setting of the kernel.

    Args:
        scores: (n, m) normal scores of the metrics. codes: (n, d). See `RankKernel`.
        kappa: of the upper confidence bound.
    """

    def __init__(
        self,
        scores: FloatArray,
        codes: IntArray,
        settings: Sequence[KernelSetting] = SETTINGS,
        kappa: float = KAPPA,
    ) -> None:
        self.kappa = kappa
        self._kernel = RankKernel(scores, codes, settings)
        self.scores = self._kernel.scores  # as the linear part sees them
        self._process = PoolProcess(self._kernel.row, self._kernel.variance, self._kernel.mean, self._kernel.noise)

    def promise(self, rows: Sequence[int], losses: Sequence[float | None]) -> FloatArray:
        """(n,) what each architecture's result may come to: its upper confidence bound, in normal scores.

        Each process counts by how well it explains the results.

        Args:
            rows: the architectures evaluated, or in flight, in the order of suggestion.
            losses: of each, the smaller the better; None: not in yet.
        """
        self._process.observe(rows)
        posterior = self._process.posterior(result_scores(losses))
        return mixture(posterior.evidence) @ (posterior.mean + self.kappa * posterior.deviation)

    def metric_weights(self, rows: Sequence[int], losses: Sequence[float]) -> FloatArray:
        """(m,) the weight of each metric's normal score in what is expected, after these results; before: 1/m each."""
        kernel, observed = self._kernel, list(rows)
        scores, metrics = kernel.scores[observed], kernel.scores.shape[1]
        if not metrics:
            return np.zeros(0)
        if not observed:
            return np.mean([setting.prior for setting in kernel.settings]) * np.ones(metrics) / metrics
        covariances = np.stack([kernel.row(row)[:, observed] for row in observed], axis=1)  # (s, t, t)
        self._process.observe(observed)
        targets = result_scores(losses)
        evidence = self._process.posterior(targets).evidence
        weights = []
        for place, setting in enumerate(kernel.settings):
            noisy = covariances[place] + setting.noise * np.eye(len(observed))
            solved = np.linalg.solve(noisy, np.array(targets) - kernel.mean[place, observed])
            weights.append((setting.prior + setting.linear * scores.T @ solved) / metrics)
        return mixture(evidence) @ np.array(weights)


def result_scores(losses: Sequence[float | None]) -> list[float | None]:
    """Losses as the normal scores of their ranks among t + 1, the best the largest; None stays None.

    Among one more than there are: the best of a few results is not the best there is.
    """
    values = [-loss for loss in losses if loss is not None]
    scores = iter(ndtri(rankdata(values) / (len(values) + 1)) if values else ())
    return [None if loss is None else float(next(scores)) for loss in losses]


def mixture(evidence: FloatArray) -> FloatArray:
    """(s,) the posterior probability of each setting, equal before: softmax of the log evidence."""
    weights = np.exp(evidence - evidence.max())
    return weights / weights.sum()
