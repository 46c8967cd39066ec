"""Gaussian processes over architectures with a kernel of metrics' ranks and codes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import ndtr

from archray.searchers.arguments import FloatArray, IntArray
from archray.searchers.bayesian_optimization import normal_scores

# Gaussian process

SMALLEST = 1e-12  # lower limit of a variance, which rounding makes negative at observed rows
GROWTH = 32  # number of rows by which the arrays grow


@dataclass(frozen=True)
class Posterior:
    """The posterior of a Gaussian process over n rows.

    Args:
        mean: (n,) the posterior means.
        deviation: (n,) the posterior standard deviations of the values without noise.
        evidence: log marginal likelihood of the available targets.
    """

    mean: FloatArray
    deviation: FloatArray
    evidence: float


class PoolProcess:
    """A Gaussian process over the n rows of a pool, observed row by row. Rasmussen and Williams 2006, ch. 2 and 5.

    Observation t costs O(t n): with L the Cholesky factor of the observed rows' kernel with noise, the rows of
    V = L^-1 K (t, n) give the means and variances of all n rows. While results are pending, `posterior` also factorizes
    the covariance of the rows with results, in O(t^3).

    Args:
        kernel_row: row -> (n,), the covariance of that row with every row, without noise.
        variance: (n,) the kernel's diagonal.
        mean: (n,) the prior mean.
        noise: variance of an observation around its row's value.
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
        """Makes `rows` the observed rows, in this order; reuses the computations for the common prefix."""
        pairs = enumerate(zip(self.rows, rows, strict=False))
        same = next((t for t, (old, new) in pairs if old != new), min(len(self.rows), len(rows)))
        if same < len(self.rows):
            self.rows = self.rows[:same]
            self._variance = self._prior_variance - (self._solved[:same] ** 2).sum(axis=0)
        for row in rows[same:]:
            self._append(int(row))

    def _append(self, row: int) -> None:
        t, n = len(self.rows), len(self._variance)
        if t == len(self._solved):
            factor, solved = np.zeros((t + GROWTH, t + GROWTH)), np.empty((t + GROWTH, n))
            factor[:t, :t], solved[:t] = self._factor, self._solved
            self._factor, self._solved = factor, solved
        below = self._solved[:t, row]  # (t,) the new row of L, left of its diagonal
        diagonal = np.sqrt(max(self._variance[row], SMALLEST) + self._noise)
        self._factor[t, :t], self._factor[t, t] = below, diagonal
        self._solved[t] = (self._kernel_row(row) - below @ self._solved[:t]) / diagonal
        self._variance -= self._solved[t] ** 2
        self.rows.append(row)

    def posterior(self, targets: Sequence[float | None]) -> Posterior:
        """Returns the posterior given the targets of the observed rows; None is a pending result.

        A pending row reduces the uncertainty of its neighbors but changes no mean, as if its result were the expected
        value (kriging believer, Ginsbourger et al. 2010).
        """
        t = len(self.rows)
        factor = self._factor[:t, :t]
        residual = np.array([0.0 if target is None else target for target in targets]) - self._mean[self.rows]  # (t,)
        available = np.array([target is not None for target in targets], dtype=bool)
        root, available_residual = factor, residual[available]
        if not available.all():
            covariance = factor @ factor.T
            root = cholesky(covariance[np.ix_(available, available)], lower=True, check_finite=False)
            residual[~available] = 0.0
            if available.any():
                solution = cho_solve((root, True), available_residual, check_finite=False)
                residual[~available] = covariance[np.ix_(~available, available)] @ solution
        whitened = solve_triangular(factor, residual, lower=True, check_finite=False)
        deviation = np.sqrt(np.maximum(self._variance, SMALLEST))
        evidence = _log_density(root, available_residual)
        return Posterior(self._mean + whitened @ self._solved[:t], deviation, evidence)


def _log_density(factor: FloatArray, residual: FloatArray) -> float:
    """Returns log N(residual; 0, L L^T)."""
    whitened = solve_triangular(factor, residual, lower=True, check_finite=False)
    constant = len(residual) / 2 * np.log(2 * np.pi)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum() - constant)


# Kernel

RANK_LENGTH = 0.35  # length scale of the smooth part, in ranks from 0 to 1, per metric
COUNT_LENGTH = 1.4  # length scale of the counts' part, in standard deviations of all counts together
HEAD = 1.5  # scores are clipped here, at the quantile 0.93
UNIT = 1.15  # restores the variance of clipped scores to 1
CODE_DECAY = 2.0  # of the encoding's part: exp(-2) for two architectures that differ everywhere
RAREST = 0.01  # minimum share of rows with a counted code, which excludes numbers that are unique to a row


