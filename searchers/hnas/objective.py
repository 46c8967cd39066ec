"""The objective kappa/M + mu F(M^2 - nu) over a pool, coordinates of (mu, nu), and fits of both. Shu 2022, Eq. 7.7."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from archray.errors import InvalidInput, InvalidPool
from archray.plurals import count
from archray.searchers.arguments import BoolArray, FloatArray
from archray.searchers.pool_file import PoolFile, check_names, read_numbers

# Pool

Penalty = Literal["square", "absolute"]


@dataclass(frozen=True)
class Pool:
    """The usable rows of a table, in the table's order.

    Args:
        architectures: n strings, one per canonical form.
        metric: (n,) |M| divided by `factor`. In Eq. 7.7 a signed metric such as grasp counts by its magnitude.
        kappa: (n,) condition numbers.
        factor: the largest |M| among these rows.
        excluded: the number of excluded rows, where M is 0, or M or kappa is not finite.
    """

    architectures: Sequence[str]
    metric: FloatArray
    kappa: FloatArray
    factor: float
    excluded: int

    def __len__(self) -> int:
        return len(self.architectures)


def load_pool(file: PoolFile, proxy: str) -> Pool:
    """Loads the pool with `proxy` as M. Raises: InvalidPool, as `PoolFile.read` and `build_pool` do."""
    return build_pool(file.read(["architecture", proxy, "kappa"]), proxy, file.location)


def build_pool(table: pd.DataFrame, proxy: str, source: str = "the pool") -> Pool:
    """Builds the pool from `table`, which has the columns `architecture`, `proxy` and `kappa`.

    Raises: InvalidPool if a column is not numeric, an architecture occurs twice, or no row is usable.
    """
    metric, kappa = (read_numbers(table, name, source) for name in (proxy, "kappa"))
    kept = np.isfinite(metric) & (metric != 0) & np.isfinite(kappa)
    if not kept.any():
        raise InvalidPool(
            f"Expected a finite nonzero {proxy} and a finite kappa in {source}, got none in "
            f"{count(len(table), 'row')}. See the column `failure` for the reasons, and score the pool again."
        )
    names = table.loc[kept, "architecture"]
    check_names(names, source)
    magnitude = np.abs(metric[kept])
    factor = float(magnitude.max())
    return Pool(names.tolist(), magnitude / factor, kappa[kept], factor, int(len(table) - kept.sum()))


# Objective


def objective(
    kappa: FloatArray, metric: FloatArray, mu: float, nu: float, penalty: Penalty = "square", epsilon: float = 0.0
) -> FloatArray:
    """Returns kappa/(M + epsilon) + mu F(M^2 - nu) of every row; lower is better. Shapes (n,), (n,) -> (n,).

    Args:
        kappa: condition numbers of the NTK.
        metric: M, scaled as in `Pool`.
        mu, nu: weight and target of the penalty; nu in the units of M^2.
        penalty: `square`, F(x) = x^{2t} with t = 1 as in Eq. 7.7, or `absolute`, F(x) = |x| as in the authors' code.
        epsilon: constant added to M in the quotient; 1e-6 in the authors' code.
    """
    return kappa / (metric + epsilon) + mu * distance(metric, nu, penalty)


def distance(metric: FloatArray, nu: float, penalty: Penalty = "square") -> FloatArray:
    """Returns F(M^2 - nu) of every row. Shape (n,) -> (n,)."""
    return _penalize(metric**2 - nu, penalty)


# Selection: the minimizer of Eq. 7.7, for pools of up to a million rows

BLOCK = 2**14  # rows per block: three arrays of them are 384 KiB


class Selection:
    """Minimizes kappa/(M + epsilon) + mu F(M^2 - nu) over the rows of one pool.

    kappa/M and M^2 are computed once, the rest in blocks that fit the cache. The values are bitwise equal to those of
    `objective`.
    """

    def __init__(self, pool: Pool, penalty: Penalty, epsilon: float = 0.0) -> None:
        self.penalty = penalty
        self.quotient = pool.kappa / (pool.metric + epsilon)  # (n,)
        self.squared = pool.metric**2  # (n,)

    def lowest(self, mu: float, nu: float, mask: BoolArray) -> int | None:
        """Returns the row with the lowest objective where `mask` (n,) is False; the first of equal rows, or None."""
        best_row, best_value = None, np.inf
        for start in range(0, len(self.squared), BLOCK):
            block = slice(start, start + BLOCK)
            values = _penalize(self.squared[block] - nu, self.penalty)
            values *= mu
            values += self.quotient[block]
            values[mask[block]] = np.inf
            row = int(values.argmin())
            if values[row] < best_value:
                best_row, best_value = start + row, values[row]
        if best_row is None and not mask.all():
            return int(np.argmin(mask))  # every objective overflows: take the first row
        return best_row


def _penalize(differences: FloatArray, penalty: Penalty) -> FloatArray:
    """Computes F(x) = x^2 or |x| in place."""
    return np.square(differences, out=differences) if penalty == "square" else np.abs(differences, out=differences)


def median_distance(squared: FloatArray, nu: float, penalty: Penalty) -> float:
    """Returns the median of F(M^2 - nu) over a pool, from its sorted M^2, (n,), in O(log n).

    F grows with the distance to nu, and the rows nearest to nu are adjacent.
    """
    half = len(squared) // 2 + 1  # the largest of this many smallest distances is the (upper) median
    low, high = 0, len(squared) - half
    while low < high:  # the first window of `half` rows whose left end is no farther from nu than the next row
        middle = (low + high) // 2
        low, high = (middle + 1, high) if nu - squared[middle] > squared[middle + half] - nu else (low, middle)
    last = low + half - 1
    ends = squared[sorted({low, min(low + 1, last), max(last - 1, low), last})]  # the two largest are among them
    values = np.sort(_penalize(ends - nu, penalty))
    return float(values[-1] if len(squared) % 2 else (values[-2] + values[-1]) / 2)


# Coordinates and presets

Points = Literal["selections", "bayesian", "uniform"]
FIRST_POINTS = 5  # evenly spaced values of T before the first fit (note H2)


class Coordinates(ABC):
    """Coordinates of (mu, nu) in the square [0, 1] x log10_mu.

    nu is in units of scaled M^2, mu in units of the scaled objective.
    """

    default_log10_mu: ClassVar[tuple[float, float]]

    def __init__(self, pool: Pool, penalty: Penalty, log10_mu: tuple[float, float]) -> None:
        self.pool = pool
        self.penalty = penalty
        self.log10_mu = log10_mu

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """The bounds of a point's two coordinates."""
        return [(0.0, 1.0), self.log10_mu]

    @abstractmethod
    def first_weight(self) -> float:
        """Returns the second coordinate of the first points."""

    @abstractmethod
    def target(self, place: float) -> float:
        """Returns T at a first coordinate."""

    @abstractmethod
    def place(self, target: float) -> float:
        """Returns the first coordinate of T, the inverse of `target`."""

    @abstractmethod
    def log10_unit(self, target: float) -> float:
        """Returns log10 of the mu that the second coordinate 0 represents at T."""

    def first_point(self, number: int) -> list[float]:
        """Returns first point `number`, 0 to FIRST_POINTS - 1."""
        return [float(np.linspace(0.0, 1.0, FIRST_POINTS)[number]), self.first_weight()]

    def mu_nu(self, point: list[float]) -> tuple[float, float]:
        """Returns (mu, nu) of a point."""
        target = self.target(point[0])
        return float(10 ** (point[1] + self.log10_unit(target))), target**2

    def point(self, mu: float, nu: float) -> list[float]:
        """Returns the point of (mu, nu), for example a user's; it may be outside of the square."""
        target = math.sqrt(nu)
        return [self.place(target), math.log10(mu) - self.log10_unit(target)]

    def mu_bounds(self) -> tuple[float, float]:
        """Returns the smallest and the largest mu of the square."""
        units = [self.log10_unit(self.target(float(place))) for place in np.linspace(0.0, 1.0, 21)]
        return float(10 ** (self.log10_mu[0] + min(units))), float(10 ** (self.log10_mu[1] + max(units)))


