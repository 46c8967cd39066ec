"""Losses of decision values, and linear models from scikit-learn: hinge, log, and ridge if sparse. Note W7.

Objectives are lam ||w||^2 + summed loss, so that C = 1 / (2 lam).
"""

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.registry import LazyModule
from archray.trainables.feature_maps.features import blocks, ridge_memory
from archray.trainables.feature_maps.ridge import BlasGram, LinearModel, SolveFailed
from archray.trainables.feature_maps.solve_settings import Loss

if TYPE_CHECKING:
    from sklearn import linear_model, svm
else:  # half a second, and models that are networks do not need them
    linear_model, svm = LazyModule("sklearn.linear_model"), LazyModule("sklearn.svm")

Matrix: TypeAlias = npt.NDArray[np.float64] | csr_matrix

CLIP = 1.0  # of decision values, the size of the targets; losses of larger values have no bound
SPARSE_ROWS = 1024  # rows of a Gram matrix of sparse features, computed at once
TOLERANCE = 1e-8  # of scikit-learn's conjugate gradients
MAX_ITERATIONS = 10_000  # of liblinear and L-BFGS: their defaults of 1,000 and 100 warn for small alphas of SIF weights


def signs(labels: Tensor, classes: int) -> Tensor:
    """Returns targets of one class against the rest: (n, K) float64, +1 for a point's class and -1 for the others."""
    return F.one_hot(labels, classes).double().mul_(2).sub_(1)


def point_losses(decisions: Tensor, labels: Tensor, loss: Loss) -> Tensor:
    """Computes the loss of each point, summed over one-against-rest problems for ridge (square) and svm (hinge).

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
    """Clips decision values to the range of the targets, so that the losses are bounded, see `loss_bound`."""
    return decisions.clamp(-CLIP, CLIP)


def loss_bound(loss: Loss, classes: int) -> float:
    """Returns B, the largest loss of a point with `clipped` decision values."""
    if loss == "logistic":
        return math.log1p((classes - 1) * math.exp(2 * CLIP))
    return classes * (2 * CLIP if loss == "svm" else (2 * CLIP) ** 2)


def point_hits(decisions: Tensor, labels: Tensor) -> Tensor:
    """Returns (n,) float64: 1 if the largest decision value belongs to the label."""
    finite = torch.isfinite(decisions).all(1)
    return ((decisions.argmax(1) == labels) & finite).double()


def fit_svm(features: Matrix, labels: npt.NDArray[np.int64], classes: int, lam: float, seed: int) -> LinearModel:
    """Fits the hinge loss, each class against the rest, by liblinear's dual coordinate descent.

    features: (n, d). labels: (n,). seed: for the order of coordinates. Raises: InvalidInput for a class without points.
    """
    _check(features, labels, classes)
    model = svm.LinearSVC(loss="hinge", C=1 / (2 * lam), dual=True, random_state=seed % 2**32, max_iter=MAX_ITERATIONS)
    return _linear(model.fit(features, labels), classes)


def fit_logistic(features: Matrix, labels: npt.NDArray[np.int64], classes: int, lam: float) -> LinearModel:
    """Fits the log loss over all classes, by L-BFGS. Raises: InvalidInput for a class without points."""
    _check(features, labels, classes)
    model = _linear(
        linear_model.LogisticRegression(C=1 / (2 * lam), max_iter=MAX_ITERATIONS).fit(features, labels), classes
    )
    # For two classes there is one sigmoid: a softmax over half its argument with both signs.
    return LinearModel(model.weights / 2, model.intercept / 2) if classes == 2 else model


def fit_sparse_ridge(
    features: csr_matrix, labels: npt.NDArray[np.int64], classes: int, lam: float, memory_gib: float
) -> LinearModel:
    """Fits the square loss of targets +-1, by Cholesky of the smaller side; if neither fits, by scikit-learn's solver.

    Raises: SolveFailed for infinite or NaN features.
    """
    n, d = features.shape
    _check_finite(features)
    targets = signs(torch.from_numpy(labels), classes)  # (n, K)
    if ridge_memory(n, d, classes) > memory_gib:
        fitted = linear_model.Ridge(alpha=lam, solver="sparse_cg", tol=TOLERANCE).fit(features, targets.numpy())
        return LinearModel(torch.from_numpy(fitted.coef_.T.copy()), torch.from_numpy(np.asarray(fitted.intercept_)))
    mean = targets.mean(0)
    centered = targets - mean
    feature_mean = torch.from_numpy(np.asarray(features.mean(axis=0), dtype=np.float64).ravel())
    dual = n < d
    vectors = features if dual else features.T.tocsr()
    gram = BlasGram(vectors.shape[0])
    for rows in blocks(vectors.shape[0], SPARSE_ROWS):  # its lower triangle
        gram.matrix[rows, : rows.stop] = (vectors[rows] @ vectors[: rows.stop].T).toarray()
    if dual:
        gram.center()
        gram.factorize(lam)
        weights = torch.from_numpy(np.ascontiguousarray(features.T @ gram.solve(centered).numpy()))
    else:
        gram.subtract_mean(feature_mean, n)
        gram.factorize(lam)
        weights = gram.solve(torch.from_numpy(np.ascontiguousarray(features.T @ centered.numpy())))
    return LinearModel(weights, mean - feature_mean @ weights)


def _linear(model: Any, classes: int) -> LinearModel:
    """Converts a model of scikit-learn to one with a column for every class; for two classes it has only the second."""
    weights, intercept = model.coef_, model.intercept_
    if not (np.isfinite(weights).all() and np.isfinite(intercept).all()):
        raise SolveFailed("expected finite weights from the solver, got infinity or NaN")
    if classes == 2:
        weights, intercept = np.concatenate([-weights, weights]), np.concatenate([-intercept, intercept])
    return LinearModel(torch.from_numpy(weights.T.copy()), torch.from_numpy(intercept.copy()))


def _check(features: Matrix, labels: npt.NDArray[np.int64], classes: int) -> None:
    missing = sorted(set(range(classes)) - set(labels.tolist()))
    if missing:
        raise InvalidInput(f"expected training points of all {classes} classes, got none of {missing}. Add points")
    _check_finite(features)


def _check_finite(features: Matrix) -> None:
    if not np.isfinite(features.data if isinstance(features, csr_matrix) else features).all():
        raise SolveFailed("expected finite features of the training points, got infinity or NaN")


def decisions(features: Matrix, model: LinearModel) -> Tensor:
    """Computes decision values (m, K) of features (m, d)."""
    return torch.from_numpy(np.ascontiguousarray(features @ model.weights.numpy())) + model.intercept
