"""Measures of one ensemble, and the agreement of estimates with true scores. Shu 2022, ch. 5; note E8.

Loss, accuracy, PPD, calibration (sections 5.3.4 and 5.5.1); rank correlation, Agreement-30% (Table 5.6). Everywhere
`probabilities` are the members' class probabilities, (members, images, classes), and `labels` (images,): arrays, or
tensors on the CPU. Computed in float64. Accuracies, disagreement and calibration error are fractions; the paper's test
error and ATE are 1 minus the accuracy and the members' average accuracy.
"""

import itertools
import math
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from archray.errors import InvalidInput
from archray.plurals import count

Averaged = Literal["probabilities", "logits"]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FLOOR = float(np.finfo(np.float32).tiny)  # smallest probability, float32's least: a loss of 87.3 instead of inf
BINS = 15  # of the calibration error, as in its paper
SHARE = 0.3  # Agreement-30%
SUM_TOLERANCE = 0.01  # by which an image's probabilities may differ from 1: they may come from half precision


def average(probabilities: npt.ArrayLike, how: Averaged = "probabilities") -> Floats:
    """Computes the ensemble's probabilities, (images, classes).

    Args:
        how: The mean of the members' probabilities, or the softmax of the mean of their logits, which is the normalized
            geometric mean of their probabilities.

    Raises: InvalidInput.
    """
    p = _checked(probabilities)
    if check_averaged(how) == "probabilities":
        mean: Floats = p.mean(axis=0)
    else:
        z = np.log(np.maximum(p, FLOOR)).mean(axis=0)  # logits up to a constant for each image
        mean = np.exp(z - z.max(axis=1, keepdims=True))
    return mean / mean.sum(axis=1, keepdims=True)


def ensemble_loss(probabilities: npt.ArrayLike, labels: npt.ArrayLike, how: Averaged = "probabilities") -> float:
    """Computes the negative log-likelihood of the average, mean over images, in nats. Raises: InvalidInput."""
    p = average(probabilities, how)
    return float(_losses(p[None], check_labels(labels, *p.shape))[0])


def ensemble_accuracy(probabilities: npt.ArrayLike, labels: npt.ArrayLike, how: Averaged = "probabilities") -> float:
    """Computes the fraction of images whose class the average predicts. Raises: InvalidInput."""
    p = average(probabilities, how)
    return float((p.argmax(axis=1) == check_labels(labels, *p.shape)).mean())


