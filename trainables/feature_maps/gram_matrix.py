"""Symmetric positive definite matrices: accumulated by rank-k updates, centred, factorised by Cholesky.

On a CPU by BLAS and LAPACK through SciPy, of which only the lower triangle is touched: half the work of a full product.
On a GPU by torch.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from scipy.linalg import blas, lapack
from torch import Tensor


class SolveFailed(ArithmeticError):
    """Arithmetic that broke down: numbers that are not finite, or a lam below the rounding errors of the features."""


class Gram(Protocol):
    """An m x m matrix G, zero at first."""

    def add(self, vectors: Tensor) -> None:
        """G += vectors^T vectors. vectors: (any, m), in C or Fortran order."""
        ...

    def subtract_mean(self, mean: Tensor, points: int) -> None:
        """The Gram matrix of centred features: G -= points * mean mean^T. mean: (m,) float64."""
        ...

    def centre(self) -> None:
        """The kernel of centred features: H G H with H = I - 1 1^T / m."""
        ...

    def factorise(self, lam: float) -> None:
        """G becomes the Cholesky factor of G + lam I. Raises: SolveFailed."""
        ...

    def solve(self, right: Tensor) -> Tensor:
        """(G + lam I)^-1 right, after `factorise`. right, and returned: (m, k) float64."""
        ...


class BlasGram:
    """`Gram` on a CPU: the lower triangle of a Fortran-ordered array.

    dtype: float64 or float32.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float64) -> None:
        double = dtype == torch.float64
        self._dtype: Any = np.float64 if double else np.float32
        self.matrix = np.zeros((size, size), dtype=self._dtype, order="F")
        self._syrk = blas.dsyrk if double else blas.ssyrk
        self._syr = blas.dsyr if double else blas.ssyr
        self._symv = blas.dsymv if double else blas.ssymv
        self._syr2 = blas.dsyr2 if double else blas.ssyr2
        self._potrf = lapack.dpotrf if double else lapack.spotrf
        self._potrs = lapack.dpotrs if double else lapack.spotrs

    def add(self, vectors: Tensor) -> None:
        array = np.asarray(vectors.numpy(), dtype=self._dtype)
        # BLAS wants Fortran order: vectors in C order are given transposed, which copies nothing.
        transposed = array.flags.c_contiguous
        self.matrix = self._syrk(
            1.0,
            array.T if transposed else array,
            trans=0 if transposed else 1,
            beta=1.0,
            c=self.matrix,
            lower=1,
            overwrite_c=1,
        )

    def subtract_mean(self, mean: Tensor, points: int) -> None:
        vector = mean.numpy().astype(self._dtype)
        self.matrix = self._syr(-float(points), vector, a=self.matrix, lower=1, overwrite_a=1)

    def centre(self) -> None:
        size = len(self.matrix)
        ones = np.ones(size, dtype=self._dtype)
        mean = self._symv(1.0 / size, self.matrix, ones, lower=1)
        # H G H = G - 1 u^T - u 1^T with u = G 1 / m - (1^T G 1 / m^2) / 2
        self.matrix = self._syr2(-1.0, ones, mean - mean.mean() / 2, a=self.matrix, lower=1, overwrite_a=1)

    def factorise(self, lam: float) -> None:
        np.einsum("ii->i", self.matrix)[:] += lam
        self.matrix, info = self._potrf(self.matrix, lower=1, overwrite_a=1, clean=0)
        if info != 0 or not np.isfinite(np.einsum("ii->i", self.matrix)).all():
            raise SolveFailed(f"Cholesky of a {len(self.matrix)} x {len(self.matrix)} matrix broke down")

    def solve(self, right: Tensor) -> Tensor:
        solution, _ = self._potrs(self.matrix, right.numpy().astype(self._dtype), lower=1)
        return torch.from_numpy(np.ascontiguousarray(solution, dtype=np.float64))


class TorchGram:
    """`Gram` in torch, for a GPU. It is the full matrix: cuBLAS is used through products, not rank-k updates.

    dtype: float64 or float32.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float64, device: str | torch.device = "cuda") -> None:
        self.matrix = torch.zeros(size, size, dtype=dtype, device=device)

    def add(self, vectors: Tensor) -> None:
        vectors = vectors.to(self.matrix.dtype)
        self.matrix.addmm_(vectors.T, vectors)

    def subtract_mean(self, mean: Tensor, points: int) -> None:
        vector = mean.to(self.matrix.dtype)
        self.matrix.addr_(vector, vector, alpha=-points)

    def centre(self) -> None:
        mean = self.matrix.mean(0)
        ones = torch.ones_like(mean)
        offset = mean - mean.mean() / 2
        self.matrix.addr_(ones, offset, alpha=-1).addr_(offset, ones, alpha=-1)

    def factorise(self, lam: float) -> None:
        self.matrix.diagonal().add_(lam)
        self.matrix, info = torch.linalg.cholesky_ex(self.matrix)
        if int(info) != 0 or not bool(torch.isfinite(self.matrix.diagonal()).all()):
            raise SolveFailed(f"Cholesky of a {len(self.matrix)} x {len(self.matrix)} matrix broke down")

    def solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right.to(self.matrix.dtype), self.matrix).double()


def make_gram(size: int, device: torch.device, dtype: torch.dtype = torch.float64) -> Gram:
    """A zero matrix of this size where the features are."""
    return BlasGram(size, dtype) if device.type == "cpu" else TorchGram(size, dtype, device)
