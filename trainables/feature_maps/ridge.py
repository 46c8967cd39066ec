"""Ridge regression in closed form, its Gram matrices, and preconditioned conjugate gradients.

Khodak et al. 2020, section 2; Golub and Van Loan, section 11.5; note W7.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import get_blas_funcs, get_lapack_funcs
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # comes with scikit-learn
from torch import Tensor

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.feature_maps.features import DenseFeatures, Features, RidgePlan, blocks, keep
from archray.trainables.feature_maps.solve_settings import Precision

CACHE_BYTES = 2**20  # of a block in float64, about a core's second-level cache
GPU_ROWS = 2**15


class NotConverged(ArithmeticError):
    """Conjugate gradients did not reach the tolerance, because the preconditioner is too far from the matrix."""


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
        multiply: x -> A x.
        precondition: r -> M^-1 r, with M near A. Both for (m, k) float64.
        right: (m, k), k right-hand sides, each with separate step sizes.
        tolerance: Tolerance of the error of x in the norm of A, estimated by that of M, relative to x: for ridge
            regression the error of the predictions and of sqrt(lam) w together.
        limit: Maximum number of iterations.

    Returns: x (m, k), the number of iterations.

    Raises: NotConverged.
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


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Returns 0 if the denominator is 0, where that right-hand side is solved exactly."""
    zero = denominator == 0
    return torch.where(zero, torch.zeros_like(numerator), numerator / torch.where(zero, 1.0, denominator))


# Products of a tall matrix with a few vectors, in float64 for any type of the matrix, at the speed of reading it. On a
# CPU, rows are divided among threads with single-threaded BLAS. Blocks that fit into a core's cache are converted and
# used at once, and no thread waits for another before the end.


def times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Computes matrix @ vectors. matrix: (n, d) float32 or float64; vectors: (d, k) float64. Returns (n, k) float64."""
    return torch.cat(_by_parts(matrix, vectors, lambda block, vectors, part: block @ vectors, _joined))


def transpose_times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Computes matrix^T @ vectors. vectors: (n, k) float64. Returns: (d, k) float64."""
    return torch.stack(_by_parts(matrix, vectors, lambda block, vectors, part: block.T @ vectors[part], sum)).sum(0)


