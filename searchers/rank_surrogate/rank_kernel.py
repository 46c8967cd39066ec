"""The covariance of two architectures' results: by their metrics' ranks, and by the architectures themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from archray.searchers.arguments import FloatArray, IntArray

RANK_LENGTH = 0.35  # of the smooth part, in ranks from 0 to 1, per metric
HEAD = 1.5  # normal scores, a quantile of 0.93: beyond it a ranking is not believed to say more
UNIT = 1.15  # brings the variance of scores cut there back to 1
CODE_DECAY = 2.0  # of the encoding's part: exp(-2) for two architectures that differ everywhere


@dataclass(frozen=True)
class KernelSetting:
    """Variances, in units of the results' normal scores.

    Args:
        offset: of what all results share: those known are no random sample.
        linear: of the metrics' weights about their prior mean, summed over the metrics.
        smooth: of a smooth function of the metrics' ranks.
        encoding: of a function of the architecture's codes.
        noise: of a result about what metrics and codes can say.
        prior: the sum of the metrics' weights before any result: 1 trusts them, all alike; 0 does not.
    """

    offset: float = 2.0
    linear: float = 1.6
    smooth: float = 0.8
    encoding: float = 0.6
    noise: float = 0.15
    prior: float = 1.0


class RankKernel:
    """Kernels of several settings over n architectures.

    k(a, b) = offset + linear z_a . z_b / m + smooth exp(-|u_a - u_b|^2 / (2 l^2 m)) + encoding exp(-2 h(a, b)), with z
    the metrics' normal scores, cut at HEAD, u their ranks in (0, 1), and h the share of the codes in which a and b
    differ. The linear part is what normally distributed weights of the metrics amount to. Its scores are cut because
    good architectures lie among the first tenth of a useful metric, but seldom at its very head, where a search would
    go and stay.

    Args:
        scores: (n, m) normal scores of the metrics. codes: (n, d) categorical. m or d may be 0.
    """

    def __init__(self, scores: FloatArray, codes: IntArray, settings: Sequence[KernelSetting]) -> None:
        self.settings = tuple(settings)
        self.scores = UNIT * np.clip(scores, -HEAD, HEAD)
        self._ranks = ndtr(scores)
        self._squares = (self._ranks**2).sum(axis=1)
        varying = codes[:, (codes != codes[:1]).any(axis=0)]
        self._codes = np.ascontiguousarray(varying.T, dtype=np.int32)  # (d, n)
        metrics, places = scores.shape[1], len(self._codes)
        self._parts = np.array([[s.offset, s.linear, s.smooth, s.encoding] for s in self.settings])  # (s, 4)
        self._decay = np.exp(-CODE_DECAY * np.arange(places + 1) / max(places, 1))
        constant = np.ones(len(scores))
        squares = (self.scores**2).mean(axis=1) if metrics else 0 * constant
        diagonal = np.stack([constant, squares, constant * bool(metrics), constant * bool(places)])  # (4, n)
        self.variance = self._parts @ diagonal
        self.noise = np.array([setting.noise for setting in self.settings])
        consensus = self.scores.mean(axis=1) if metrics else 0 * constant
        self.mean = np.outer([setting.prior for setting in self.settings], consensus)  # (s, n)

    def row(self, row: int) -> FloatArray:
        """(s, n) the covariance of architecture `row` with all."""
        n, metrics = self.scores.shape
        parts = np.zeros((4, n))
        parts[0] = 1.0
        if metrics:
            parts[1] = self.scores @ self.scores[row] / metrics
            distance = self._squares + self._squares[row] - 2 * self._ranks @ self._ranks[row]
            parts[2] = np.exp(-np.maximum(distance, 0.0) / (2 * RANK_LENGTH**2 * metrics))
        if len(self._codes):
            differing = np.zeros(n, dtype=np.int32)
            for place in self._codes:
                differing += place != place[row]
            parts[3] = self._decay[differing]
        return self._parts @ parts
