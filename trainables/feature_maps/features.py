"""Dense features of n points, made block by block: what the ridge solver reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

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