class PoolCoordinates(Coordinates):
    """Coordinates from the pool: T is a quantile of M, and the unit of mu is median(kappa/M) / median(F(M^2 - T^2)).

    The selection at a point depends neither on the units of M and kappa nor on the shape of their tails. The metrics
    are heavy-tailed: on NAS-Bench-201 the M of good architectures is about 0.01 of the largest. With T uniform on
    [0, max M] and log10 mu in [-4, 0], a point rarely selects a row near the median, and kappa/M outweighs the penalty.
    """

    default_log10_mu = (-2.0, 2.0)  # from a penalty that only breaks ties to a penalty that dominates

    def __init__(self, pool: Pool, penalty: Penalty, log10_mu: tuple[float, float]) -> None:
        super().__init__(pool, penalty, log10_mu)
        self._sorted = np.sort(pool.metric)
        self._squared = self._sorted**2
        self._places = np.linspace(0.0, 1.0, len(pool))
        self._typical = float(np.median(pool.kappa / pool.metric))

    def first_weight(self) -> float:
        return (self.log10_mu[0] + self.log10_mu[1]) / 2

    def target(self, place: float) -> float:
        return float(np.interp(place, self._places, self._sorted))

    def place(self, target: float) -> float:
        return float(np.interp(target, self._sorted, self._places))

    def log10_unit(self, target: float) -> float:
        typical = median_distance(self._squared, target**2, self.penalty)
        # If a median is 0, (nearly) all rows have the same M, or kappa 0, and there is no balance to measure.
        return math.log10(self._typical / typical) if typical > 0 and self._typical > 0 else 0.0


