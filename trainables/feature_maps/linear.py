"""Losses of decision values, and the linear models that scikit-learn fits: hinge, log, and ridge if sparse. Note W7.

Objectives are lam ||w||^2 + summed loss, so that C = 1 / (2 lam).
"""

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC
from torch import Tensor
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.feature_maps.features import blocks, ridge_memory
from archray.trainables.feature_maps.ridge import BlasGram, LinearModel, SolveFailed
from archray.trainables.feature_maps.solve_settings import Loss

Matrix: TypeAlias = npt.NDArray[np.float64] | csr_matrix

CLIP = 1.0  # of decision values, the size of the targets: beyond it a loss has no bound
SPARSE_ROWS = 1024  # of a Gram matrix of sparse features, computed at once
TOLERANCE = 1e-8  # of scikit-learn's conjugate gradients
MAX_ITERATIONS = 10_000  # of liblinear and L-BFGS: their default of 1,000 and 100 warns on small alphas of SIF weights


def signs(labels: Tensor, classes: int) -> Tensor:
    """Targets of one class against the rest: (n, K) float64, +1 for a point's class and -1 for the others."""
    return F.one_hot(labels, classes).double().mul_(2).sub_(1)


def point_losses(decisions: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    """The loss of each point, summed over one-against-rest problems for ridge (square) and svm (hinge).

    decisions: (n, K). labels: (n,). Returns: (n,) float64; logistic in nats.
    """
    decisions = decisions.double()
    if loss == "logistic":
        return F.cross_entropy(decisions, labels, reduction="none")
    targets = signs(labels, decisions.shape[1])
    if loss == "ridge":
        return (decisions - targets).square().sum(1)
    return (1 - decisions * targets).clamp_(min=0).sum(1)


def clipped(decisions: Tensor) -> Tensor:
    """Decision values no further from 0 than the targets are: only so are the losses bounded, see `loss_bound`."""
    return decisions.clamp(-CLIP, CLIP)


def loss_bound(loss: Loss, classes: int) -> float:
    """B: the largest that a point's loss can be whose decision values are `clipped`."""
    if loss == "logistic":
        return math.log1p((classes - 1) * math.exp(2 * CLIP))
    return classes * (2 * CLIP if loss == "svm" else (2 * CLIP) ** 2)


def point_hits(decisions: Tensor, labels: Tensor) -> Tensor:
    """(n,) float64: 1 where the largest decision value is the label's."""
    finite = torch.isfinite(decisions).all(1)
    return ((decisions.argmax(1) == labels) & finite).double()


def fit_svm(features: Matrix, labels: npt.NDArray[np.int64], classes: int, lam: float, seed: int) -> LinearModel:
    """Hinge loss, each class against the rest, by liblinear's dual coordinate descent.

    features: (n, d). labels: (n,). seed: of the order of coordinates. Raises: InvalidInput for a class without points.
    """
    _check(features, labels, classes)
    model = LinearSVC(loss="hinge", C=1 / (2 * lam), dual=True, random_state=seed % 2**32, max_iter=MAX_ITERATIONS)
    return _linear(model.fit(features, labels), classes)


def fit_logistic(features: Matrix, labels: npt.NDArray[np.int64], classes: int, lam: float) -> LinearModel:
    """Log loss over all classes, by L-BFGS. Raises: InvalidInput for a class without points."""
    _check(features, labels, classes)
    model = _linear(LogisticRegression(C=1 / (2 * lam), max_iter=MAX_ITERATIONS).fit(features, labels), classes)
    # Of two classes there is one sigmoid: a softmax over half its argument with both signs.
    return LinearModel(model.weights / 2, model.intercept / 2) if classes == 2 else model


def fit_sparse_ridge(
    features: csr_matrix, labels: npt.NDArray[np.int64], classes: int, lam: float, memory_gib: float
) -> LinearModel:
    """Square loss of targets +-1, by Cholesky of the smaller side; by scikit-learn's sparse solver if neither fits.

    Raises: SolveFailed for features that are not finite.
    """
    n, d = features.shape
    _check_finite(features)
    targets = signs(torch.from_numpy(labels), classes)  # (n, K)
    if ridge_memory(n, d, classes) > memory_gib:
        fitted = Ridge(alpha=lam, solver="sparse_cg", tol=TOLERANCE).fit(features, targets.numpy())
        return LinearModel(torch.from_numpy(fitted.coef_.T.copy()), torch.from_numpy(np.asarray(fitted.intercept_)))
    mean = targets.mean(0)
    centred = targets - mean
    feature_mean = torch.from_numpy(np.asarray(features.mean(axis=0), dtype=np.float64).ravel())
    dual = n < d
    vectors = features if dual else features.T.tocsr()
    gram = BlasGram(vectors.shape[0])
    for rows in blocks(vectors.shape[0], SPARSE_ROWS):  # its lower triangle
        gram.matrix[rows, : rows.stop] = (vectors[rows] @ vectors[: rows.stop].T).toarray()
    if dual:
        gram.centre()
        gram.factorise(lam)
        weights = torch.from_numpy(np.ascontiguousarray(features.T @ gram.solve(centred).numpy()))
    else:
        gram.subtract_mean(feature_mean, n)
        gram.factorise(lam)
        weights = gram.solve(torch.from_numpy(np.ascontiguousarray(features.T @ centred.numpy())))
    return LinearModel(weights, mean - feature_mean @ weights)


def _linear(model: Any, classes: int) -> LinearModel:
    """A fitted model of scikit-learn's with a column for every class; of two classes it has only the second's."""
    weights, intercept = model.coef_, model.intercept_
    if not (np.isfinite(weights).all() and np.isfinite(intercept).all()):
        raise SolveFailed("the solver's weights are not finite")
    if classes == 2:
        weights, intercept = np.concatenate([-weights, weights]), np.concatenate([-intercept, intercept])
    return LinearModel(torch.from_numpy(weights.T.copy()), torch.from_numpy(intercept.copy()))


def _check(features: Matrix, labels: npt.NDArray[np.int64], classes: int) -> None:
    missing = sorted(set(range(classes)) - set(labels.tolist()))
    if missing:
        raise InvalidInput(
            f"expected training points of all {classes} classes, got none of {missing}; give more points"
        )
    _check_finite(features)


def _check_finite(features: Matrix) -> None:
    if not np.isfinite(features.data if isinstance(features, csr_matrix) else features).all():
        raise SolveFailed("the features of the training points are not all finite")


def decisions(features: Matrix, model: LinearModel) -> Tensor:
    """Decision values (m, K) of features (m, d)."""
    return torch.from_numpy(np.ascontiguousarray(features @ model.weights.numpy())) + model.intercept
