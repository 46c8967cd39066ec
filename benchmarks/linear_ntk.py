"""The kernels of the linear wide and deep architectures of Theorem 7.4, in float64. Shu 2022, 7.3.5, D.1.5; note U9.

f(x) = 1^T sum_i W_i x (wide) and f'(x) = 1^T W_L ... W_1 x (deep), W_i of n x n entries from N(0, variance).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from archray.errors import InvalidInput

CHUNK = 2**22  # numbers of the weights drawn at once


def wide_ntk(inputs: Tensor, layers: int) -> Tensor:
    """Returns Theta = L n X^T X (Eq. D.46), (m, m), for any weights. inputs: X (n, m)."""
    return layers * len(inputs) * (inputs.T @ inputs)


def deep_ntk(weights: Tensor, inputs: Tensor) -> Tensor:
    """Returns Theta' (Eq. D.47): sum_i |1^T W_L ... W_(i+1)|^2 Y_(i-1)^T Y_(i-1), Y_i = W_i ... W_1 X.

    weights: (..., L, n, n), W_1 first, one per initialization. inputs: X (n, m). The result has the shape (..., m, m).
    """
    layers = weights.unbind(-3)
    rows = [weights.new_ones(*weights.shape[:-3], weights.shape[-1], 1)]  # (W_L ... W_(i+1))^T 1 of i = L, L - 1, ...
    for matrix in reversed(layers[1:]):
        rows.append(matrix.mT @ rows[-1])
    images, kernel = inputs, torch.zeros((), dtype=weights.dtype)
    for matrix, row in zip(layers, reversed(rows), strict=True):
        kernel = kernel + row.square().sum(-2, keepdim=True) * (images.mT @ images)  # (..., m, m)
        images = matrix @ images  # (..., n, m)
    return kernel


def expected_scale(width: int, layers: int, variance: float = 1.0) -> float:
    """Returns the factor of X^T X in E[Theta']: L n^L variance^(L-1). With variance 1/n instead of 1 it is L n."""
    return layers * width**layers * variance ** (layers - 1)


def orthonormal_inputs(width: int, points: int, generator: torch.Generator) -> Tensor:
    """Returns X (n, m) float64 with X^T X = I, the theorem's data. Raises: InvalidInput for more points than inputs.

    The theorem also requires the mean 0, but here |X 1|^2 = 1^T X^T X 1 = m. Its proof does not use the mean.
    """
    if not 1 <= points <= width:
        raise InvalidInput(f"expected 1 to {width} points, of {width} inputs each, for X^T X = I, got {points}")
    return torch.linalg.qr(torch.randn(width, points, generator=generator, dtype=torch.float64)).Q


@dataclass(frozen=True)
class DeepKernels:
    """The deep architecture's kernels over initializations, on orthonormal inputs.

    Attributes:
        mean, error: (m, m) the mean of Theta' and its standard error.
        kappa: (draws,) condition numbers. trace: (draws,) M_Trace, the root of the mean diagonal entry (Eq. 7.4).
    """

    mean: Tensor
    error: Tensor
    kappa: Tensor
    trace: Tensor

    def deviations(self, expected: float) -> Tensor:
        """Returns the distance of the mean from expected * I in standard errors, (m, m)."""
        return (self.mean - expected * torch.eye(len(self.mean), dtype=torch.float64)) / self.error


def deep_kernels(
    width: int, layers: int, points: int, draws: int, *, variance: float = 1.0, seed: int = 0
) -> DeepKernels:
    """Samples `draws` initializations of the deep architecture, in batches.

    Args:
        width: n. layers: L. points: m, at most n. variance: of the weights; 1 in Theorem 7.4.

    Raises: InvalidInput for more points than inputs, or fewer than two draws.
    """
    if draws < 2:
        raise InvalidInput(f"expected two draws or more, for a standard error, got {draws}")
    generator = torch.Generator().manual_seed(seed)
    inputs = orthonormal_inputs(width, points, generator)
    size = max(1, CHUNK // (layers * width * width))
    kernels = []
    for first in range(0, draws, size):
        shape = (min(size, draws - first), layers, width, width)
        weights = torch.randn(shape, generator=generator, dtype=torch.float64) * variance**0.5
        kernels.append(deep_ntk(weights, inputs))
    kernel = torch.cat(kernels)  # (draws, m, m)
    eigenvalues = torch.linalg.eigvalsh(kernel)  # ascending
    return DeepKernels(
        mean=kernel.mean(0),
        error=kernel.std(0) / draws**0.5,
        kappa=eigenvalues[:, -1] / eigenvalues[:, 0],
        trace=kernel.diagonal(dim1=-2, dim2=-1).mean(-1).sqrt(),
    )
