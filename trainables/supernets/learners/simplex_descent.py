"""Mirror descent on the simplex: exponentiated and projected gradient. GAEA, Li et al. 2021, section 3, Eq. 4-8."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.supernets.learners.simplex_optimizer import (
    SimplexOptimizer,
    check_gradients,
    check_simplex,
    project_to_simplex,
)


def relative_step(gradient: Tensor, lr: float, supported: Tensor | None = None) -> Tensor:
    """lr * gradient less the row's minimum, which changes neither update; finite, and at least 0 where supported.

    An infinite gradient counts as a quarter of the largest float, so that an operation with -inf takes all.

    supported: (..., k) bool, the entries over which the minimum is taken; all unless given.
    """
    limit = torch.finfo(gradient.dtype).max / 4
    step = (gradient.clamp(-limit, limit) * lr).clamp(-limit, limit)
    eligible = step if supported is None else step.where(supported, torch.inf)
    return step - eligible.amin(-1, keepdim=True)


def log_entropic_step(log_weights: Tensor, gradient: Tensor, lr: float) -> Tensor:
    """Eq. 8 for the logarithms of the weights: log theta - lr * gradient, normalised. (..., k) -> (..., k).

    -inf stays -inf; every row needs one entry above.
    """
    # The best entry of the support moves by 0 and the others down: no row loses all its entries to underflow.
    return (log_weights - relative_step(gradient, lr, log_weights > -torch.inf)).log_softmax(-1)


def entropic_step(weights: Tensor, gradient: Tensor, lr: float, floor: float = 0.0) -> Tensor:
    """Exponentiated gradient, Eq. 8: theta * exp(-lr * gradient), divided by its sum. (..., k) -> (..., k).

    It is the minimiser of lr <gradient, u> + sum_o u_o log(u_o / theta_o) over the simplex (Eq. 5).

    Args:
        weights: rows on the simplex.
        floor: weights below it are raised to it, then the row is divided by its sum again. The authors raise before
            they divide for the first time; dividing first makes the result the same when a constant is added to a
            row of the gradient, as Eq. 5 has it.
    """
    return normalised(log_entropic_step(weights.log(), gradient, lr).exp(), floor)


def normalised(weights: Tensor, floor: float = 0.0) -> Tensor:
    """Rows of positive sums divided by them; before that, entries below the floor are raised to it."""
    if floor > 0.0:
        weights = weights.clamp(min=floor)
    return weights / weights.sum(-1, keepdim=True)


def projected_step(weights: Tensor, gradient: Tensor, lr: float) -> Tensor:
    """Projected gradient: Eq. 6 with phi(u) = ||u||_2^2 / 2 over the simplex. (..., k) -> (..., k)."""
    return project_to_simplex(weights - relative_step(gradient, lr))


class MirrorDescent(SimplexOptimizer):
    """Mirror descent by the gradients present.

    Each step, for each parameter with a gradient:

    1. `dgf="entropy"`: `entropic_step`; with `log_space` the logarithms are kept beside the parameters and stepped by
       `log_entropic_step`, so that a weight that has underflown to zero can return.
       `dgf="euclidean"`: `projected_step`.
    2. The parameter is overwritten by the result.

    Rates, and all other options, may differ between parameter groups. No weight decay and no momentum (note G1). With
    `log_space` the logarithms are taken from the parameters at their first step: whoever overwrites parameters
    afterwards makes a new optimizer.

    Args:
        params: tensors or groups of them, float32 or float64, rows on the simplex.
        lr, dgf: eta and the distance-generating function phi.
        floor: for the entropy, see `entropic_step`; below 1/k for rows of k.
        log_space: for the entropy, without floor.

    Raises: InvalidInput if the floor or a parameter is wrong; in `step`, FloatingPointError if a gradient is NaN
        (before anything has changed).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        dgf: Literal["entropy", "euclidean"] = "entropy",
        floor: float = 0.0,
        log_space: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "dgf": dgf, "floor": floor, "log_space": log_space})

    def _check(self, group: dict[str, Any]) -> None:
        floor = group["floor"]
        for parameter in group["params"]:
            check_simplex(parameter)
            k = parameter.shape[-1]
            if not 0.0 <= floor < 1.0 / k:
                raise InvalidInput(
                    f"expected a floor from 0 to below 1/{k} for rows of {count(k, 'operation')}, got {floor}"
                )

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        check_gradients([p.grad for group in self.param_groups for p in group["params"] if p.grad is not None])
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.copy_(self._updated(parameter, parameter.grad, group))

    def _updated(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> Tensor:
        if group["dgf"] == "euclidean":
            return projected_step(parameter, gradient, group["lr"])
        if not group["log_space"]:
            return entropic_step(parameter, gradient, group["lr"], group["floor"])
        state = self.state[parameter]
        if "log_weights" not in state:
            state["log_weights"] = parameter.log()
        state["log_weights"] = log_entropic_step(state["log_weights"], gradient, group["lr"])
        return normalised(state["log_weights"].exp())
