"""The exterior penalty of NASI, which bounds a metric from above. Shu 2022, Eq. 6.8 and 6.14."""

from dataclasses import dataclass

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import FloatArray, IntArray, is_finite_number

LEAST_MU = 1.0  # below 1 the objective also grows above nu, and ranks a pool as the metric does


@dataclass(frozen=True)
class ExteriorPenalty:
    """The objective R = M - mu max(0, M - nu) of a metric M, Eq. 6.8.

    Args:
        mu: the penalty per unit above nu, 1 or more. At 1 R is constant above nu; at 2 it falls as fast as it rose.
        nu: the bound. None: the mean of the metric over the pool, Eq. 6.14 with the pool as the random architectures.

    Raises: InvalidInput for an invalid argument.
    """

    mu: float
    nu: float | None = None

    def __post_init__(self) -> None:
        if not is_finite_number(self.mu) or self.mu < LEAST_MU:
            raise InvalidInput(
                f"mu: expected {LEAST_MU:g} or more, got {self.mu!r}. A smaller mu does not change the ranking. "
                "Leave mu out for a search without a constraint."
            )
        if self.nu is not None and not is_finite_number(self.nu):
            raise InvalidInput(
                f"nu: expected a finite number in the unit of the metric, got {self.nu!r}. Leave nu out to use the "
                "mean of the pool."
            )

    def bound(self, values: FloatArray) -> float:
        """Returns nu. values: (n,) the metric over the pool, finite."""
        return float(np.mean(values)) if self.nu is None else float(self.nu)

    def objective(self, values: FloatArray) -> FloatArray:
        """Returns R, (n,).

        R is computed as min(M, nu - (mu - 1)(M - nu)), which is equal for mu >= 1. At mu = 1 it is exactly nu above
        nu. M - (M - nu) would differ between rows by rounding errors, which would then order the pool.
        """
        nu = self.bound(values)
        penalized: FloatArray = np.minimum(values, nu - (self.mu - 1.0) * (values - nu))
        return penalized

    def ranking(self, values: FloatArray) -> IntArray:
        """Returns the rows, (n,), the largest R first. Ties: the smallest M first, then the order of the rows.

        Shu (2022) samples architectures one by one and gives no rule for equal R. With this rule the smallest M above
        nu comes first at mu = 1. At a larger mu, an M below nu comes before an M above nu.
        """
        return np.lexsort((values, -self.objective(values)))


def penalty_of(by: str, order: str, mu: float | None, nu: float | None) -> ExteriorPenalty | None:
    """Returns the penalty of a search by the column `by`; None without mu and nu.

    order: `largest` or `smallest`, the values that come first. Raises: InvalidInput for an invalid argument.
    """
    if mu is None:
        if nu is None:
            return None
        raise InvalidInput(f"nu: expected mu and nu together, got nu={nu!r} without mu. Add mu=1.")
    if order != "largest":
        raise InvalidInput(
            f"mu: expected a metric whose largest values come first, got {by}, {order} first. The constraint bounds a "
            "metric from above. Leave mu and nu out, or choose another metric."
        )
    return ExteriorPenalty(mu, nu)
