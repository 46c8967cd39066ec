"""How well estimates of ensembles' performance agree with the truth. Shu 2022, Table 5.6; note E8."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from archray.errors import InvalidInput

SHARE = 0.3  # Agreement-30%


def top_agreement(estimated: npt.ArrayLike, true: npt.ArrayLike, share: float = SHARE) -> float:
    """Agreement-k: the fraction of the truly best `share` that are among the best `share` by the estimate too.

    Both are losses or errors, (ensembles,), the least is best; the first one wins a draw. Of random estimates `share`
    is to be expected. Raises: InvalidInput.
    """
    if not 0 < share <= 1:
        raise InvalidInput(f"expected share in (0, 1], got {share}")
    a, b = _pairs(estimated, true)
    if len(a) == 0:
        return math.nan
    count = max(1, round(share * len(a)))
    best = [set(np.argsort(values, kind="stable")[:count].tolist()) for values in (a, b)]
    return len(best[0] & best[1]) / count


def agreement(estimated: npt.ArrayLike, true: npt.ArrayLike, share: float = SHARE) -> dict[str, float | int]:
    """`spearman`, `pearson`, `agreement` (`top_agreement`), `chance` (its value for random estimates), `count`.

    estimated, true: losses or errors, (ensembles,); pairs of which one is not finite are left out and not counted. A
    correlation is NaN with fewer than three pairs or where all values are one. Raises: InvalidInput.
    """
    from scipy.stats import pearsonr, rankdata

    a, b = _pairs(estimated, true)
    varied = len(a) > 2 and np.ptp(a) > 0 and np.ptp(b) > 0
    count = max(1, round(share * len(a)))
    return {
        "spearman": float(pearsonr(rankdata(a), rankdata(b))[0]) if varied else math.nan,
        "pearson": float(pearsonr(a, b)[0]) if varied else math.nan,
        "agreement": top_agreement(a, b, share),
        "chance": count / len(a) if len(a) else math.nan,
        "count": len(a),
    }


def _pairs(estimated: npt.ArrayLike, true: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The finite pairs."""
    a, b = np.asarray(estimated, dtype=np.float64), np.asarray(true, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise InvalidInput(f"expected an estimate for each true value, got shapes {a.shape} and {b.shape}")
    finite = np.isfinite(a) & np.isfinite(b)
    return a[finite], b[finite]
