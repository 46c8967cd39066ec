"""Symmetric positive definite matrices: accumulated by rank-k updates, centred, factorised by Cholesky.

On a CPU by BLAS and LAPACK through SciPy, of which only the lower triangle is touched: half the work of a full product.
On a GPU by torch.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from torch import Tensor

from archray.trainables.feature_maps.features import DenseFeatures, blocks

# oneDNN's kernels for CPUs without VNNI add 128 to one operand and sum two products in 16 bits, where they saturate
# without a word: 79 is the most with (79 + 128) * 79 * 2 < 2^15, exact on every CPU.
LEVELS = 79
PANEL = 768  # rows of a panel of the triangle: wide enough for the BLAS, and little beyond the diagonal is computed
LONGEST = 2**31 // LEVELS**2  # products whose sum an int32 holds
QUANTISED_ROWS = 256  # at once, within the cache


class SolveFailed(ArithmeticError):
    """Arithmetic that broke down: numbers that are not finite, or a lam below the rounding errors of the features."""


class BlasGram:
    """An m x m matrix G on a CPU, zero at first: the lower triangle of a Fortran-ordered array.

    dtype: float64 or float32.
    """

    def __init__(self, size: int, dtype: torch.dtype = torch.float64) -> None:
        self.matrix = np.zeros((size, size), dtype="float64" if dtype == torch.float64 else "float32", order="F")
        self._dtype = self.matrix.dtype
        self._syrk, self._syr, self._symv, self._syr2 = get_blas_funcs(("syrk", "syr", "symv", "syr2"), (self.matrix,))
        self._potrf, self._potrs = get_lapack_funcs(("potrf", "potrs"), (self.matrix,))

    def add(self, vectors: Tensor) -> None:
        """G += vectors^T vectors. vectors: (any, m), in C or Fortran order."""
        array = np.asarray(vectors.numpy(), dtype=self._dtype)
        # BLAS wants Fortran order: vectors in C order are given transposed, which copies nothing.
        given, trans = (array.T, 0) if array.flags.c_contiguous else (array, 1)
        self.matrix = self._syrk(1.0, given, trans=trans, beta=1.0, c=self.matrix, lower=1, overwrite_c=1)

    def subtract_mean(self, mean: Tensor, points: int) -> None:
        """The Gram matrix of centred features: G -= points * mean mean^T. mean: (m,) float64."""
        vector = mean.numpy().astype(self._dtype)
        self.matrix = self._syr(-float(points), vector, a=self.matrix, lower=1, overwrite_a=1)

    def centre(self) -> None:
        """The kernel of centred features: H G H with H = I - 1 1^T / m."""
        size = len(self.matrix)
        ones = np.ones(size, dtype=self._dtype)
        mean = self._symv(1.0 / size, self.matrix, ones, lower=1)
        # H G H = G - 1 u^T - u 1^T with u = G 1 / m - (1^T G 1 / m^2) / 2
        self.matrix = self._syr2(-1.0, ones, mean - mean.mean() / 2, a=self.matrix, lower=1, overwrite_a=1)

    def factorise(self, lam: float) -> None:
        """G becomes the Cholesky factor of G + lam I. Raises: SolveFailed."""
        np.einsum("ii->i", self.matrix)[:] += lam
        self.matrix, info = self._potrf(self.matrix, lower=1, overwrite_a=1, clean=0)
        if info != 0 or not np.isfinite(np.einsum("ii->i", self.matrix)).all():
            raise SolveFailed(f"Cholesky of a {len(self.matrix)} x {len(self.matrix)} matrix broke down")

    def solve(self, right: Tensor) -> Tensor:
        """(G + lam I)^-1 right, after `factorise`. right, and returned: (m, k) float64."""
        solution, _ = self._potrs(self.matrix, right.numpy().astype(self._dtype), lower=1)
        return torch.from_numpy(np.ascontiguousarray(solution, dtype=np.float64))


class TorchGram:
    """`BlasGram` in torch, for a GPU. It is the full matrix: cuBLAS is used through products, not rank-k updates.

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


Gram = BlasGram | TorchGram


def make_gram(size: int, device: torch.device, dtype: torch.dtype = torch.float64) -> Gram:
    """A zero matrix of this size where the features are."""
    return BlasGram(size, dtype) if device.type == "cpu" else TorchGram(size, dtype, device)


# Of features rounded to 8 bits: a preconditioner at a quarter of float32's cost on CPUs with VNNI


def int8_gram(features: DenseFeatures, *, dual: bool) -> BlasGram:
    """Centred Gram matrix (d, d), or kernel (n, n) if `dual`, of features rounded to 8 bits; float32, on the CPU.

    The rounding error of a feature is at most 1/158 of the largest; centred with the rounded features' own mean, the
    matrix stays positive semidefinite.
    """
    rounded, scale, sums = quantise(features.matrix)
    vectors = rounded.T if dual else rounded  # (long, m)
    length, size = vectors.shape
    gram = BlasGram(size, torch.float32)
    lower = torch.from_numpy(gram.matrix.T)  # the upper triangle of the C-ordered view is the lower of the other
    for part in blocks(length, LONGEST):
        for columns in blocks(size, PANEL):
            panel = vectors[part, columns].T
            # Private to torch, and public nowhere: the one product of bytes that it has for CPUs.
            lower[columns, columns.start :] += torch._int_mm(panel, vectors[part, columns.start :])
    gram.matrix *= np.float32(scale**2)
    if dual:
        gram.centre()
    else:
        gram.subtract_mean(sums * (scale / length), length)
    return gram


def quantise(matrix: Tensor) -> tuple[Tensor, float, Tensor]:
    """Whole numbers (n, d) int8, the scale with which they are about `matrix`, and their sums (d,) float64."""
    low, high = torch.aminmax(matrix)
    scale = max(-float(low), float(high)) / LEVELS or 1.0
    rounded = torch.empty(matrix.shape, dtype=torch.int8)
    sums = torch.zeros(matrix.shape[1], dtype=torch.float64)
    for rows in blocks(len(matrix), QUANTISED_ROWS):
        block = (matrix[rows] * (1 / scale)).round_()
        rounded[rows] = block
        sums += block.sum(0)
    return rounded, scale, sums
