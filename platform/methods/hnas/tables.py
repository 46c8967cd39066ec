"""What the tables of an HNAS run say: the pool and which of it each (mu, nu) selects, and what the trials came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from archray.errors import InvalidPool
from archray.platform.quantities import quantity_of
from archray.platform.report.section import ShortNames, failures, flags, numbers, short_names
from archray.platform.run.run import Run
from archray.searchers.hnas.objective import Penalty, Pool, build_pool, objective

POOL = ("pool", "pool.parquet")
ASKED = ("search", "asked.parquet")

VALUE = quantity_of("validation_accuracy")  # of a trial; the more the better


@dataclass(frozen=True)
class Objective:
    """How HNAS ranks the pool: kappa/M + mu F(M^2 - nu), thesis Eq. 7.7, and where nu was searched."""

    penalty: Penalty = "square"  # F by name (note H2)
    root_nu_bounds: tuple[float, float] = (0.0, 1.0)  # in units of the pool's largest |M| (note H1)
    epsilon: float = 0.0  # added to M in the quotient: 1e-6 in the preset `paper-code`


def objective_of(run: Run[Any]) -> Objective | None:
    """The objective that the search used; None before it has ended."""
    document = run.document("search", "objective.json")
    if document is None:
        return None
    return Objective(document["penalty"], tuple(document["root_nu"]), document["epsilon"])


def usable_pool(run: Run[Any]) -> Pool | None:
    """The rows of the pool that have an objective; None if it lacks a column or has no such row."""
    table, proxy = run.table(*POOL), run.config.proxy
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


# The trials


def best_trial(asked: pd.DataFrame) -> int | None:
    """The row with the best value, the earliest of equals; None if there is no finite one."""
    values = numbers(asked, "value").where(failures(asked).isna() & ~flags(asked, "repeat"))
    return int(np.nanargmax(values.to_numpy())) if values.notna().any() else None


def trial_numbers(asked: pd.DataFrame) -> pd.Series:
    """The numbers that trainings are shown with, from 1; NaN for repeats, and for what the user gave (number < 0)."""
    counted = ~flags(asked, "repeat") & ~(numbers(asked, "number") < 0)
    return counted.cumsum().astype(float).where(counted)


def names_of(run: Run[Any]) -> ShortNames:
    """The names of what was found, and of what the best repeat trained, by value; last what has none."""
    asked = run.best.table(*ASKED)
    known = values_by_architecture(asked)
    return short_names(run, (*sorted(known, key=lambda name: -known[name]), *asked.get("architecture", ())))


def values_by_architecture(asked: pd.DataFrame) -> dict[str, float]:
    """The value of each architecture that was trained without failure: of the first training of it."""
    if "architecture" not in asked:
        return {}
    values = numbers(asked, "value").where(failures(asked).isna())
    known = pd.DataFrame({"architecture": asked["architecture"], "value": values}).dropna()
    known = known.drop_duplicates("architecture")
    return dict(zip(known["architecture"], known["value"], strict=True))