@dataclass(frozen=True)
class KernelSetting:
    """Variances of the surrogate's parts, in units of the results' normal scores.

    Args:
        offset: variance of the common mean of all results, since results are not a random sample.
        linear: variance of the metrics' weights around their prior mean, summed over the metrics.
        smooth: variance of a smooth function of the metrics' ranks.
        encoding: variance of a function of the architecture's codes, position by position.
        counts: variance of a function of the counts of codes in the architecture, at any position.
        noise: variance of a result that metrics and codes do not explain.
        prior: prior mean of the sum of the metrics' weights: 1 trusts the metrics, all alike; 0 does not.

    Example:
        ```python
        setting = KernelSetting(prior=0.0)  # do not trust the metrics before the first results
        search = RankSurrogateSearch("pool.csv", setting=setting, metric="accuracy", mode="max")
        ```
    """

    offset: float = 2.0
    linear: float = 0.8
    smooth: float = 0.8
    encoding: float = 0.5
    counts: float = 2.5
    noise: float = 0.15
    prior: float = 1.0

    @property
    def parts(self) -> FloatArray:
        """(5,) the variances of the kernel's parts."""
        return np.array([self.offset, self.linear, self.smooth, self.encoding, self.counts])

    @property
    def hypotheses(self) -> "tuple[KernelSetting, ...]":
        """Three hypotheses: metrics and codes are informative; only the codes are; only the metrics are."""
        return self, replace(self, linear=0.0, smooth=0.0, prior=0.0), replace(self, encoding=0.0, counts=0.0)


class RankKernel:
    """The kernel over n architectures, for any `KernelSetting`.

    k(a, b) = offset + linear z_a . z_b / m + smooth exp(-|u_a - u_b|^2 / (2 l^2 m)) + encoding exp(-2 h(a, b))
    + counts exp(-|c_a - c_b|^2 / (2 r^2)), with z the metrics' normal scores, clipped at HEAD, u their ranks in (0, 1),
    h the share of codes in which a and b differ, and c the counts of each code, scaled to a total variance of 1.
    The linear part follows from normally distributed weights of the metrics. Its scores are clipped, since good
    architectures are in the first tenth of a useful metric but rarely at its very top, where a search would stay.
    The counts are included since the operations of a cell are more informative than their positions.

    Args:
        scores: (n, m) normal scores of the metrics; m may be 0.
        codes: (n, d) categorical codes; d may be 0.
    """

    def __init__(self, scores: FloatArray, codes: IntArray) -> None:
        self.scores = UNIT * np.clip(scores, -HEAD, HEAD)
        self._ranks = ndtr(scores)
        self._rank_squares = (self._ranks**2).sum(axis=1)
        varying = codes[:, (codes != codes[:1]).any(axis=0)]
        self._codes = np.ascontiguousarray(varying.T, dtype=np.int32)  # (d, n)
        self._decay = np.exp(-CODE_DECAY * np.arange(len(self._codes) + 1) / max(len(self._codes), 1))
        self._counts = counts_of(varying)
        self._count_squares = (self._counts**2).sum(axis=1)
        self._last: tuple[int, FloatArray] | None = None

    def mean(self, setting: KernelSetting) -> FloatArray:
        """Returns the prior mean, (n,)."""
        return setting.prior * self.scores.sum(axis=1) / max(self.scores.shape[1], 1)

    def variance(self, setting: KernelSetting) -> FloatArray:
        """Returns the kernel's diagonal, (n,)."""
        n, metrics = self.scores.shape
        parts = np.ones((5, n))
        parts[1] = (self.scores**2).sum(axis=1) / max(metrics, 1)
        parts[2:] *= np.array([[metrics > 0], [len(self._codes) > 0], [self._counts.shape[1] > 0]])
        return setting.parts @ parts

    def row(self, row: int, setting: KernelSetting) -> FloatArray:
        """Returns the covariance of architecture `row` with all architectures, (n,)."""
        if self._last is None or self._last[0] != row:  # callers request a row for all settings before the next row
            self._last = row, self._parts(row)
        return setting.parts @ self._last[1]

    def _parts(self, row: int) -> FloatArray:
        """Returns the kernel's parts for architecture `row`, each with variance 1, (5, n)."""
        n, metrics = self.scores.shape
        parts = np.zeros((5, n))
        parts[0] = 1.0
        if metrics:
            parts[1] = self.scores @ self.scores[row] / metrics
            parts[2] = _gaussian(self._ranks, self._rank_squares, row, RANK_LENGTH * np.sqrt(metrics))
        if len(self._codes):
            differing = np.zeros(n, dtype=np.int32)
            for place in self._codes:
                differing += place != place[row]
            parts[3] = self._decay[differing]
        if self._counts.shape[1]:
            parts[4] = _gaussian(self._counts, self._count_squares, row, COUNT_LENGTH)
        return parts


def counts_of(codes: IntArray) -> FloatArray:
    """Returns how often each of v codes occurs in a row, scaled to a total variance of 1, (n, d) -> (n, v).

    Codes that occur in few rows, or equally often in every row, are left out; v may be 0.
    """
    counts = np.zeros((len(codes), 0))
    for value in np.unique(codes):
        equal = codes == value
        count = equal.sum(axis=1)
        if equal.any(axis=1).mean() >= RAREST and count.any() and count.std() > 0:
            counts = np.column_stack([counts, count])
    return counts / np.sqrt(counts.var(axis=0).sum()) if counts.shape[1] else counts


