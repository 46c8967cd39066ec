"""Rows on the probability simplex: the checks, the projection that puts them there, the optimizers that keep them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from archray.errors import InvalidInput

TOLERANCE = 1e-5  # a float32 row of thousands of entries, divided by its sum, sums to one within a tenth of this


def check_simplex(rows: Tensor) -> None:
    """Raises: InvalidInput unless all rows (last dimension) are float32 or float64, non-negative and sum to one."""
    if rows.dtype not in (torch.float32, torch.float64):
        raise InvalidInput(f"expected architecture parameters in float32 or float64, got {rows.dtype}; convert them")
    if rows.ndim == 0 or rows.numel() == 0:
        raise InvalidInput(f"expected rows of at least one operation, got a tensor of shape {tuple(rows.shape)}")
    flat = rows.detach().reshape(-1, rows.shape[-1])
    sums, least = flat.sum(-1), flat.amin(-1)
    wrong = ~((sums - 1.0).abs() <= TOLERANCE) | ~(least >= 0.0)  # a NaN is wrong too
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise InvalidInput(
            f"expected every row of the parameters to lie on the simplex, got a row ({row}) that sums to "
            f"{sums[row].item():.6g} with smallest entry {least[row].item():.6g}; start from the uniform row, or "
            "divide non-negative rows by their sums"
        )


def check_gradients(gradients: list[Tensor]) -> None:
    """Raises: FloatingPointError if one of them holds a NaN. Waits for the device once."""
    if gradients and bool(
        torch.stack([gradient.isnan().any().to(gradients[0].device) for gradient in gradients]).any()
    ):
        raise FloatingPointError("a gradient of the architecture parameters is NaN: the search has diverged")


def project_to_simplex(rows: Tensor) -> Tensor:
    """argmin over u on the simplex of ||u - row||_2, for each row; (..., k) -> (..., k).

    The projection subtracts a threshold theta from a row and cuts at zero. With the entries sorted downwards,
    s_1 >= s_2 >= .., the support is the largest j with j s_j > s_1 + .. + s_j - 1, and theta is that sum less one,
    divided by j (Held et al. 1974; Duchi et al. 2008, Figure 1). Rows are finite.
    """
    # Adding a constant to a row changes nothing; with the maximum at 0 the 1 that is subtracted below is never lost to
    # rounding, however large the entries are.
    rows = rows - rows.amax(-1, keepdim=True)
    ordered = rows.sort(-1, descending=True).values
    excess = ordered.cumsum(-1) - 1.0  # (..., k): the sum of the j largest, less one
    j = torch.arange(1, rows.shape[-1] + 1, device=rows.device, dtype=rows.dtype)
    support = (j * ordered > excess).sum(-1, keepdim=True)  # (..., 1), at least 1
    theta = excess.gather(-1, support - 1) / support
    projected = (rows - theta).clamp(min=0.0)
    return projected / projected.sum(-1, keepdim=True)  # one up to rounding before, and after


class SimplexOptimizer(Optimizer):
    """Keeps every row (last dimension) of its parameters on the simplex; float32 or float64."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises: InvalidInput if an option or a parameter is wrong; the group is not added then."""
        super().add_param_group(param_group)
        try:
            self._check(self.param_groups[-1])
        except InvalidInput:
            del self.param_groups[-1]
            raise

    @abstractmethod
    def _check(self, group: dict[str, Any]) -> None:
        """Raises: InvalidInput if an option of a parameter group, or one of its parameters, cannot be used."""
