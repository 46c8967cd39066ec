"""A pool of scored architectures, and the training-free objective over it: kappa/M + mu F(M^2 - nu).

Shu 2022, ch. 7, Eq. 7.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from archray.errors import InvalidPool
from archray.plurals import count
from archray.searchers.arguments import BoolArray, FloatArray
from archray.searchers.pool_file import PoolFile, check_names

Penalty = Literal["square", "absolute"]


@dataclass(frozen=True)
class Pool:
    """The rows of a table that have an objective, in the table's order.

    Args:
        architectures: n strings, one per canonical form.
        metric: (n,) |M| divided by `factor`: a signed metric such as grasp stands for its magnitude in Eq. 7.7.
        kappa: (n,) condition numbers.
        factor: the largest |M| among the rows kept.
        excluded: how many rows were left out: M = 0, or M or kappa not finite.
    """

    architectures: Sequence[str]
    metric: FloatArray
    kappa: FloatArray
    factor: float
    excluded: int

    def __len__(self) -> int:
        return len(self.architectures)


def load_pool(file: PoolFile, proxy: str) -> Pool:
    """The pool with `proxy` as M.

    Raises: InvalidPool if the file is gone or has changed, lacks a column, names an architecture twice, or has no
    usable row.
    """
    return build_pool(file.read(["architecture", proxy, "kappa"]), proxy, file.location)


def build_pool(table: pd.DataFrame, proxy: str, source: str = "the pool") -> Pool:
    """The pool in `table`, columns `architecture`, `proxy`, `kappa`. Raises: InvalidPool."""
    try:
        metric = table[proxy].to_numpy(dtype=np.float64, na_value=np.nan)
        kappa = table["kappa"].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InvalidPool(f"{source}: expected numbers in the columns {proxy} and kappa ({error})") from error
    kept = np.isfinite(metric) & (metric != 0) & np.isfinite(kappa)
    if not kept.any():
        raise InvalidPool(
            f"{source} has {count(len(table), 'row')} and none with a finite {proxy} other than 0 and a finite kappa; "
            "score it again, and look at its column `failure` for the reasons"
        )
    names = table.loc[kept, "architecture"]
    check_names(names, source)
    magnitude = np.abs(metric[kept])
    factor = float(magnitude.max())
    return Pool(names.tolist(), magnitude / factor, kappa[kept], factor, int(len(table) - kept.sum()))


# The objective


def objective(
    kappa: FloatArray, metric: FloatArray, mu: float, nu: float, penalty: Penalty = "square", epsilon: float = 0.0
) -> FloatArray:
    """kappa/(M + epsilon) + mu F(M^2 - nu) of every row; lower is better. Shapes (n,), (n,) -> (n,).

    Args:
        kappa: condition numbers of the NTK.
        metric: M, as a pool has it.
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
