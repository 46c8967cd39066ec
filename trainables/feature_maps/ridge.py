"""Ridge regression in closed form, all classes in one factorisation. Khodak et al. 2020, section 2; note W7.

min over w and b of lam ||w||^2 + sum_i ||w^T phi_i + b - y_i||^2, the intercept b not penalised: scikit-learn's
Ridge(alpha=lam). By Cholesky of the smaller side, (d, d) or (n, n).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.feature_maps.conjugate_gradients import (
    NotConverged,
    conjugate_gradients,
    normal_times,
    times,
    transpose_times,
)
from archray.trainables.feature_maps.features import DenseFeatures, Features, RidgePlan, blocks, keep
from archray.trainables.feature_maps.gram_matrix import Gram, SolveFailed, int8_gram, make_gram
from archray.trainables.feature_maps.solve_settings import Precision

logger = logging.getLogger(__name__)

TOLERANCE = 1e-8  # relative, of predictions; a hundredth of what float32 features are worth
MAX_ITERATIONS = 30  # each is a reading of all features; 2 to 6 are usual, and beyond these a float64 Gram is sooner


class LinearModel(NamedTuple):
    """Decision values features @ weights + intercept."""

    weights: Tensor  # (d, K) float64
    intercept: Tensor  # (K,) float64

    def decisions(self, features: Tensor) -> Tensor:
        """Decision values (m, K) of dense features (m, d), in the features' precision."""
        return features @ self.weights.to(features.dtype) + self.intercept.to(features.dtype)


class RidgeSolution(NamedTuple):
    """What a solve found, and how."""

    model: LinearModel
    gram: Precision  # the arithmetic of the Gram matrix that led to it
    iterations: int  # of conjugate gradients; 0 if the factorisation was the solution


def solve_ridge(
    features: Features, targets: Tensor, lam: float, *, gram: Precision = "float64", memory_gib: float = 4.0
) -> RidgeSolution:
    """The minimiser for K targets at once.

    Args:
        features: (n, d). targets: (n, K), on the same device.
        gram: see `SolveSettings`; predictions are equal to better than 1e-6 whichever it is.
        memory_gib: bound on what is held beside the features' own inputs.

    Raises: InvalidInput if the smaller side does not fit `memory_gib`, or int8 is asked for on a GPU;
    SolveFailed for features that are not finite.
    """
    if gram == "int8" and features.device.type != "cpu":
        raise InvalidInput("expected gram float64 or float32 on a GPU, got int8, which is for CPUs")
    plan = RidgePlan.make(*features.shape, targets.shape[1], memory_gib=memory_gib, gram=gram)
    targets = targets.double()
    mean = targets.mean(0)  # (K,)
    centred = targets - mean
    if plan.keep:
        features = keep(features, plan.rows)
    if plan.gram != "float64":
        assert isinstance(features, DenseFeatures)  # such a plan keeps them
        try:
            return solve_preconditioned(features, centred, mean, lam, plan)
        except (SolveFailed, NotConverged) as error:
            logger.warning("the %s Gram matrix does not do for lam = %g (%s): float64", plan.gram, lam, error)
    solve = solve_dual if plan.dual else solve_primal
    return RidgeSolution(solve(features, centred, mean, lam, plan), "float64", 0)


def solve_primal(features: Features, targets: Tensor, mean: Tensor, lam: float, plan: RidgePlan) -> LinearModel:
    """w = (X^T H X + lam I)^-1 X^T y with y centred and H the centring matrix."""
    n, d = features.shape
    gram = make_gram(d, features.device)
    right = torch.zeros(d, targets.shape[1], dtype=torch.float64, device=features.device)
    total = torch.zeros(d, dtype=torch.float64, device=features.device)
    for rows in blocks(n, plan.rows):
        block = features.block(rows).double()  # (rows, d)
        gram.add(block)
        right.addmm_(block.T, targets[rows])
        total += block.sum(0)
    feature_mean = total / n
    gram.subtract_mean(feature_mean, n)
    gram.factorise(lam)
    weights = gram.solve(right)
    return LinearModel(weights, mean - feature_mean @ weights)


def solve_dual(features: Features, targets: Tensor, mean: Tensor, lam: float, plan: RidgePlan) -> LinearModel:
    """w = X^T a with (H X X^T H + lam I) a = y; the entries of a sum to zero, so that w needs no centring."""
    n, d = features.shape
    gram = make_gram(n, features.device)
    for columns in blocks(d, plan.columns):
        gram.add(features.block(slice(0, n), columns).double().T)  # (columns, n)
    gram.centre()
    gram.factorise(lam)
    dual = gram.solve(targets)  # (n, K)
    weights = torch.empty(d, dual.shape[1], dtype=torch.float64, device=features.device)
    feature_mean = torch.empty(d, dtype=torch.float64, device=features.device)
    for columns in blocks(d, plan.columns):
        block = features.block(slice(0, n), columns).double()  # (n, columns)
        weights[columns] = block.T @ dual
        feature_mean[columns] = block.mean(0)
    return LinearModel(weights, mean - feature_mean @ weights)


def solve_preconditioned(
    features: DenseFeatures, targets: Tensor, mean: Tensor, lam: float, plan: RidgePlan
) -> RidgeSolution:
    """By conjugate gradients in float64, the factorised cheaper Gram matrix as preconditioner."""
    matrix, n = features.matrix, features.shape[0]
    ones = torch.ones(n, 1, dtype=torch.float64, device=features.device)
    sums = transpose_times(matrix, torch.cat([targets, ones], 1))  # (d, K + 1)
    right, feature_mean = sums[:, :-1].contiguous(), sums[:, -1] / n
    gram = _cheap_gram(features, feature_mean, plan)
    gram.factorise(lam)

    def primal(vectors: Tensor) -> Tensor:
        product = normal_times(matrix, vectors).add_(vectors, alpha=lam)
        return product.addmm_(feature_mean[:, None], (feature_mean @ vectors)[None], alpha=-n)

    def dual(vectors: Tensor) -> Tensor:
        product = times(matrix, transpose_times(matrix, vectors - vectors.mean(0)))
        return (product - product.mean(0)).add_(vectors, alpha=lam)

    found, iterations = conjugate_gradients(
        dual if plan.dual else primal,
        gram.solve,
        targets if plan.dual else right,
        tolerance=TOLERANCE,
        limit=MAX_ITERATIONS,
    )
    if plan.dual:
        found = transpose_times(matrix, found)
    return RidgeSolution(LinearModel(found, mean - feature_mean @ found), plan.gram, iterations)


def _cheap_gram(features: DenseFeatures, feature_mean: Tensor, plan: RidgePlan) -> Gram:
    """The centred Gram matrix of the smaller side in the plan's arithmetic."""
    if plan.gram == "int8":
        return int8_gram(features, dual=plan.dual)
    n, d = features.shape
    gram = make_gram(n if plan.dual else d, features.device, torch.float32)
    gram.add(features.matrix.T if plan.dual else features.matrix)
    if plan.dual:
        gram.centre()
    else:
        gram.subtract_mean(feature_mean, n)
    return gram
