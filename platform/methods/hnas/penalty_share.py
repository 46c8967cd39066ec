"""mu on a scale that means something: the share that its term has of the objective. Shu 2022, Eq. 7.7 (note H1).

mu itself is in units of kappa/M over M^4: 96 899 may be much in one pool and next to nothing in another. At any nu a
typical architecture of the pool has kappa/M and mu F(M^2 - nu) at their medians; mu's term then makes a share of the
sum, from 0 (kappa/M decides alone) over 50 % (both count alike) to 1 (the distance of M^2 from nu decides alone). It
is the scale that HNAS itself searches, whose default reaches from 1 % to 99 %.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from archray.platform.methods.hnas.hnas_tables import Objective
from archray.platform.quantities import MISSING
from archray.searchers.hnas.objective import Pool, PoolCoordinates

_TICKS = (1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)  # shares that an axis is marked at
MEANING = (
    "μ is told as the penalty's share: what its term makes of the objective where both terms are at their medians over "
    "the pool. At 50 % they count alike, near 0 % κ/M decides alone, near 100 % the distance of M² from ν."
)


class PenaltyScale:
    """Between mu and odds, what the penalty has for each part of kappa/M, over one pool."""

    def __init__(self, pool: Pool, how: Objective) -> None:
        self._coordinates = PoolCoordinates(pool, how.penalty, (-2.0, 2.0))

    def unit(self, nu: float) -> float:
        """The mu at which both terms count alike."""
        return float(10 ** self._coordinates.log10_unit(math.sqrt(nu)))

    def odds(self, mu: float, nu: float) -> float:
        """NaN without a mu and a nu."""
        return mu / self.unit(nu) if mu > 0 and nu >= 0 else math.nan

    def all_odds(self, mu: NDArray[np.float64], nu: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([self.odds(*pair) for pair in zip(mu, nu, strict=True)])


def in_percent(odds: float) -> str:
    """The share of the odds, in percent without its sign: `83`, `0.4`, `99.7`; a dash of NaN."""
    if math.isnan(odds):
        return MISSING
    share, rest = 100 * odds / (1 + odds), 100 / (1 + odds)
    if 1 <= share <= 99:
        return f"{share:.0f}"
    one_digit = Decimal(f"{min(share, rest):.1g}")  # of the smaller side: `99.997`, not `100`
    return format(one_digit if share < 1 else 100 - one_digit, "f")


def mark_shares(axis: Axis) -> None:
    """Ticks at shares on a logarithmic axis of odds."""
    low, high = axis.get_view_interval()
    odds = [share / (1 - share) for share in _TICKS]
    axis.set_major_locator(FixedLocator([value for value in odds if low <= value * 1.001 and value <= high * 1.001]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{in_percent(value)} %"))
