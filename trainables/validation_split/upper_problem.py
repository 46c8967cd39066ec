"""The upper problem: validation loss and hyper-gradient of an architecture, and the architecture they select."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.optimize import nnls
from torch import Tensor

from archray.trainables.validation_split.interpolation import Interpolation

DAMPING = 1e-3  # of the first step, of the curvature's mean diagonal entry
LESS, MORE = 0.2, 5.0  # what damping becomes after a step that lowered the loss, and one that did not
LEAST, MOST = 1e-10, 1e8  # damping: positive definite in float64 with it; and at which a step changes nothing
SUM_WEIGHT = 1e4  # of the row that holds the sum of the weights at 1, beside the problem's largest entry


class PointLosses(NamedTuple):
    """Of one architecture, point by point: a prefix's mean is what a smaller validation set would say."""

    losses: Tensor  # (n,): mean square error over the K outputs
    gradients: Tensor  # (n, h): of the losses by alpha


class Descent(NamedTuple):
    """What descent on a validation set came to."""

    alpha: Tensor  # (h,)
    loss: float  # on the validation set
    steps: int
    gap: float  # an upper bound on what a linear model of the loss could still gain on the simplex, Frank-Wolfe's


@dataclass(frozen=True)
class PointSet:
    """Points to judge an architecture on, seen by one training set's models. labels: (n, K)."""

    lower: Interpolation
    seen: Tensor  # of `lower.seen`: (h, n, ...)
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, points: int) -> PointSet:
        """The first `points` of them."""
        return PointSet(self.lower, self.seen[:, :points], self.labels[:points])

    def point_losses(self, alpha: Tensor) -> PointLosses:
        """L and its exact hyper-gradient, dL/dalpha through the lower problem's solution, at each point."""
        values, jacobian = self.lower.predict(alpha, self.seen)
        residuals = values - self.labels  # (n, K)
        gradients = 2 * torch.einsum("nk,nkh->nh", residuals, jacobian) / residuals.shape[1]
        return PointLosses(residuals.square().mean(1), gradients)

    def second_order(self, alpha: Tensor) -> tuple[float, Tensor, Tensor]:
        """The mean loss, its hyper-gradient (h,), and Gauss and Newton's curvature 2 J^T J / n, (h, h)."""
        values, jacobian = self.lower.predict(alpha, self.seen)
        residuals, slopes = (values - self.labels).flatten(), jacobian.flatten(0, 1)  # (nK,), (nK, h)
        entries = len(residuals)
        curvature = 2 * slopes.T @ slopes / entries
        return float(residuals.square().mean()), 2 * residuals @ slopes / entries, curvature

    def loss(self, alpha: Tensor) -> float:
        """Mean square error."""
        return float(self.point_losses(alpha).losses.mean())


def select(points: PointSet, start: Tensor, steps: int, tolerance: float = 1e-5) -> Descent:
    """Levenberg and Marquardt's descent on the simplex; the loss never grows.

    1. g, H: the hyper-gradient and 2 J^T J / n of the residuals' derivatives on these points;
    2. proposal = argmin over the simplex of g^T (a - alpha) + 1/2 (a - alpha)^T (H + damping I) (a - alpha);
    3. taken if the loss is lower, and damping falls; else damping grows.

    Exponentiated gradient has the same limits and takes a hundred times as many steps: H is ill-conditioned.

    Args:
        start: (h,) on the simplex. steps: at most, evaluations of loss and gradient.
        tolerance: ends once Frank-Wolfe's gap, alpha^T g - min_i g_i, is below this times the loss.
    """
    alpha, taken, damping = start, 0, DAMPING
    loss, gradient, curvature = points.second_order(alpha)
    while taken < steps and damping < MOST and _gap(alpha, gradient) > tolerance * loss:
        unit = float(curvature.diagonal().mean()) * torch.eye(len(alpha), dtype=alpha.dtype)
        proposal = simplex_quadratic(curvature + damping * unit, gradient, alpha)
        new = points.second_order(proposal)
        taken += 1
        if new[0] < loss:
            alpha, (loss, gradient, curvature) = proposal, new
            damping = max(LEAST, LESS * damping)
        else:
            damping *= MORE
    return Descent(alpha, loss, taken, _gap(alpha, gradient))


def select_best(points: PointSet, starts: Tensor, steps: int) -> Descent:
    """The best, by the loss on these points, of descents from several starts (S, h): the loss is not convex."""
    return min((select(points, start, steps) for start in starts), key=lambda descent: descent.loss)


def simplex_quadratic(matrix: Tensor, gradient: Tensor, centre: Tensor) -> Tensor:
    """argmin over the simplex of g^T (a - c) + 1/2 (a - c)^T Q (a - c), by non-negative least squares.

    matrix: Q, (h, h), positive definite. gradient: g, centre: c, (h,).
    """
    factor = torch.linalg.cholesky(matrix, upper=True)  # Q = R^T R
    target = factor @ centre - torch.linalg.solve_triangular(factor.T, gradient[:, None], upper=False)[:, 0]
    weight = SUM_WEIGHT * float(factor.abs().max())
    rows = torch.cat([factor, torch.full((1, len(centre)), weight, dtype=factor.dtype)])
    solution, _ = nnls(rows.numpy(), torch.cat([target, target.new_tensor([weight])]).numpy())
    return torch.from_numpy(solution / solution.sum())


def _gap(alpha: Tensor, gradient: Tensor) -> float:
    return float((alpha * gradient).sum() - gradient.min())
