"""Dense features of n points, computed in blocks; the sizes of the blocks, and the memory that a solve needs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.feature_maps.solve_settings import Precision

FeatureMap = Mapping[str, str | int | float]  # `FeatureMapSpace.configuration` of a string

ALL = slice(None)
GIB = 2**30
BLOCK_BYTES = 13  # per feature of a block: float32, its copy in float64, and the signs of rounding
LARGEST_BLOCK = 2**26  # bytes; larger blocks are no faster
SMALLEST_BLOCK = 64  # rows, or columns; products of smaller blocks are slow


class Features(Protocol):
    """An n x d matrix whose blocks are computed on demand, on `device`."""

    shape: tuple[int, int]
    device: torch.device

    def block(self, rows: slice, columns: slice = ALL) -> Tensor:
        """Returns the features of contiguous rows and columns: (rows, columns) float32 or float64, C order."""
        ...


class DenseFeatures:
    """Features that are stored as one matrix, (n, d) float32 or float64."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix.contiguous()
        self.shape, self.device = (matrix.shape[0], matrix.shape[1]), matrix.device

    def block(self, rows: slice, columns: slice = ALL) -> Tensor:
        return self.matrix[rows, columns].contiguous()


def keep(features: Features, step: int) -> DenseFeatures:
    """Computes all features as one matrix, `step` rows at a time."""
    if isinstance(features, DenseFeatures):
        return features
    matrix = torch.empty(features.shape, device=features.device)
    for rows in blocks(len(matrix), step):
        matrix[rows] = features.block(rows)
    return DenseFeatures(matrix)


def blocks(total: int, step: int) -> Iterator[slice]:
    """Splits 0..total into slices of length `step`; the last may be shorter."""
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


@dataclass(frozen=True)
class RidgePlan:
    """How a ridge problem is solved within its memory."""

    dual: bool  # whether the (n, n) side is factorized, the smaller one, or the (d, d) side
    gram: Precision  # the arithmetic of the Gram matrix
    keep: bool  # whether all features are stored, or computed for each use
    rows: int  # in a block of features
    columns: int

    @classmethod
    def make(cls, n: int, d: int, classes: int, *, memory_gib: float, gram: Precision = "float64") -> "RidgePlan":
        """Returns the fastest plan for n points and d features. Raises: InvalidInput if there is none."""
        needed = ridge_memory(n, d, classes)
        if needed > memory_gib:
            side = "d x d" if d <= n else "n x n"
            raise InvalidInput(
                f"expected memory_gib of at least {needed:.3g} for ridge's {side} Gram matrix of {min(n, d):,} ({n:,} "
                f"points with {d:,} features), got {memory_gib:g}; raise memory_gib, or lower the number of features "
                "or points"
            )
        spare = (memory_gib - needed) * GIB  # beyond the Gram matrix and the smallest blocks
        kept = n * d * (4 + (gram == "int8"))
        dual = n < d
        # The primal form reads the features once in float64 arithmetic, so it does not keep them.
        keep = kept <= spare and (gram != "float64" or dual)
        block = min(max(spare - kept * keep, 0.0), LARGEST_BLOCK) / BLOCK_BYTES  # in features
        return cls(
            dual=dual,
            gram=gram if keep else "float64",
            keep=keep,
            rows=min(n, max(SMALLEST_BLOCK, int(block / d))),
            columns=min(d, max(SMALLEST_BLOCK, int(block / n))),
        )


def ridge_memory(n: int, d: int, classes: int) -> float:
    """Minimum memory of a ridge solve with n points, d features and this number of classes, in GiB (as below)."""
    side = min(n, d)
    block = SMALLEST_BLOCK * (n if n < d else d) * BLOCK_BYTES
    return (8 * side**2 + block) / GIB + vector_memory(n, d, classes)


def dense_memory(n: int, d: int, classes: int) -> float:
    """Memory of a solver of scikit-learn: all features in float32 and in float64, and its vectors."""
    return 12 * n * d / GIB + vector_memory(n, d, classes)


def vector_memory(n: int, d: int, classes: int) -> float:
    """Memory of weights, targets and a solver's arrays of the same sizes."""
    return 24 * classes * (n + d) / GIB


def rows_in_block(d: int) -> int:
    """Returns the number of rows with d features that are scored at once."""
    return max(SMALLEST_BLOCK, LARGEST_BLOCK // (BLOCK_BYTES * d))


def check_fits(needed: float, memory_gib: float, what: str) -> None:
    """Raises: InvalidInput if `what` needs more than `memory_gib`."""
    if needed > memory_gib:
        raise InvalidInput(
            f"expected memory_gib of at least {needed:.3g} for {what}, got {memory_gib:g}; raise memory_gib or lower "
            "the number of features"
        )