def member_losses(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Floats:
    """Computes the negative log-likelihood of each member, (members,). Raises: InvalidInput."""
    p = _checked(probabilities)
    return _losses(p, check_labels(labels, *p.shape[1:]))


def member_accuracies(probabilities: npt.ArrayLike, labels: npt.ArrayLike) -> Floats:
    """Computes the accuracy of each member, (members,); on test images the mean is 1 - ATE. Raises: InvalidInput."""
    p = _checked(probabilities)
    return (p.argmax(axis=2) == check_labels(labels, *p.shape[1:])).mean(axis=1)


def disagreement(classes: npt.ArrayLike) -> float:
    """Computes PPD: the fraction of images on which two members' classes differ, mean over pairs.

    It is NaN for a single member. classes: (members, images), predicted. Fort et al. 2019; note E8.
    """
    rows = np.asarray(classes)
    if rows.ndim != 2 or 0 in rows.shape:
        raise InvalidInput(f"expected classes of shape (members, images), got {rows.shape}")
    pairs = [int(np.count_nonzero(a != b)) for a, b in itertools.combinations(rows, 2)]
    return sum(pairs) / len(pairs) / rows.shape[1] if pairs else math.nan


def calibration_error(probabilities: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> float:
    """Computes the expected calibration error of one prediction, in [0, 1]. Guo et al. 2017, Eq. 3.

    The images fall into `bins` intervals ((m - 1) / bins, m / bins] of confidence, the probability of the predicted
    class. The result is the sum over intervals of the share of images times |accuracy - mean confidence|.

    Args:
        probabilities: (images, classes), of an average or of one member.

    Raises: InvalidInput.
    """
    if bins < 1:
        raise InvalidInput(f"expected 1 or more bins, got {bins}")
    p = _checked(np.asarray(probabilities)[None])[0]
    right = p.argmax(axis=1) == check_labels(labels, *p.shape)
    confidence = np.minimum(p.max(axis=1), 1.0)
    interval = np.ceil(confidence * bins).astype(int) - 1  # 0 .. bins - 1
    gaps = np.bincount(interval, weights=right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))


def measure_ensemble(
    probabilities: npt.ArrayLike, labels: npt.ArrayLike, how: Averaged = "probabilities"
) -> dict[str, Any]:
    """Computes all measures of one ensemble, as plain data for JSON.

    `loss`, `accuracy`, `calibration_error`: of the average; `average_accuracy`: mean of the members' accuracies;
    `disagreement`: PPD, None for a single member; `member_losses`, `member_accuracies`,
    `member_calibration_errors`: lists in the members' order. Raises: InvalidInput.
    """
    p = _checked(probabilities)
    averaged, alone, apart = average(p, how), member_accuracies(p, labels), disagreement(p.argmax(axis=2))
    return {
        "loss": ensemble_loss(p, labels, how),
        "accuracy": ensemble_accuracy(p, labels, how),
        "average_accuracy": float(alone.mean()),
        "disagreement": None if math.isnan(apart) else apart,
        "calibration_error": calibration_error(averaged, labels),
        "member_losses": member_losses(p, labels).tolist(),
        "member_accuracies": alone.tolist(),
        "member_calibration_errors": [calibration_error(member, labels) for member in p],
    }


def top_agreement(estimated: npt.ArrayLike, true: npt.ArrayLike, share: float = SHARE) -> float:
    """Computes Agreement-k: the fraction of the truly best `share` that are also in the best `share` by the estimate.

    Both are scores, (ensembles,); larger is better (negate losses); the first one wins a tie. Random estimates have
    `share` on average. Raises: InvalidInput.
    """
    if not 0 < share <= 1:
        raise InvalidInput(f"expected a share in (0, 1], got {share}")
    a, b = _pairs(estimated, true)
    if len(a) == 0:
        return math.nan
    count = max(1, round(share * len(a)))
    best = [set(np.argsort(-values, kind="stable")[:count].tolist()) for values in (a, b)]
    return len(best[0] & best[1]) / count


def agreement(estimated: npt.ArrayLike, true: npt.ArrayLike, share: float = SHARE) -> dict[str, float | int]:
    """Computes `spearman`, `pearson`, `agreement` (`top_agreement`), `chance` (its random value) and `count`.

    estimated, true: scores, (ensembles,); larger is better. Pairs with an infinite or NaN value are left out and not
    counted. A correlation is NaN with fewer than three pairs or if all values are equal. Raises: InvalidInput.
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


def check_averaged(how: str) -> str:
    """Raises: InvalidInput unless `how` is probabilities or logits."""
    if how not in get_args(Averaged):
        raise InvalidInput(f"expected probabilities or logits to average, got {how!r}")
    return how


def check_labels(labels: npt.ArrayLike, images: int, classes: int) -> Integers:
    """Returns the labels of this number of images. Raises: InvalidInput."""
    y = np.asarray(labels)
    if y.shape != (images,) or y.dtype.kind not in "ui" or y.min() < 0 or y.max() >= classes:
        raise InvalidInput(
            f"expected {count(images, 'label')}, integers 0..{classes - 1}, one per row of probabilities, "
            f"got {y.dtype} of shape {y.shape}"
        )
    return y.astype(np.int64)


def _checked(probabilities: npt.ArrayLike) -> Floats:
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 3 or 0 in p.shape:
        raise InvalidInput(f"expected probabilities of shape (members, images, classes), got {p.shape}")
    # NaN fails both comparisons
    if not (p.min() >= 0 and np.abs(p.sum(axis=2) - 1).max() <= SUM_TOLERANCE):
        raise InvalidInput("expected non-negative probabilities with sum 1 over the classes, got other numbers")
    return p


def _losses(p: Floats, labels: Integers) -> Floats:
    """(members, images, classes), (images,) -> (members,)."""
    of_label = p[:, np.arange(len(labels)), labels]  # (members, images)
    return -np.log(np.maximum(of_label, FLOOR)).mean(axis=1)


def _pairs(estimated: npt.ArrayLike, true: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Returns the finite pairs."""
    a, b = np.asarray(estimated, dtype=np.float64), np.asarray(true, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise InvalidInput(f"expected an estimate for each true value, got shapes {a.shape} and {b.shape}")
    finite = np.isfinite(a) & np.isfinite(b)
    return a[finite], b[finite]
