"""Ranks as normal scores: what is left of a column when its unit, its scale and its tails are not trusted."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from archray.searchers.arguments import FloatArray


def normal_scores(values: FloatArray) -> FloatArray:
    """(n,) -> (n,) the standard normal's quantiles at rank / (n + 1); equal values share one, NaN stays NaN.

    Only their order counts. The largest has the largest score. Among one more than there are: the best of a few results
    is not the best there is.
    """
    scores = np.full(len(values), np.nan)
    finite = np.isfinite(values)
    if finite.any():
        scores[finite] = ndtri(rankdata(values[finite]) / (finite.sum() + 1))
    return scores
