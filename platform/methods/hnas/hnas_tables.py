"""What the tables of an HNAS run say: the pool and which of it each (mu, nu) selects, and what the trials came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archray.errors import InvalidPool
from archray.platform.quantities import quantity_of
from archray.platform.report.table_columns import failures, flags, numbers
from archray.platform.run.run import Run
from archray.searchers.hnas.scored_pool import Penalty, Pool, build_pool, objective

POOL = ("pool", "pool.parquet")
ASKED = ("search", "asked.parquet")

VALUE = quantity_of("validation_accuracy")  # of a trial; the more the better

_GRID = 144  # points of the plane on either axis: finer than a region that can be seen
_PRUNED = 20_000  # candidates for one row of the plane; of more, the best per bin of M are kept
_BINS = 4096
_BLOCK = 100_000  # values of the objective at a time: they stay in the processor's cache


@dataclass(frozen=True)
class Objective:
    """How HNAS ranks the pool: kappa/M + mu F(M^2 - nu), thesis Eq. 7.7, and where (mu, nu) were searched."""

    penalty: Penalty = "square"  # F by name (note H2)
    mu_bounds: tuple[float, float] = (10.0, 1e6)  # searched on a logarithmic scale
    root_nu_bounds: tuple[float, float] = (0.0, 1.0)  # in units of the pool's largest |M| (note H1)
    epsilon: float = 0.0  # added to M in the quotient: 1e-6 in the preset `paper-code`


def objective_of(run: Run[Any]) -> Objective | None:
    """The objective that the search used; None before it has ended."""
    document = run.document("search", "objective.json")
    if document is None:
        return None
    low, high = document["log10_mu"]
    return Objective(document["penalty"], (10**low, 10**high), tuple(document["root_nu"]), document["epsilon"])


def usable_pool(run: Run[Any]) -> Pool | None:
    """The rows of the pool that have an objective; None if it lacks a column or has no such row."""
    table, proxy = run.table(*POOL), run.config.metric
    if not {"architecture", proxy, "kappa"} <= set(table.columns):
        return None
    columns = {name: numbers(table, name) for name in (proxy, "kappa")}
    try:
        return build_pool(table[["architecture"]].assign(**columns), proxy)
    except InvalidPool:
        return None


def row_of(pool: Pool, architecture: str | None) -> int | None:
    """The row of an architecture in the pool, None if it has none."""
    names = list(pool.architectures)
    return names.index(architecture) if architecture in names else None


def rank(pool: Pool, mu: float, nu: float, how: Objective) -> NDArray[np.float64]:
    """The objective of every row of the pool, (n,); lower is better."""
    return objective(pool.kappa, pool.metric, mu, nu, how.penalty, how.epsilon)


@dataclass(frozen=True)
class Plane:
    """Which architecture each (mu, nu) selects."""

    root_nu: NDArray[np.float64]  # (w,) evenly spaced, in its logarithm if it does not begin at 0
    mu: NDArray[np.float64]  # (h,) evenly spaced in its logarithm
    selected: NDArray[np.int64]  # (h, w) rows of the pool


def plane(pool: Pool, how: Objective) -> Plane:
    """The plane of (mu, sqrt(nu)) over the objective's bounds, by the objective that the search itself used."""
    root_nu = (np.geomspace if how.root_nu_bounds[0] > 0 else np.linspace)(*how.root_nu_bounds, _GRID)
    mu = np.geomspace(*how.mu_bounds, _GRID)
    selected = np.empty((mu.size, root_nu.size), dtype=np.int64)
    for i, weight in enumerate(mu.tolist()):
        rows = _candidates(pool, weight, how)
        kappa, metric = pool.kappa[rows], pool.metric[rows]
        step = max(1, _BLOCK // rows.size)
        for j in range(0, root_nu.size, step):
            nu: Any = root_nu[j : j + step, None] ** 2  # (step, 1): one row of values for each
            values = objective(kappa, metric, weight, nu, how.penalty, how.epsilon)  # (step, rows)
            selected[i, j : j + step] = rows[values.argmin(1)]
    return Plane(root_nu, mu, selected)


def _candidates(pool: Pool, mu: float, how: Objective) -> NDArray[np.int64]:
    """The rows that some nu may select at this mu.

    The row with the lowest kappa/M has at most that plus the largest possible penalty; a row whose kappa/M alone is
    above this is never selected.
    """
    quotient = pool.kappa / (pool.metric + how.epsilon)
    furthest = max(1.0, max(abs(bound) for bound in how.root_nu_bounds) ** 2)  # of M^2 from nu
    rows = np.flatnonzero(quotient <= quotient.min() + mu * furthest ** (2 if how.penalty == "square" else 1))
    if rows.size > _PRUNED:
        by_quotient = rows[np.argsort(quotient[rows], kind="stable")]
        _, first = np.unique((pool.metric[by_quotient] * _BINS).astype(np.int64), return_index=True)
        rows = np.sort(by_quotient[first])
    return rows


# The trials


def best_trial(asked: pd.DataFrame) -> int | None:
    """The row with the best value, the earliest of equals; None if there is no finite one."""
    values = numbers(asked, "value").where(failures(asked).isna() & ~flags(asked, "repeat"))
    return int(np.nanargmax(values.to_numpy())) if values.notna().any() else None


def trial_numbers(asked: pd.DataFrame) -> pd.Series:
    """The numbers that trainings are shown with, from 1; NaN for repeats, and for what the user gave (number < 0)."""
    counted = ~flags(asked, "repeat") & ~(numbers(asked, "number") < 0)
    return counted.cumsum().astype(float).where(counted)


def values_by_architecture(asked: pd.DataFrame) -> dict[str, float]:
    """The value of each architecture that was trained without failure: of the first training of it."""
    if "architecture" not in asked:
        return {}
    values = numbers(asked, "value").where(failures(asked).isna())
    known = pd.DataFrame({"architecture": asked["architecture"], "value": values}).dropna()
    known = known.drop_duplicates("architecture")
    return dict(zip(known["architecture"], known["value"], strict=True))
