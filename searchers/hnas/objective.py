"""The training-free objective of HNAS over a whole pool: kappa/M + mu F(M^2 - nu). Shu 2022, ch. 7, Eq. 7.7."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from archray.errors import InvalidInput
from archray.searchers.array_types import BoolArray, FloatArray

Penalty = Literal["square", "absolute"]


def check_penalty(penalty: str) -> None:
    """Raises: InvalidInput if there is no such penalty."""
    if penalty not in get_args(Penalty):
        raise InvalidInput(f"there is no penalty {penalty!r}; choose one of {', '.join(get_args(Penalty))}")


def usable(metric: ArrayLike, kappa: ArrayLike) -> BoolArray:
    """Which rows have an objective: M finite and not 0, kappa finite. Shapes (n,), (n,) -> (n,)."""
    metric, kappa = np.asarray(metric, dtype=np.float64), np.asarray(kappa, dtype=np.float64)
    return np.isfinite(metric) & (metric != 0) & np.isfinite(kappa)


def scale(metric: ArrayLike) -> tuple[FloatArray, float]:
    """|M| divided by the pool's maximum, and that maximum. All finite, not all 0. (n,) -> (n,) in [0, 1].

    The absolute value, because a signed metric such as grasp stands for its magnitude in Eq. 7.7.
    """
    magnitude = np.abs(np.asarray(metric, dtype=np.float64))
    factor = float(magnitude.max())
    return magnitude / factor, factor


def objective(
    kappa: FloatArray, metric: FloatArray, mu: float, nu: float, penalty: Penalty = "square", epsilon: float = 0.0
) -> FloatArray:
    """kappa/(M + epsilon) + mu F(M^2 - nu) of every row; lower is better. Shapes (n,), (n,) -> (n,).

    Args:
        kappa: condition numbers of the NTK.
        metric: M, scaled by `scale`.
        mu, nu: weight and target of the penalty; nu in the units of M^2.
        penalty: `square`, F(x) = x^{2t} with t = 1 as in Eq. 7.7, or `absolute`, F(x) = |x| as in the authors' program.
        epsilon: added to M in the quotient: 1e-6 in the authors' program.
    """
    return kappa / (metric + epsilon) + mu * distance(metric, nu, penalty)


def distance(metric: FloatArray, nu: float, penalty: Penalty = "square") -> FloatArray:
    """F(M^2 - nu) of every row. Shape (n,) -> (n,)."""
    difference = metric**2 - nu
    return difference**2 if penalty == "square" else np.abs(difference)


def lowest(objective_values: FloatArray, excluded: BoolArray | None = None) -> int | None:
    """The row with the lowest objective among those not `excluded`; the first of equals; None if none is left."""
    left = np.arange(len(objective_values)) if excluded is None else np.flatnonzero(~excluded)
    return int(left[np.argmin(objective_values[left])]) if len(left) else None
