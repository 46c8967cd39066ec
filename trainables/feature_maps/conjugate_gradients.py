"""Preconditioned conjugate gradients (Golub and Van Loan, section 11.5), and the products they need of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn
from torch import Tensor

from archray.plurals import count

CACHE_BYTES = 2**20  # of a block in float64: about a core's second-level cache
GPU_ROWS = 2**15


class NotConverged(ArithmeticError):
    """Conjugate gradients that did not reach the tolerance: the preconditioner is too far from the matrix."""


def conjugate_gradients(
    multiply: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    right: Tensor,
    *,
    tolerance: float,
    limit: int,
) -> tuple[Tensor, int]:
    """Solves A x = right for a positive definite A and several right-hand sides at once.

    Args:
        multiply: x -> A x. precondition: r -> M^-1 r, with M near A. Both of (m, k) float64.
        right: (m, k), k right-hand sides, each with its own step sizes.
        tolerance: on the error of x in the norm of A, estimated by that of M, relative to x: for ridge regression
            the error of the predictions and of sqrt(lam) w together.
        limit: iterations at most.

    Returns: x (m, k), the number of iterations. Raises: NotConverged.
    """
    solution = torch.zeros_like(right)
    residual = right.clone()
    preconditioned = precondition(residual)
    direction = preconditioned.clone()
    squared = (residual * preconditioned).sum(0)  # (k,): r^T M^-1 r
    target = tolerance**2 * squared
    for iteration in range(limit + 1):
        if bool((squared <= target).all()):
            return solution, iteration
        if iteration == limit or not bool(torch.isfinite(squared).all()):
            break
        product = multiply(direction)
        step = _ratio(squared, (direction * product).sum(0))
        solution += step * direction
        residual -= step * product
        preconditioned = precondition(residual)
        before, squared = squared, (residual * preconditioned).sum(0)
        direction = preconditioned + _ratio(squared, before) * direction
    raise NotConverged(f"conjugate gradients did not reach {tolerance:g} within {count(limit, 'iteration')}")


def _ratio(one: Tensor, other: Tensor) -> Tensor:
    """one / other; 0 where other is 0: that right-hand side is solved exactly."""
    return torch.where(other == 0, torch.zeros_like(one), one / torch.where(other == 0, 1.0, other))


# Products of a tall matrix with a few vectors, in float64 whatever the matrix is in, at the speed of its reading: on a
# CPU rows are shared out among threads that each have BLAS to themselves, blocks that fit a core's cache are converted
# and used at once, and no thread waits for another before the end.


def times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """matrix @ vectors. matrix: (n, d) float32 or float64. vectors: (d, k) float64. Returns: (n, k) float64."""
    return torch.cat(_by_parts(matrix, vectors, lambda block, vectors, part: block @ vectors, _joined))


def transpose_times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """matrix^T @ vectors. vectors: (n, k) float64. Returns: (d, k) float64."""
    return torch.stack(_by_parts(matrix, vectors, lambda block, vectors, part: block.T @ vectors[part], sum)).sum(0)


def normal_times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """matrix^T @ matrix @ vectors in one reading of the matrix. vectors, and returned: (d, k) float64."""
    return torch.stack(_by_parts(matrix, vectors, lambda block, vectors, part: block.T @ (block @ vectors), sum)).sum(0)


def _joined(products: Iterator[Any]) -> Any:
    parts = list(products)
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else torch.cat(parts)


def _by_parts(
    matrix: Tensor, vectors: Tensor, multiply: Callable[[Any, Any, slice], Any], join: Callable[[Iterator[Any]], Any]
) -> list[Tensor]:
    """Of each part of the rows, as many as threads, the joined products of its blocks; NumPy's arrays on a CPU."""
    n = len(matrix)

    def work(matrix: Any, vectors: Any, rows: range) -> Any:
        return join(multiply(block, vectors, part) for part, block in _double_blocks(matrix, rows))

    if matrix.device.type != "cpu":
        return [work(matrix, vectors, range(n))]
    threads = min(torch.get_num_threads(), n)
    parts = [range(n * i // threads, n * (i + 1) // threads) for i in range(threads)]
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