def _gaussian(places: FloatArray, squares: FloatArray, row: int, length: float) -> FloatArray:
    """Returns exp(-|p - p_row|^2 / (2 length^2)), (n,), of places (n, k) with the squared norms `squares`."""
    distance = squares + squares[row] - 2 * places @ places[row]
    return np.exp(-np.maximum(distance, 0.0) / (2 * length**2))


# Normal scores of metrics and results


def metric_scores(columns: FloatArray) -> FloatArray:
    """Returns the normal scores of each metric, (n, m) -> (n, m).

    A missing value gets the sum of its row's other scores over m. This is near their mean if few values are missing,
    and near 0, the median, if most are: a single metric says little about the others.
    """
    if not columns.shape[1]:
        return np.zeros(columns.shape)
    scores = np.stack([normal_scores(column) for column in columns.T], axis=1)
    return np.where(np.isfinite(scores), scores, np.nan_to_num(scores).mean(axis=1, keepdims=True))


def result_scores(losses: Sequence[float | None]) -> list[float | None]:
    """Returns the normal scores of losses; the smallest loss has the largest score, and None stays None."""
    scores = normal_scores(np.array([np.nan if loss is None else -loss for loss in losses]))
    return [None if loss is None else float(score) for loss, score in zip(losses, scores, strict=True)]


# Surrogate

KAPPA = 1.5  # standard deviations above the mean; with 0.5 searches did not leave their first region


class RankSurrogate:
    """A mixture of Gaussian processes over n architectures, one for each hypothesis.

    Args:
        scores: (n, m) normal scores of the metrics, see `RankKernel`.
        codes: (n, d) categorical codes, see `RankKernel`.
        setting: variances of the kernel's parts; None: the defaults of `KernelSetting`.
        kappa: standard deviations above the mean in the upper confidence bound.
        hypotheses: one setting per Gaussian process; None: `setting.hypotheses`.
    """

    def __init__(
        self,
        scores: FloatArray,
        codes: IntArray,
        setting: KernelSetting | None = None,
        kappa: float = KAPPA,
        hypotheses: Sequence[KernelSetting] | None = None,
    ) -> None:
        self._hypotheses = tuple(hypotheses or (setting or KernelSetting()).hypotheses)
        self.kappa = kappa
        self._kernel = kernel = RankKernel(scores, codes)
        self.scores = kernel.scores  # clipped, as in the kernel's linear part
        self._processes = [
            PoolProcess(partial(kernel.row, setting=s), kernel.variance(s), kernel.mean(s), s.noise)
            for s in self._hypotheses
        ]

    def upper_bounds(self, rows: Sequence[int], losses: Sequence[float | None]) -> FloatArray:
        """Returns the upper confidence bound of each architecture's result, in normal scores, (n,).

        Args:
            rows: the architectures evaluated or in flight, in the order of suggestion.
            losses: their losses, smaller is better; None for a pending result.
        """
        posteriors = self.posteriors(rows, result_scores(losses))
        bounds = np.stack([posterior.mean + self.kappa * posterior.deviation for posterior in posteriors])
        return mixture([posterior.evidence for posterior in posteriors]) @ bounds

    def metric_weights(self, rows: Sequence[int], losses: Sequence[float]) -> FloatArray:
        """Returns the weight of each metric's normal score in the posterior mean, given these results, (m,).

        The weights and the evidence need only the kernel of the t rows with results, which takes O(t n + t^3).
        """
        kernel, indices, targets = self._kernel, list(rows), np.array(result_scores(losses))
        scores, metrics = kernel.scores[indices], kernel.scores.shape[1]
        covariances = np.empty((len(self._hypotheses), len(indices), len(indices)))
        for place, row in enumerate(indices):
            for covariance, hypothesis in zip(covariances, self._hypotheses, strict=True):
                covariance[place] = kernel.row(row, hypothesis)[indices]
        weights, evidence = [], []
        for covariance, hypothesis in zip(covariances, self._hypotheses, strict=True):
            root = cholesky(covariance + hypothesis.noise * np.eye(len(indices)), lower=True, check_finite=False)
            residual = targets - kernel.mean(hypothesis)[indices]
            solved = cho_solve((root, True), residual, check_finite=False)
            weights.append((hypothesis.prior + hypothesis.linear * scores.T @ solved) / max(metrics, 1))
            evidence.append(_log_density(root, residual))
        return mixture(evidence) @ np.array(weights)

    def posteriors(self, rows: Sequence[int], targets: Sequence[float | None]) -> list[Posterior]:
        """Returns the posterior of each hypothesis, in normal scores; `mixture` weights them by evidence.

        Args:
            rows: as in `upper_bounds`.
            targets: the normal scores of their results; None for a pending result.
        """
        for process in self._processes:
            process.observe(rows)
        return [process.posterior(targets) for process in self._processes]


def mixture(evidence: Sequence[float]) -> FloatArray:
    """Returns the posterior probability of each hypothesis under equal priors, softmax of the log evidence, (s,)."""
    weights = np.exp(np.array(evidence) - max(evidence))
    return weights / weights.sum()
