"""Ranks as normal scores: what is left of a column when its unit, its scale and its tails are not trusted."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from archray.searchers.arguments import FloatArray


def normal_scores(values: FloatArray) -> FloatArray:
    """(n,) -> (n,) the standard normal's quantiles at the ranks; equal values share one, NaN stays NaN.

    Only their order counts. The largest has the largest score.
    """
    scores = np.full(len(values), np.nan)
    finite = np.isfinite(values)
    if finite.any():
        scores[finite] = ndtri((rankdata(values[finite]) - 0.5) / finite.sum())
    return scores


def metric_scores(columns: FloatArray) -> FloatArray:
    """(n, m) metrics -> (n, m) normal scores, each column by itself.

    A value that is missing, not finite, takes the mean of its row's other scores: what the other metrics make of that
    architecture; and 0, the middle, if it has none.
    """
    if not columns.shape[1]:
        return np.zeros(columns.shape)
    scores = np.stack([normal_scores(column) for column in columns.T], axis=1)
    present = np.isfinite(scores)
    totals = np.where(present, scores, 0.0).sum(axis=1)
    return np.where(present, scores, (totals / np.maximum(present.sum(axis=1), 1))[:, None])
