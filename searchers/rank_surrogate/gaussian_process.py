"""Gaussian processes over the rows of a pool, told one row after another. Rasmussen and Williams 2006, ch. 2 and 5.

Several processes at once, one for each setting of the kernel: they share the rows and the targets. An observation
costs O(t n) for each, t those before it, and nothing is factorised anew: with L the Cholesky factor of the observed
rows' kernel with noise, the rows of V = L^-1 K (t, n) give mean and variance of all n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from archray.searchers.arguments import FloatArray, IntArray

SMALLEST = 1e-12  # of a variance: rounding makes it negative where a row is known
GROWTH = 32  # rows for which room is made at a time


@dataclass(frozen=True)
class Posterior:
    """What s processes expect of n rows: mean (s, n), deviation (s, n) of the value without noise, and log p(targets).

    evidence: (s,) log marginal likelihood of the targets that are known.
    """

    mean: FloatArray
    deviation: FloatArray
    evidence: FloatArray


class PoolProcess:
    """s Gaussian processes over n rows.

    Args:
        kernel_row: row -> (s, n), the covariance of that row with every row, without noise.
        variance: (s, n) of every row, the kernel's diagonal.
        mean: (s, n) before any observation.
        noise: (s,) variance of an observation about its row's value.
    """

    def __init__(
        self, kernel_row: Callable[[int], FloatArray], variance: FloatArray, mean: FloatArray, noise: FloatArray
    ) -> None:
        self._kernel_row = kernel_row
        self._prior_variance = variance
        self._mean = mean
        self._noise = noise
        self.rows: list[int] = []
        settings, n = variance.shape
        self._factor = np.zeros((settings, 0, 0))  # L
        self._solved = np.zeros((settings, 0, n))  # V
        self._variance = variance.copy()

    def observe(self, rows: Sequence[int]) -> None:
        """Makes `rows` the observed ones, in this order; those that were observed before, from the first on, stay."""
        same = next((t for t, (old, new) in enumerate(zip(self.rows, rows, strict=False)) if old != new), None)
        same = min(len(self.rows), len(rows)) if same is None else same
        if same < len(self.rows):
            self.rows = self.rows[:same]
            self._variance = self._prior_variance - np.einsum("stn,stn->sn", *[self._solved[:, :same]] * 2)
        for row in rows[same:]:
            self._append(int(row))

    def _append(self, row: int) -> None:
        t = len(self.rows)
        if t == self._solved.shape[1]:
            self._grow(t + GROWTH)
        below = self._solved[:, :t, row]  # (s, t): the new row of L, left of its diagonal
        solved = self._kernel_row(row)
        for setting in range(len(solved)):
            solved[setting] -= below[setting] @ self._solved[setting, :t]
        diagonal = np.sqrt(np.maximum(self._variance[:, row], SMALLEST) + self._noise)
        solved /= diagonal[:, None]
        self._factor[:, t, :t], self._factor[:, t, t] = below, diagonal
        self._solved[:, t] = solved
        self._variance -= solved**2
        self.rows.append(row)

    def _grow(self, room: int) -> None:
        settings, t, n = self._solved.shape
        factor, solved = np.zeros((settings, room, room)), np.empty((settings, room, n))
        factor[:, :t, :t], solved[:, :t] = self._factor, self._solved
        self._factor, self._solved = factor, solved

    def posterior(self, targets: Sequence[float | None]) -> Posterior:
        """Of every row, given the observed ones' targets; None: observed, but its value is not in yet.

        A pending row takes from the uncertainty about its neighbours and moves no mean, as if it had come out as
        expected (the believer of Ginsbourger et al. 2010).
        """
        t, rows = len(self.rows), np.array(self.rows, dtype=np.int64)
        known = np.array([target is not None for target in targets], dtype=bool)
        values = np.array([0.0 if target is None else target for target in targets])
        mean, evidence = np.empty_like(self._mean), np.zeros(len(self._mean))
        for setting, prior in enumerate(self._mean):
            factor = self._factor[setting, :t, :t]
            residual = values - prior[rows]  # (t,)
            if not known.all():
                residual = _believed(factor, residual, known, float(self._noise[setting]))
            whitened = solve_triangular(factor, residual, lower=True, check_finite=False)
            mean[setting] = prior + whitened @ self._solved[setting, :t]
            evidence[setting] = _evidence(factor, residual, known)
        return Posterior(mean, np.sqrt(np.maximum(self._variance, SMALLEST)), evidence)


def _believed(factor: FloatArray, residual: FloatArray, known: IntArray, noise: float) -> FloatArray:
    """The residuals with those of pending rows as the known ones predict them."""
    covariance = factor @ factor.T
    residual = residual.copy()
    if not known.any():
        residual[:] = 0.0
        return residual
    root = cholesky(covariance[np.ix_(known, known)], lower=True, check_finite=False)
    residual[~known] = covariance[np.ix_(~known, known)] @ cho_solve((root, True), residual[known], check_finite=False)
    return residual


def _evidence(factor: FloatArray, residual: FloatArray, known: IntArray) -> float:
    """log N(residual; 0, L L^T) of the known ones."""
    if not known.all():
        covariance = (factor @ factor.T)[np.ix_(known, known)]
        factor, residual = cholesky(covariance, lower=True, check_finite=False), residual[known]
    whitened = solve_triangular(factor, residual, lower=True, check_finite=False)
    constant = len(residual) / 2 * np.log(2 * np.pi)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum() - constant)