def normal_times(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Computes matrix^T @ matrix @ vectors in one pass over the matrix. vectors and result: (d, k) float64."""
    return torch.stack(_by_parts(matrix, vectors, lambda block, vectors, part: block.T @ (block @ vectors), sum)).sum(0)


def _joined(products: Iterator[Any]) -> Any:
    parts = list(products)
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else torch.cat(parts)


def _by_parts(
    matrix: Tensor, vectors: Tensor, multiply: Callable[[Any, Any, slice], Any], join: Callable[[Iterator[Any]], Any]
) -> list[Tensor]:
    """Returns, for each part of the rows (one per thread), the joined products of its blocks; NumPy arrays on a CPU."""
    n = len(matrix)

    def work(matrix: Any, vectors: Any, rows: range) -> Any:
        return join(multiply(block, vectors, part) for part, block in _double_blocks(matrix, rows))

    if matrix.device.type != "cpu":
        return [work(matrix, vectors, range(n))]
    threads = min(torch.get_num_threads(), n)
    parts = [range(n * i // threads, n * (i + 1) // threads) for i in range(threads)]
    arrays = matrix.numpy(), vectors.numpy()
    with _blas().limit(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        return [torch.from_numpy(product) for product in pool.map(lambda rows: work(*arrays, rows), parts)]


def _double_blocks(matrix: Any, rows: range) -> Iterator[tuple[slice, Any]]:
    """Yields rows as float64 in blocks, on a CPU in one buffer."""
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


# Symmetric positive definite matrices: accumulated by rank-k updates, centered, factorized by Cholesky.


# oneDNN's kernels for CPUs without VNNI add 128 to one operand and sum two products in 16 bits, where they saturate
# silently. 79 is the maximum with (79 + 128) * 79 * 2 < 2^15, exact on every CPU.
LEVELS = 79
PANEL = 768  # rows of a panel of the triangle: wide enough for the BLAS, with little work beyond the diagonal
LONGEST = 2**31 // LEVELS**2  # products whose sum fits into an int32
QUANTIZED_ROWS = 256  # at once, within the cache


class SolveFailed(ArithmeticError):
    """Arithmetic failed: infinite or NaN numbers, or a lam below the rounding errors of the features."""


class BlasGram:
    """An m x m matrix G on a CPU, initially zero: the lower triangle of a Fortran-ordered array.

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
        # BLAS needs Fortran order. Transposed vectors in C order need no copy.
        factor, trans = (array.T, 0) if array.flags.c_contiguous else (array, 1)
        self.matrix = self._syrk(1.0, factor, trans=trans, beta=1.0, c=self.matrix, lower=1, overwrite_c=1)

    def subtract_mean(self, mean: Tensor, points: int) -> None:
        """Centers the features of a Gram matrix: G -= points * mean mean^T. mean: (m,) float64."""
        vector = mean.numpy().astype(self._dtype)
        self.matrix = self._syr(-float(points), vector, a=self.matrix, lower=1, overwrite_a=1)

    def center(self) -> None:
        """Centers the features of a kernel: H G H with H = I - 1 1^T / m."""
        size = len(self.matrix)
        ones = np.ones(size, dtype=self._dtype)
        mean = self._symv(1.0 / size, self.matrix, ones, lower=1)
        # H G H = G - 1 u^T - u 1^T with u = G 1 / m - (1^T G 1 / m^2) / 2
        self.matrix = self._syr2(-1.0, ones, mean - mean.mean() / 2, a=self.matrix, lower=1, overwrite_a=1)

    def factorize(self, lam: float) -> None:
        """Replaces G by the Cholesky factor of G + lam I. Raises: SolveFailed."""
        np.einsum("ii->i", self.matrix)[:] += lam
        self.matrix, info = self._potrf(self.matrix, lower=1, overwrite_a=1, clean=0)
        if info != 0 or not np.isfinite(np.einsum("ii->i", self.matrix)).all():
            raise SolveFailed(
                f"expected a positive definite matrix for Cholesky, {len(self.matrix)} x {len(self.matrix)}, got one "
                "that is not; raise lam"
            )

    def solve(self, right: Tensor) -> Tensor:
        """Computes (G + lam I)^-1 right, after `factorize`. right and result: (m, k) float64."""
        solution, _ = self._potrs(self.matrix, right.numpy().astype(self._dtype), lower=1)
        return torch.from_numpy(np.ascontiguousarray(solution, dtype=np.float64))


class TorchGram:
    """`BlasGram` in torch, for a GPU. It stores the full matrix: cuBLAS is used by products, not rank-k updates.

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

    def center(self) -> None:
        mean = self.matrix.mean(0)
        ones = torch.ones_like(mean)
        offset = mean - mean.mean() / 2
        self.matrix.addr_(ones, offset, alpha=-1).addr_(offset, ones, alpha=-1)

    def factorize(self, lam: float) -> None:
        self.matrix.diagonal().add_(lam)
        # In place: the factor is stored in column-major order, and the matrix is symmetric.
        self.matrix, info = self.matrix.mT, torch.empty((), dtype=torch.int32, device=self.matrix.device)
        torch.linalg.cholesky_ex(self.matrix, out=(self.matrix, info))
        if int(info) != 0 or not bool(torch.isfinite(self.matrix.diagonal()).all()):
            raise SolveFailed(
                f"expected a positive definite matrix for Cholesky, {len(self.matrix)} x {len(self.matrix)}, got one "
                "that is not; raise lam"
            )

    def solve(self, right: Tensor) -> Tensor:
        # `torch.cholesky_solve` would copy the matrix.
        half = torch.linalg.solve_triangular(self.matrix, right.to(self.matrix.dtype), upper=False)
        return torch.linalg.solve_triangular(self.matrix.mT, half, upper=True).double()


Gram = BlasGram | TorchGram


def make_gram(size: int, device: torch.device, dtype: torch.dtype = torch.float64) -> Gram:
    """Creates a zero matrix of this size on the device of the features."""
    return BlasGram(size, dtype) if device.type == "cpu" else TorchGram(size, dtype, device)


# Features rounded to 8 bits: a preconditioner at a quarter of float32's cost on CPUs with VNNI


def int8_gram(features: DenseFeatures, *, dual: bool) -> BlasGram:
    """Computes the centered Gram matrix (d, d), or kernel (n, n) if `dual`, of features rounded to 8 bits.

    The result is float32, on the CPU. The rounding error of a feature is at most 1/158 of the largest. With the mean of
    the rounded features for centering, the matrix stays positive semidefinite.
    """
    rounded, scale, sums = quantize(features.matrix)
    vectors = rounded.T if dual else rounded  # (long, m)
    length, size = vectors.shape
    gram = BlasGram(size, torch.float32)
    lower = torch.from_numpy(gram.matrix.T)  # the upper triangle of the C-ordered view is the lower of the other
    for part in blocks(length, LONGEST):
        for columns in blocks(size, PANEL):
            panel = vectors[part, columns].T
            # Private in torch, without a public equivalent: its only product of bytes for CPUs.
            lower[columns, columns.start :] += torch._int_mm(panel, vectors[part, columns.start :])
    gram.matrix *= np.float32(scale**2)
    if dual:
        gram.center()
    else:
        gram.subtract_mean(sums * (scale / length), length)
    return gram


def quantize(matrix: Tensor) -> tuple[Tensor, float, Tensor]:
    """Returns integers (n, d) int8, the scale that converts them to about `matrix`, and their sums (d,) float64."""
    low, high = torch.aminmax(matrix)
    scale = max(-float(low), float(high)) / LEVELS or 1.0
    rounded = torch.empty(matrix.shape, dtype=torch.int8)
    sums = torch.zeros(matrix.shape[1], dtype=torch.float64)
    for rows in blocks(len(matrix), QUANTIZED_ROWS):
        block = (matrix[rows] * (1 / scale)).round_()
        rounded[rows] = block
        sums += block.sum(0)
    return rounded, scale, sums


# Ridge regression, all classes in one factorization.


logger = logging.getLogger(__name__)

TOLERANCE = 1e-8  # relative, of predictions; a hundredth of the precision of float32 features
MAX_ITERATIONS = 30  # each reads all features; 2 to 6 are usual, and beyond 30 a float64 Gram matrix is faster


class LinearModel(NamedTuple):
    """A linear model with decision values features @ weights + intercept."""

    weights: Tensor  # (d, K) float64
    intercept: Tensor  # (K,) float64

    def decisions(self, features: Tensor) -> Tensor:
        """Computes decision values (m, K) of dense features (m, d), in the features' precision."""
        return features @ self.weights.to(features.dtype) + self.intercept.to(features.dtype)


class RidgeSolution(NamedTuple):
    """A solution, and how it was computed."""

    model: LinearModel
    gram: Precision  # the arithmetic of the Gram matrix of the solution
    iterations: int  # of conjugate gradients; 0 if the factorization was the solution


def solve_ridge(
    features: Features, targets: Tensor, lam: float, *, gram: Precision = "float64", memory_gib: float = 4.0
) -> RidgeSolution:
    """Computes the minimizer for K targets at once.

    Args:
        features: (n, d).
        targets: (n, K), on the same device.
        gram: See `SolveSettings`; predictions are equal to better than 1e-6 for all values.
        memory_gib: Upper bound on the memory, without the features' inputs.

    Raises: InvalidInput if the smaller side does not fit into `memory_gib`, or for int8 on a GPU; SolveFailed for
        infinite or NaN features.
    """
    if gram == "int8" and features.device.type != "cpu":
        raise InvalidInput("expected gram float64 or float32 on a GPU, got int8. Choose float32")
    plan = RidgePlan.make(*features.shape, targets.shape[1], memory_gib=memory_gib, gram=gram)
    targets = targets.double()
    mean = targets.mean(0)  # (K,)
    centered = targets - mean
    if plan.keep:
        features = keep(features, plan.rows)
    if plan.gram != "float64":
        assert isinstance(features, DenseFeatures)  # such a plan keeps them
        try:
            return solve_preconditioned(features, centered, mean, lam, plan)
        except (SolveFailed, NotConverged) as error:
            logger.warning(
                "archray solves with a float64 Gram matrix, as the %s one failed for lam = %g: %s",
                plan.gram,
                lam,
                error,
            )
    solve = solve_dual if plan.dual else solve_primal
    return RidgeSolution(solve(features, centered, mean, lam, plan), "float64", 0)


def solve_primal(features: Features, targets: Tensor, mean: Tensor, lam: float, plan: RidgePlan) -> LinearModel:
    """Computes w = (X^T H X + lam I)^-1 X^T y with y centered and H the centering matrix."""
    n, d = features.shape
    gram = make_gram(d, features.device)
    right = torch.zeros(d, targets.shape[1], dtype=torch.float64, device=features.device)
    total = torch.zeros(d, dtype=torch.float64, device=features.device)
    for rows in blocks(n, plan.rows):
        block = features.block(rows).double()  # (rows, d)
        gram.add(block)
        right.addmm_(block.T, targets[rows])
        total += block.sum(0)
    feature_mean = total / n
    gram.subtract_mean(feature_mean, n)
    gram.factorize(lam)
    weights = gram.solve(right)
    return LinearModel(weights, mean - feature_mean @ weights)


def solve_dual(features: Features, targets: Tensor, mean: Tensor, lam: float, plan: RidgePlan) -> LinearModel:
    """Computes w = X^T a with (H X X^T H + lam I) a = y. The entries of a sum to zero, so w needs no centering."""
    n, d = features.shape
    gram = make_gram(n, features.device)
    for columns in blocks(d, plan.columns):
        gram.add(features.block(slice(0, n), columns).double().T)  # (columns, n)
    gram.center()
    gram.factorize(lam)
    dual = gram.solve(targets)  # (n, K)
    weights = torch.empty(d, dual.shape[1], dtype=torch.float64, device=features.device)
    feature_mean = torch.empty(d, dtype=torch.float64, device=features.device)
    for columns in blocks(d, plan.columns):
        block = features.block(slice(0, n), columns).double()  # (n, columns)
        weights[columns] = block.T @ dual
        feature_mean[columns] = block.mean(0)
    return LinearModel(weights, mean - feature_mean @ weights)


def solve_preconditioned(
    features: DenseFeatures, targets: Tensor, mean: Tensor, lam: float, plan: RidgePlan
) -> RidgeSolution:
    """Solves by conjugate gradients in float64, with the factorized cheaper Gram matrix as preconditioner."""
    matrix, n = features.matrix, features.shape[0]
    ones = torch.ones(n, 1, dtype=torch.float64, device=features.device)
    sums = transpose_times(matrix, torch.cat([targets, ones], 1))  # (d, K + 1)
    right, feature_mean = sums[:, :-1].contiguous(), sums[:, -1] / n
    gram = _cheap_gram(features, feature_mean, plan)
    gram.factorize(lam)

    def primal(vectors: Tensor) -> Tensor:
        product = normal_times(matrix, vectors).add_(vectors, alpha=lam)
        return product.addmm_(feature_mean[:, None], (feature_mean @ vectors)[None], alpha=-n)

    def dual(vectors: Tensor) -> Tensor:
        product = times(matrix, transpose_times(matrix, vectors - vectors.mean(0)))
        return (product - product.mean(0)).add_(vectors, alpha=lam)

    weights, iterations = conjugate_gradients(
        dual if plan.dual else primal,
        gram.solve,
        targets if plan.dual else right,
        tolerance=TOLERANCE,
        limit=MAX_ITERATIONS,
    )
    if plan.dual:
        weights = transpose_times(matrix, weights)
    return RidgeSolution(LinearModel(weights, mean - feature_mean @ weights), plan.gram, iterations)


def _cheap_gram(features: DenseFeatures, feature_mean: Tensor, plan: RidgePlan) -> Gram:
    """Computes the centered Gram matrix of the smaller side in the plan's arithmetic."""
    if plan.gram == "int8":
        return int8_gram(features, dual=plan.dual)
    n, d = features.shape
    gram = make_gram(n if plan.dual else d, features.device, torch.float32)
    gram.add(features.matrix.T if plan.dual else features.matrix)
    if plan.dual:
        gram.center()
    else:
        gram.subtract_mean(feature_mean, n)
    return gram
