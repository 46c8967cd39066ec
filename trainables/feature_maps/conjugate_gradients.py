"""Preconditioned conjugate gradients for several right-hand sides at once. Golub and Van Loan, section 11.5."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class NotConverged(ArithmeticError):
    """Conjugate gradients that did not reach the tolerance: the preconditioner is too far from the matrix."""


def conjugate_gradients(
    multiply: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    right: Tensor,
    *,
    tolerance: float,
    limit: int,
) -> tuple[Tensor, int]:
    """Solves A x = right for a positive definite A.

    Args:
        multiply: x -> A x. precondition: r -> M^-1 r, with M near A. Both of (m, k) float64.
        right: (m, k), k right-hand sides, each with its own step sizes.
        tolerance: on the error of x in the norm of A, estimated by that of M, relative to x: for ridge regression
            the error of the predictions and of sqrt(lam) w together.
        limit: iterations at most.

    Returns: x (m, k), the number of iterations. Raises: NotConverged.
    """
    solution = torch.zeros_like(right)
    residual = right.clone()
    preconditioned = precondition(residual)
    direction = preconditioned.clone()
    squared = (residual * preconditioned).sum(0)  # (k,): r^T M^-1 r
    target = tolerance**2 * squared
    for iteration in range(limit + 1):
        if bool((squared <= target).all()):
            return solution, iteration
        if iteration == limit or not bool(torch.isfinite(squared).all()):
            break
        product = multiply(direction)
        step = _ratio(squared, (direction * product).sum(0))
        solution += step * direction
        residual -= step * product
        preconditioned = precondition(residual)
        before, squared = squared, (residual * preconditioned).sum(0)
        direction = preconditioned + _ratio(squared, before) * direction
    raise NotConverged(f"conjugate gradients did not reach {tolerance:g} within {limit} iterations")


def _ratio(one: Tensor, other: Tensor) -> Tensor:
    """one / other; 0 where other is 0: that right-hand side is solved exactly."""
    return torch.where(other == 0, torch.zeros_like(one), one / torch.where(other == 0, 1.0, other))
