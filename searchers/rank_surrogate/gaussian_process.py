"""A Gaussian process over the rows of a pool that observes row by row. Rasmussen and Williams 2006, ch. 2 and 5.

Observation t costs O(t n): with L the Cholesky factor of the observed rows' kernel with noise, the rows of
V = L^-1 K (t, n) give mean and variance of all n. While results are pending, `posterior` also factorizes the (t, t)
covariance of the other rows once, in O(t^3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from archray.searchers.arguments import FloatArray

SMALLEST = 1e-12  # of a variance: rounding makes it negative where a row is known
GROWTH = 32  # rows for which room is made at a time


@dataclass(frozen=True)
class Posterior:
    """What a process expects of n rows.

    Args:
        mean: (n,). deviation: (n,) of the value without noise.
        evidence: log marginal likelihood of the targets that are in.
    """

    mean: FloatArray
    deviation: FloatArray
    evidence: float


class PoolProcess:
    """A Gaussian process over n rows.

    Args:
        kernel_row: row -> (n,), the covariance of that row with every row, without noise.
        variance: (n,) of every row, the kernel's diagonal.
        mean: (n,) before any observation.
        noise: variance of an observation about its row's value.
    """

    def __init__(
        self, kernel_row: Callable[[int], FloatArray], variance: FloatArray, mean: FloatArray, noise: float
    ) -> None:
        self._kernel_row = kernel_row
        self._prior_variance = variance
        self._mean = mean
        self._noise = noise
        self.rows: list[int] = []
        self._factor = np.zeros((0, 0))  # L
        self._solved = np.zeros((0, len(variance)))  # V
        self._variance = variance.copy()

    def observe(self, rows: Sequence[int]) -> None:
        """Makes `rows` the observed ones, in this order; those that were observed before, from the first on, stay."""
        same = next((t for t, (old, new) in enumerate(zip(self.rows, rows, strict=False)) if old != new), None)
        same = min(len(self.rows), len(rows)) if same is None else same
        if same < len(self.rows):
            self.rows = self.rows[:same]
            self._variance = self._prior_variance - (self._solved[:same] ** 2).sum(axis=0)
        for row in rows[same:]:
            self._append(int(row))

    def _append(self, row: int) -> None:
        t = len(self.rows)
        if t == len(self._solved):
            self._grow(t + GROWTH)
        below = self._solved[:t, row]  # (t,): the new row of L, left of its diagonal
        diagonal = np.sqrt(max(self._variance[row], SMALLEST) + self._noise)
        self._factor[t, :t], self._factor[t, t] = below, diagonal
        self._solved[t] = (self._kernel_row(row) - below @ self._solved[:t]) / diagonal
        self._variance -= self._solved[t] ** 2
        self.rows.append(row)

    def _grow(self, room: int) -> None:
        t, n = self._solved.shape
        factor, solved = np.zeros((room, room)), np.empty((room, n))
        factor[:t, :t], solved[:t] = self._factor, self._solved
        self._factor, self._solved = factor, solved

    def posterior(self, targets: Sequence[float | None]) -> Posterior:
        """Of every row, given the observed ones' targets; None: observed, but its value is not in yet.

        A pending row takes from the uncertainty about its neighbours and moves no mean, as if it had come out as
        expected (the believer of Ginsbourger et al. 2010).
        """
        t = len(self.rows)
        factor = self._factor[:t, :t]
        values = np.array([0.0 if target is None else target for target in targets])
        residual = values - self._mean[self.rows] if t else values  # (t,)
        evidence = (factor, residual)
        available = np.array([target is not None for target in targets], dtype=bool)
        if not available.all():
            covariance = factor @ factor.T
            root = cholesky(covariance[np.ix_(available, available)], lower=True, check_finite=False)
            evidence = (root, residual[available])
            residual[~available] = 0.0
            if available.any():
                solution = cho_solve((root, True), residual[available], check_finite=False)
                residual[~available] = covariance[np.ix_(~available, available)] @ solution
        whitened = solve_triangular(factor, residual, lower=True, check_finite=False)
        deviation = np.sqrt(np.maximum(self._variance, SMALLEST))
        return Posterior(self._mean + whitened @ self._solved[:t], deviation, _log_density(*evidence))


def _log_density(factor: FloatArray, residual: FloatArray) -> float:
    """log N(residual; 0, L L^T)."""
    whitened = solve_triangular(factor, residual, lower=True, check_finite=False)
    constant = len(residual) / 2 * np.log(2 * np.pi)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum() - constant)
