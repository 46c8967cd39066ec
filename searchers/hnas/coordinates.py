"""Which (mu, nu) a point of the Bayesian optimiser's square stands for, in the units of one pool; presets.

The metrics are heavy-tailed: on NAS-Bench-201 the largest M is some 70 times the median (networks without skip
connections, whose gradients explode), and good architectures lie near the median, at M around 0.01 of the largest.
With T = sqrt(nu) uniform on [0, max M] and log10 mu in [-4, 0] on the scaled M of note H1, kappa/M (35 and more)
outweighs the penalty (at most 1) everywhere, and hardly any point asks for M near the median. So the square's axes
are measured by the pool: T runs through the quantiles of M, and mu through what balances the two terms at that T.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import BoolArray
from archray.searchers.hnas.scored_pool import Penalty, Pool
from archray.searchers.hnas.selection import median_distance

Points = Literal["selections", "bayesian", "uniform"]
FIRST_POINTS = 5  # T evenly spaced on its axis before the first fit (note H2)


class Coordinates(ABC):
    """A square [0, 1] x log10_mu over (mu, nu); nu in units of scaled M^2, mu in those of the scaled objective."""

    default_log10_mu: ClassVar[tuple[float, float]]

    def __init__(self, pool: Pool, penalty: Penalty, log10_mu: tuple[float, float]) -> None:
        self.pool = pool
        self.penalty = penalty
        self.log10_mu = log10_mu

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Of a point's two coordinates."""
        return [(0.0, 1.0), self.log10_mu]

    @abstractmethod
    def first_weight(self) -> float:
        """The second coordinate of the first points."""

    @abstractmethod
    def target(self, place: float) -> float:
        """T at the first coordinate."""

    @abstractmethod
    def place(self, target: float) -> float:
        """The first coordinate of T: the inverse of `target`."""

    @abstractmethod
    def log10_unit(self, target: float) -> float:
        """log10 of the mu that the second coordinate 0 stands for at T."""

    def first_point(self, number: int) -> list[float]:
        """The point asked for as number 0, ..., FIRST_POINTS - 1."""
        return [float(np.linspace(0.0, 1.0, FIRST_POINTS)[number]), self.first_weight()]

    def mu_nu(self, point: list[float]) -> tuple[float, float]:
        """(mu, nu) of a point."""
        target = self.target(point[0])
        return float(10 ** (point[1] + self.log10_unit(target))), target**2

    def point(self, mu: float, nu: float) -> list[float]:
        """The point of (mu, nu), a user's own say; it may lie outside the square."""
        target = math.sqrt(nu)
        return [self.place(target), math.log10(mu) - self.log10_unit(target)]

    def mu_bounds(self) -> tuple[float, float]:
        """The smallest and the largest mu that the square holds."""
        units = [self.log10_unit(self.target(float(place))) for place in np.linspace(0.0, 1.0, 21)]
        return float(10 ** (self.log10_mu[0] + min(units))), float(10 ** (self.log10_mu[1] + max(units)))


class PoolCoordinates(Coordinates):
    """T is a quantile of the pool's M; mu counts in median(kappa/M) / median(F(M^2 - T^2)), over the pool.

    Neither the unit of M nor that of kappa, nor the shape of their tails, changes what a point selects.
    """

    default_log10_mu = (-2.0, 2.0)  # from a penalty that breaks ties to one that decides

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
        # A pool whose rows (nearly) all have the same M, or kappa 0: no balance to measure by.
        return math.log10(self._typical / typical) if typical > 0 and self._typical > 0 else 0.0


class PaperCodeCoordinates(Coordinates):
    """As the authors' program (note H2): T uniform on [0, max M], log10 mu in [-4, 0], first points at mu = 1e-2.

    That program does not scale M. In units of the largest |M|, f, its objective is the scaled one over f with mu f^3
    (absolute penalty) or mu f^5 (square).
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
    """What `preset` of `HNASSearch` decides.

    points: how (mu, nu) are chosen, where the caller does not say.
    growth: rows of the pool, in an order drawn at random, that each step adds to the candidates; None: all rows are
    candidates from the start.
    """

    coordinates: type[Coordinates]
    penalty: Penalty  # F, where the caller names none
    points: Points
    epsilon: float = 0.0  # is added to M in the quotient, in M's own units
    growth: int | None = None

    def candidates(self, rows: int, step: int, rng: np.random.Generator) -> BoolArray:
        """(rows,) True for the rows of the pool that are candidates at a step, from 1. `rng`: the same at all steps."""
        if self.growth is None or self.growth * step >= rows:
            return np.ones(rows, dtype=bool)
        candidates = np.zeros(rows, dtype=bool)
        candidates[rng.permutation(rows)[: self.growth * step]] = True
        return candidates


PRESETS: dict[str | None, Preset] = {
    None: Preset(PoolCoordinates, "square", "selections"),
    "paper-code": Preset(PaperCodeCoordinates, "absolute", "bayesian", epsilon=1e-6, growth=2000),
}

CHOICES: dict[str, tuple[str, ...]] = {
    "points": get_args(Points),
    "penalty": get_args(Penalty),
    "preset": tuple(name for name in PRESETS if name is not None),
    "on_repeat": ("tell", "next-best"),
}


def check_options(**options: str | None) -> None:
    """Raises: InvalidInput for an option of `CHOICES` that has another value, or two that do not go together."""
    for name, choice in options.items():
        if choice is not None and choice not in CHOICES[name]:
            raise InvalidInput(f"{name}: expected {' or '.join(CHOICES[name])}, or None, got {choice!r}")
    if options["points"] == "selections" and options["on_repeat"] == "tell":
        raise InvalidInput(
            "points: expected bayesian or uniform with on_repeat=tell, which answers repeats; selections never asks one"
        )
