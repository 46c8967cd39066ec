"""Several metrics and the results of trainings as normal scores of their ranks, with what is missing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from archray.searchers.arguments import FloatArray
from archray.searchers.normal_scores import normal_scores


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


def result_scores(losses: Sequence[float | None]) -> list[float | None]:
    """Losses as normal scores, the best the largest; None stays None."""
    scores = normal_scores(np.array([np.nan if loss is None else -loss for loss in losses]))
    return [None if loss is None else float(score) for loss, score in zip(losses, scores, strict=True)]
