"""Dense features of n points, made block by block: what the ridge solver reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

CACHE_ROWS = 128  # so many rows of a few thousand float64 features stay in a core's cache between two products
ALL = slice(None)


class Features(Protocol):
    """An n x d matrix whose blocks are computed when asked for.

    Attributes:
        shape: (n, d).
        device: that the blocks lie on.
    """

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def device(self) -> torch.device: ...

    def block(self, rows: slice, columns: slice = ALL) -> Tensor:
        """The features of contiguous rows and columns: (rows, columns) float32 or float64, C order."""
        ...


class DenseFeatures:
    """Features that exist as one matrix.

    matrix: (n, d) float32 or float64.
    """

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix.contiguous()

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def device(self) -> torch.device:
        return self.matrix.device

    def block(self, rows: slice, columns: slice = ALL) -> Tensor:
        return self.matrix[rows, columns].contiguous()

    def times(self, vectors: Tensor) -> Tensor:
        """features @ vectors. vectors: (d, k) float64. Returns: (n, k) float64."""
        product = torch.empty(self.shape[0], vectors.shape[1], dtype=torch.float64, device=self.device)
        for rows, block in self._in_double():
            product[rows] = _mm(block, vectors)
        return product

    def transpose_times(self, vectors: Tensor) -> Tensor:
        """features^T @ vectors. vectors: (n, k) float64. Returns: (d, k) float64."""
        product = torch.zeros(self.shape[1], vectors.shape[1], dtype=torch.float64, device=self.device)
        for rows, block in self._in_double():
            product += _mm(block.T, vectors[rows])
        return product

    def normal_times(self, vectors: Tensor) -> Tensor:
        """features^T @ features @ vectors in one reading of the features. vectors, and returned: (d, k) float64."""
        product = torch.zeros_like(vectors)
        for _, block in self._in_double():
            product += _mm(block.T, _mm(block, vectors))
        return product

    def _in_double(self) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of rows as float64; on a CPU small ones, which stay in the cache, in one buffer."""
        n, d = self.shape
        step = CACHE_ROWS if self.device.type == "cpu" else max(CACHE_ROWS, n // 8)
        buffer = torch.empty(min(step, n), d, dtype=torch.float64, device=self.device)
        for rows in blocks(n, step):
            if self.matrix.dtype == torch.float64:
                yield rows, self.matrix[rows]
            else:
                block = buffer[: rows.stop - rows.start]
                block.copy_(self.matrix[rows])
                yield rows, block


def keep(features: Features, step: int) -> DenseFeatures:
    """All features as one matrix, computed `step` rows at a time."""
    if isinstance(features, DenseFeatures):
        return features
    n, d = features.shape
    matrix = torch.empty(n, d, device=features.device)
    for rows in blocks(n, step):
        matrix[rows] = features.block(rows)
    return DenseFeatures(matrix)


def blocks(total: int, step: int) -> Iterator[slice]:
    """0..total in slices of `step`, the last one maybe shorter."""
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


def _mm(one: Tensor, other: Tensor) -> Tensor:
    """one @ other. On a CPU by NumPy: for such narrow products its BLAS is faster than the one in torch."""
    if one.device.type == "cpu":
        return torch.from_numpy(np.matmul(one.numpy(), other.numpy()))
    return one @ other
