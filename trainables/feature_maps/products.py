"""Products of a tall matrix with a few vectors, in float64 whatever the matrix is in, at the speed of its reading.

On a CPU rows are shared out among threads that each have BLAS to themselves: blocks that fit a core's cache are
converted and used at once, and no thread waits for another before the end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn
from torch import Tensor

CACHE_BYTES = 2**20  # of a block in float64: about a core's second-level cache
GPU_ROWS = 2**15


def times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """matrix @ vectors. matrix: (n, d) float32 or float64. vectors: (d, k) float64. Returns: (n, k) float64."""
    return torch.cat(_by_parts(matrix, vectors, _times))


def transpose_times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """matrix^T @ vectors. vectors: (n, k) float64. Returns: (d, k) float64."""
    return torch.stack(_by_parts(matrix, vectors, _transpose_times)).sum(0)


def normal_times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """matrix^T @ matrix @ vectors in one reading of the matrix. vectors, and returned: (d, k) float64."""
    return torch.stack(_by_parts(matrix, vectors, _normal_times)).sum(0)


# Of some rows; matrix and vectors are NumPy's on a CPU and torch's on a GPU.


def _times(matrix: Any, vectors: Any, rows: range) -> Any:
    parts = [block @ vectors for _, block in _double_blocks(matrix, rows)]
    return np.concatenate(parts) if isinstance(matrix, np.ndarray) else torch.cat(parts)


def _transpose_times(matrix: Any, vectors: Any, rows: range) -> Any:
    return sum(block.T @ vectors[part] for part, block in _double_blocks(matrix, rows))


def _normal_times(matrix: Any, vectors: Any, rows: range) -> Any:
    return sum(block.T @ (block @ vectors) for _, block in _double_blocks(matrix, rows))


def _by_parts(matrix: Tensor, vectors: Tensor, work: Callable[[Any, Any, range], Any]) -> list[Tensor]:
    """What `work` makes of each part of the rows, in their order; as many parts as threads."""
    n = len(matrix)
    if matrix.device.type != "cpu":
        return [work(matrix, vectors, range(n))]
    threads = min(torch.get_num_threads(), n)
    ends = [n * i // threads for i in range(threads + 1)]
    parts = [range(start, stop) for start, stop in itertools.pairwise(ends)]
    arrays = matrix.numpy(), vectors.numpy()
    with _blas().limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        return [torch.from_numpy(made) for made in pool.map(lambda rows: work(*arrays, rows), parts)]


def _double_blocks(matrix: Any, rows: range) -> Iterator[tuple[slice, Any]]:
    """Some rows as float64, a block at a time; on a CPU in one buffer."""
    step = GPU_ROWS
    buffer = None
    if isinstance(matrix, np.ndarray):
        step = max(16, CACHE_BYTES // (8 * matrix.shape[1]))
        buffer = None if matrix.dtype == np.float64 else np.empty((min(step, len(rows)), matrix.shape[1]))
    for start in range(rows.start, rows.stop, step):
        part = slice(start, min(start + step, rows.stop))
        if isinstance(matrix, Tensor):
            yield part, matrix[part].double()
        elif buffer is None:
            yield part, matrix[part]
        else:
            block = buffer[: part.stop - part.start]
            block[:] = matrix[part]
            yield part, block


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()