class PaperCodeCoordinates(Coordinates):
    """The coordinates of the authors' code (note H2): T uniform on [0, max M], log10 mu in [-4, 0], start at mu = 1e-2.

    The authors' code does not scale M. With f the largest |M|, its objective is the scaled objective divided by f, with
    mu f^3 (absolute penalty) or mu f^5 (square penalty) in place of mu.
    """

    default_log10_mu = (-4.0, 0.0)

    def first_weight(self) -> float:
        return -2.0

    def target(self, place: float) -> float:
        return place

    def place(self, target: float) -> float:
        return target

    def log10_unit(self, target: float) -> float:
        return (5 if self.penalty == "square" else 3) * math.log10(self.pool.factor)


@dataclass(frozen=True)
class Preset:
    """The defaults of a `preset` of `HNASSearch`.

    Attributes:
        coordinates: the coordinates of (mu, nu).
        penalty: F.
        points: the method that chooses (mu, nu).
        epsilon: constant added to M in the quotient, in M's own units.
        growth: number of rows, in random order, that each step adds to the candidates; None: all rows are candidates
            from the start.
    """

    coordinates: type[Coordinates]
    penalty: Penalty
    points: Points
    epsilon: float = 0.0
    growth: int | None = None


PRESETS: dict[str | None, Preset] = {
    None: Preset(PoolCoordinates, "square", "selections"),
    "paper-code": Preset(PaperCodeCoordinates, "absolute", "bayesian", epsilon=1e-6, growth=2000),
}

CHOICES: dict[str, tuple[str, ...]] = {
    "points": get_args(Points),
    "penalty": get_args(Penalty),
    "preset": tuple(name for name in PRESETS if name is not None),
    "on_repeat": ("reuse", "next-best"),
}


def check_options(**options: str | None) -> None:
    """Raises: InvalidInput for an unknown value of an option in `CHOICES`, or for options that exclude each other."""
    for name, choice in options.items():
        if choice is not None and choice not in CHOICES[name]:
            raise InvalidInput(f"{name}: expected {' or '.join(CHOICES[name])}, or None, got {choice!r}")
    if options["points"] == "selections" and options["on_repeat"] == "reuse":
        raise InvalidInput(
            "points: expected bayesian or uniform with on_repeat=reuse, got selections, which never repeats an "
            "architecture. Choose other points, or on_repeat=next-best."
        )


