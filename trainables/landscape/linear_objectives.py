"""Objectives of a linear cell's output z with known gradients, Hessians and constants of smoothness, in batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Objective:
    """f(z; t) of instances N at once: z (N, ..., D) the cell's output, t (N, ..., K) what a sample asks for.

    Attributes:
        matrix: (N, K, D), or (N, D, D) symmetric for `indefinite`.
        gradient: (matrix, z, t) -> (N, ..., D), df/dz.
        hessian: (matrix, z) -> (N, D, D), of z (N, D).
        smoothness: (matrix, blocks) -> (N,), the least L with |df/dz_S(z) - df/dz_S(z')| <= L |z_S - z'_S| for all z
            and z' that differ in the coordinates S, `blocks`, alone.
        bound: (matrix, blocks) -> (N,), the least known bound of |df/dz_S| over all z and t; None: there is none.
    """

    name: str
    matrix: Tensor
    gradient: Callable[[Tensor, Tensor, Tensor], Tensor]
    hessian: Callable[[Tensor, Tensor], Tensor]
    smoothness: Callable[[Tensor, slice], Tensor]
    bound: Callable[[Tensor, slice], Tensor] | None
    targets: Tensor  # (N, M, K), of M samples


def spectral_norm(matrix: Tensor) -> Tensor:
    """(..., a, b) -> (...): the largest singular value."""
    return torch.linalg.matrix_norm(matrix, ord=2)


def _times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """(N, a, b), (N, ..., b) -> (N, ..., a)."""
    return torch.einsum("nab,n...b->n...a", matrix, vectors)


def least_squares(instances: int, samples: int, size: int, targets: int, generator: torch.Generator) -> Objective:
    """f = |C z - t|^2 / 2: convex, its gradients without bound. C: (K, D) normal, of columns of norm 1 on average."""
    matrix = _normal(generator, instances, targets, size) / targets**0.5
    return Objective(
        "least-squares",
        matrix,
        lambda c, z, t: _times(c.mT, _times(c, z) - t),
        lambda c, z: c.mT @ c,
        lambda c, blocks: spectral_norm(c[..., blocks]).square(),
        None,
        _normal(generator, instances, samples, targets),
    )


def logistic(instances: int, samples: int, size: int, targets: int, generator: torch.Generator) -> Objective:
    """f = -log softmax(C z)_t: convex, its gradients bounded. t: one-hot classes, drawn uniformly.

    The Hessian is C^T (diag(p) - p p^T) C: along v the variance of the rows' products with v under p, which is largest,
    a fourth of the squared range, where two classes share p evenly. So L = max_rs |C_r - C_s|^2 / 4. The gradient is
    C^T (p - t), a mean of differences of rows: |.| <= max_rs |C_r - C_s|.
    """
    matrix = _normal(generator, instances, targets, size) / targets**0.5
    classes = torch.randint(targets, (instances, samples), generator=generator)
    return Objective(
        "logistic",
        matrix,
        lambda c, z, t: _times(c.mT, _times(c, z).softmax(-1) - t),
        lambda c, z: _softmax_hessian(c, z),
        lambda c, blocks: _largest_difference(c[..., blocks]).square() / 4,
        lambda c, blocks: _largest_difference(c[..., blocks]),
        torch.nn.functional.one_hot(classes, targets).double(),
    )


def indefinite(instances: int, samples: int, size: int, targets: int, generator: torch.Generator) -> Objective:
    """f = z^T H z / 2 + t^T z with H symmetric and of either sign: not convex. `targets` is not read, t is (D,)."""
    matrix = _normal(generator, instances, size, size) / size**0.5
    return Objective(
        "indefinite",
        (matrix + matrix.mT) / 2**0.5,
        lambda h, z, t: _times(h, z) + t,
        lambda h, z: h,
        lambda h, blocks: spectral_norm(h[..., blocks, blocks]),
        None,
        _normal(generator, instances, samples, size),
    )


OBJECTIVES = (least_squares, logistic, indefinite)


def _normal(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _softmax_hessian(matrix: Tensor, z: Tensor) -> Tensor:
    p = _times(matrix, z).softmax(-1)  # (N, K)
    centred = matrix - torch.einsum("nk,nkd->nd", p, matrix)[:, None]
    return centred.mT @ (p[..., None] * centred)


def _largest_difference(matrix: Tensor) -> Tensor:
    """max_rs |C_r - C_s| of the rows, (N,)."""
    return torch.cdist(matrix, matrix, compute_mode="donot_use_mm_for_euclid_dist").amax((-2, -1))
