"""Gradient ascent on the unit sphere, with a line search; what a spectral solution is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Evaluate = Callable[[Tensor], tuple[float, Tensor]]  # the objective at a point (h,), and its gradient there

LONGER, SHORTER, ARMIJO = 2.0, 0.25, 1e-4
SHORTEST = 1e-18  # of a step, relative to the point
NEAR = 1e-12  # relative rise of a value that its own rounding may hide


class Ascent(NamedTuple):
    """Where ascent ended."""

    point: Tensor  # (h,), of norm 1
    value: float
    steps: int
    slope: float  # norm of the gradient along the sphere, by the largest gradient met


def ascend(evaluate: Evaluate, start: Tensor, steps: int, tolerance: float = 1e-9) -> Ascent:
    """x <- (x + eta g) / |x + eta g|, g the gradient along the sphere, eta Barzilai and Borwein's step.

    Args:
        start: (h,). steps: evaluations of value and gradient, at most.
        tolerance: ends once |g| is below this times the norm of the whole gradient.
    """
    point = start / torch.linalg.vector_norm(start)
    value, gradient = evaluate(point)
    along = gradient - (gradient @ point) * point
    largest = torch.linalg.vector_norm(gradient)
    eta, taken = 1 / float(largest.clamp_min(SHORTEST)), 0
    while taken < steps and (size := torch.linalg.vector_norm(along)) > tolerance * largest:
        proposal = point + eta * along
        proposal = proposal / torch.linalg.vector_norm(proposal)
        new_value, new_gradient = evaluate(proposal)
        taken += 1
        # Near the top a rise is below what float64 shows of values.
        if new_value >= value + ARMIJO * eta * float(size) ** 2 or abs(new_value - value) <= NEAR * abs(value):
            new_along = new_gradient - (new_gradient @ proposal) * proposal
            moved, turned = proposal - point, along - new_along
            curvature = float((moved @ turned).abs())
            eta = float(moved @ moved) / curvature if curvature > 0 else LONGER * eta
            point, value, gradient, along = proposal, new_value, new_gradient, new_along
            largest = torch.maximum(largest, torch.linalg.vector_norm(gradient))
        else:
            eta *= SHORTER
            if eta * float(largest) < SHORTEST:
                break
    return Ascent(point, value, taken, float(torch.linalg.vector_norm(along) / largest))
