"""Metrics of the neural tangent kernel: ntk_trace, kappa, knas. Shu 2022, Eq. 7.4, Theorem 7.2, Eq. D.11."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class DegenerateKernel(ArithmeticError):
    """The kernel has no condition number: its smallest eigenvalue is not positive, or it is not finite."""


def ntk_trace(gram: Tensor) -> float:
    """M_trace = sqrt(tr(Theta) / m), Eq. 7.4. gram: (m, m)."""
    return float((gram.trace() / len(gram)).sqrt())


def kappa(gram: Tensor, rounding: float = 0.0) -> float:
    """kappa = lambda_max(Theta) / lambda_min(Theta), Theorem 7.2, in float64.

    gram: (m, m) symmetric. rounding: of the numbers that `gram` was made of (the eps of their type), relative to
    lambda_max: a lambda_min below it has an accidental value and an accidental sign.
    Raises: DegenerateKernel if an entry is not finite or lambda_min is not positive (note P4) beyond rounding.
    """
    if not bool(gram.isfinite().all()):
        raise DegenerateKernel("the kernel has entries that are not finite")
    eigenvalues = torch.linalg.eigvalsh(gram.double())  # ascending
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    if low <= max(0.0, rounding * high):
        raise DegenerateKernel(f"lambda_min of the kernel is not positive: {low:.3g}, lambda_max is {high:.3g}")
    return high / low


def knas(gram: Tensor) -> float:
    """M_KNAS = sqrt(|sum_ij Theta_ij| / m^2), Eq. D.11: the norm of the mean of the per-sample gradients.

    gram: (m, m). With the per-sample gradients of note P2 this is ||grad sum_i f_{y_i}(x_i)|| / m (note P3).
    """
    return float(gram.double().sum().abs().sqrt() / len(gram))


def exact_gram_matrix(
    outputs: Tensor, parameters: Sequence[Tensor], memory_mib: float, *, retain_graph: bool = True
) -> Tensor:
    """Theta: (m, m) float64 from the rows of the Jacobian, Eq. 7.1: row i is the gradient of outputs[i].

    Under batch normalisation row i holds what flows through all samples of the batch, unlike the per-sample
    gradients of note P2. One backward pass per sample and block of parameters.

    outputs: (m,) scalars with a graph. parameters: tensors of the graph. memory_mib: bound on the rows held at once;
    parameters are taken in blocks that fit (a single larger one is a block by itself).
    """
    m = len(outputs)
    gram = torch.zeros(m, m, dtype=torch.float64, device=outputs.device)
    for block in _blocks(parameters, int(memory_mib * 2**20) // m):
        jacobian = outputs.new_empty(m, sum(parameter.numel() for parameter in block))
        for i in range(m):
            row = torch.autograd.grad(
                outputs[i], block, retain_graph=retain_graph or i < m - 1, allow_unused=True, materialize_grads=True
            )
            jacobian[i] = torch.cat([part.flatten() for part in row])
        gram += jacobian @ jacobian.T
    return gram


def _blocks(parameters: Sequence[Tensor], row_bytes: int) -> list[list[Tensor]]:
    blocks: list[list[Tensor]] = []
    room = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if not blocks or size > room:
            blocks.append([])
            room = row_bytes
        blocks[-1].append(parameter)
        room -= size
    return blocks
