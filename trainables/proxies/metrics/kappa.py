"""Condition number of the neural tangent kernel. Shu 2022, Theorem 7.2; note P4."""

from __future__ import annotations

import torch
from torch import Tensor

from archray.trainables.proxies.proxy_registry import NoScore, proxy
from archray.trainables.proxies.shared_pass import SharedPass


class DegenerateKernel(NoScore):
    """The kernel has no condition number: its smallest eigenvalue is not positive, or it is not finite."""


def condition_number(gram: Tensor, rounding: float = 0.0) -> float:
    """kappa = lambda_max(Theta) / lambda_min(Theta), Theorem 7.2, in float64.

    gram: (m, m) symmetric. rounding: of the numbers that `gram` was made of (the eps of their type), relative to
    lambda_max: a lambda_min below it has an accidental value and an accidental sign. So has one that the eigenvalues'
    own rounding, m times the eps of float64, may have made.
    Raises: DegenerateKernel if an entry is not finite or lambda_min is not positive (note P4) beyond rounding.
    """
    if not bool(gram.isfinite().all()):
        raise DegenerateKernel("the kernel has entries that are not finite")
    eigenvalues = torch.linalg.eigvalsh(gram.double())  # ascending
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    if low <= max(0.0, max(rounding, len(gram) * torch.finfo(torch.float64).eps) * high):
        raise DegenerateKernel(f"lambda_min of the kernel is not positive: {low:.3g}, lambda_max is {high:.3g}")
    return high / low


@proxy(direction="min")
def kappa(shared: SharedPass) -> float:
    return condition_number(shared.gram, torch.finfo(shared.record.logits.dtype).eps)