# Fits of mu and nu to values

LEVELS = 33  # number of grid values of mu, and of nu
LOG10_MU = (-4.0, 4.0)  # in units that balance the two terms; outside of this range one term decides alone
SAMPLE = 2000  # number of rows on which the whole grid is evaluated
BEST = 20  # number of grid points that are evaluated on all rows


@dataclass(frozen=True)
class Fit:
    """The trade-off with the highest Spearman correlation: mu and nu of Eq. 7.6, with M divided by its maximum."""

    mu: float
    nu: float


def fit_trade_off(metric: FloatArray, quotient: FloatArray, values: FloatArray) -> Fit:
    """Fits the mu and nu at which -(quotient + mu (M^2 - nu)^2) has the highest Spearman correlation with the values.

    Shu (2022) fits mu and nu of Tables 7.1 and 7.5 in this way (note P6). The grid has LEVELS x LEVELS points: sqrt(nu)
    at the quantiles of M, and log mu evenly spaced around the mu at which both terms have the same median (note H1).
    The grid is evaluated on SAMPLE rows, evenly spaced by value, and its BEST points on all rows.

    Args:
        metric: (n,) M, positive.
        quotient: (n,) 1/M or kappa/M.
        values: (n,) larger is better.
    """
    grid = _grid(metric, quotient)
    order = np.argsort(values, kind="stable")
    sample = order[np.linspace(0, len(order) - 1, min(SAMPLE, len(order))).round().astype(int)]
    scores = _standard_ranks(-_bounds(grid, metric[sample], quotient[sample])) @ _standard_ranks(values[sample])
    best = grid[:, np.argsort(-scores, kind="stable")[:BEST]]
    scores = _standard_ranks(-_bounds(best, metric, quotient)) @ _standard_ranks(values)
    mu, nu = best[:, int(np.argmax(scores))]
    return Fit(float(mu), float(nu))


def chance_correlations(metric: FloatArray, quotient: FloatArray, orders: int, seed: int = 0) -> FloatArray:
    """Returns the Spearman correlations that a fit of all rows reaches with random values, (orders,)."""
    rng = np.random.default_rng(seed)
    ranks = _standard_ranks(-_bounds(_grid(metric, quotient), metric, quotient))  # (k, n)
    drawn = _standard_ranks(rng.random((orders, len(metric))))
    return np.asarray((ranks @ drawn.T).max(axis=0))


def _grid(metric: FloatArray, quotient: FloatArray) -> FloatArray:
    """Returns mu and nu of every point of the grid, (2, k)."""
    points = []
    for root in np.quantile(metric, np.linspace(0, 1, LEVELS)):
        penalty = (metric**2 - root**2) ** 2
        unit = np.median(quotient) / max(float(np.median(penalty)), np.finfo(float).tiny)
        mus = unit * 10.0 ** np.linspace(*LOG10_MU, LEVELS)
        points.append(np.stack([mus, np.full(LEVELS, root**2)]))
    return np.concatenate(points, axis=1)


def _bounds(grid: FloatArray, metric: FloatArray, quotient: FloatArray) -> FloatArray:
    """Returns the bound of every row at every point of a grid (2, k), (k, n)."""
    mu, nu = grid[:, :, None]
    return np.asarray(quotient + mu * (metric**2 - nu) ** 2)


def _standard_ranks(values: FloatArray) -> FloatArray:
    """Returns centered ranks of length 1 along the last axis, so that products are Spearman correlations."""
    ranks = rankdata(values, axis=-1)
    ranks -= ranks.mean(axis=-1, keepdims=True)
    norms = np.linalg.norm(ranks, axis=-1, keepdims=True)
    return np.asarray(ranks / np.maximum(norms, np.finfo(float).tiny))
