"""The exterior penalty of NASI on a metric that should be large, up to a bound. Shu 2022, Eq. 6.8 and 6.14."""

from dataclasses import dataclass

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray, IntArray, is_finite_number

LEAST_MU = 1.0  # with less, the objective grows above nu too, and orders a pool as the metric does


@dataclass(frozen=True)
class ExteriorPenalty:
    """The objective R = M - mu max(0, M - nu) of a metric M, Eq. 6.8.

    Args:
        mu: the penalty of a unit above nu, 1 or more. At 1 R is constant above nu; at 2 it falls as it rose.
        nu: the bound. None: the mean of the metric over the pool, Eq. 6.14 with the pool for the random architectures.

    Raises: InvalidInput.
    """

    mu: float
    nu: float | None = None

    def __post_init__(self) -> None:
        if not is_finite_number(self.mu) or self.mu < LEAST_MU:
            raise InvalidInput(
                f"mu: expected {LEAST_MU:g} or more, got {self.mu!r}; with less, the objective grows above nu too, and "
                "the order is that without a constraint: leave mu out for that"
            )
        if self.nu is not None and not is_finite_number(self.nu):
            raise InvalidInput(
                f"nu: expected a finite number in the metric's own unit, got {self.nu!r}; leave it out for the mean of "
                "the pool"
            )

    def bound(self, values: FloatArray) -> float:
        """nu. values: (n,) the metric over the pool, finite."""
        return float(np.mean(values)) if self.nu is None else float(self.nu)

    def objective(self, values: FloatArray) -> FloatArray:
        """R, (n,).

        Computed as min(M, nu - (mu - 1)(M - nu)), which is equal for mu >= 1. At mu = 1 it is exactly nu above nu;
        M - (M - nu) would differ between rows by rounding, and order the pool.
        """
        nu = self.bound(values)
        penalized: FloatArray = np.minimum(values, nu - (self.mu - 1.0) * (values - nu))
        return penalized

    def ranking(self, values: FloatArray) -> IntArray:
        """The rows, (n,), the largest R first; of equal R the smallest M first, else in their order.

        Shu (2022) samples architectures one by one and has no rule for equal R. By this rule, the smallest M above nu
        comes first at mu = 1, and at larger mu an M below nu comes before one above it.
        """
        return np.lexsort((values, -self.objective(values)))


def penalty_of(by: str, order: str, mu: float | None, nu: float | None) -> ExteriorPenalty | None:
    """The penalty of a search by the column `by`; None without mu and nu.

    order: the values that come first. Raises: InvalidInput.
    """
    if mu is None:
        if nu is None:
            return None
        raise InvalidInput(f"nu: expected it beside mu, the weight of what exceeds it, got nu {nu!r} alone; give mu=1")
    if order != "largest":
        raise InvalidInput(
            f"mu: expected a metric whose largest values come first, got {by}, {order} first: the constraint bounds a "
            "metric from above; leave mu and nu out, or choose another metric"
        )
    return ExteriorPenalty(mu, nu)
