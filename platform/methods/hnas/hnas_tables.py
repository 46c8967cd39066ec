"""What the tables of an HNAS run say: the pool, the objective, what was asked for and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from archray.errors import InvalidPool
from archray.platform.report.columns import failures, is_repeat, numbers
from archray.platform.report.quantity import Quantity
from archray.platform.run.run import Run
from archray.searchers.hnas.scored_pool import Penalty, Pool, build_pool

POOL = ("pool", "pool.parquet")
ASKED = ("search", "asked.parquet")
OBJECTIVE = ("search", "objective.json")

VALUE = Quantity.of("validation_accuracy")  # of a trial; the more the better


@dataclass(frozen=True)
class Objective:
    """How HNAS ranks the pool: kappa/M + mu F(M^2 - nu), thesis Eq. 7.7, and where (mu, nu) were searched.

    Args:
        penalty: F by name, `square` or `absolute` (note H2).
        mu_bounds: the range of mu, searched on a logarithmic scale.
        root_nu_bounds: the range of sqrt(nu), in units of the pool's largest |M| (note H1); drawn on a logarithmic
            axis unless it begins at 0.
        epsilon: added to M in the quotient: 1e-6 in the preset `paper-code`.
    """

    penalty: Penalty = "square"
    mu_bounds: tuple[float, float] = (10.0, 1e6)
    root_nu_bounds: tuple[float, float] = (0.0, 1.0)
    epsilon: float = 0.0


def objective_of(run: Run[Any]) -> Objective | None:
    """The objective that the search used; None before it has ended."""
    document = run.document(*OBJECTIVE)
    if document is None:
        return None
    low, high = document["log10_mu"]
    root_low, root_high = document["root_nu"]
    return Objective(document["penalty"], (10**low, 10**high), (root_low, root_high), document["epsilon"])


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


def row_of(names: Sequence[str], architecture: str | None) -> int | None:
    """The row of an architecture among the pool's, None if it has none."""
    try:
        return list(names).index(architecture)  # type: ignore[arg-type]  # None is in no pool
    except ValueError:
        return None


def best_trial(asked: pd.DataFrame) -> int | None:
    """The row with the best value, the earliest of equals; None if there is no finite one."""
    values = numbers(asked, "value").where(failures(asked).isna() & ~is_repeat(asked))
    return int(np.nanargmax(values.to_numpy())) if values.notna().any() else None


def trial_numbers(asked: pd.DataFrame) -> pd.Series:
    """The numbers that trainings are shown with, from 1; NaN for repeats, and for what the user gave (number < 0)."""
    counted = ~is_repeat(asked) & ~(numbers(asked, "number") < 0)
    return counted.cumsum().astype(float).where(counted)


def values_by_architecture(asked: pd.DataFrame) -> dict[str, float]:
    """The value of each architecture that was trained without failure: of the first training of it."""
    if "architecture" not in asked:
        return {}
    values = numbers(asked, "value").where(failures(asked).isna())
    known: dict[str, float] = {}
    for name, value in zip(asked["architecture"], values, strict=True):
        if isinstance(name, str) and np.isfinite(value):
            known.setdefault(name, float(value))
    return known
