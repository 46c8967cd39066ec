"""The constraint on a pool's metric, in words: nu, mu, and how many architectures are above it."""

from __future__ import annotations

from typing import Any

import numpy as np

from archray.platform.engine.pool_scoring import POOL
from archray.platform.methods.plain.zero_cost_config import ZeroCostConfig
from archray.platform.quantities import significant
from archray.platform.report.table_columns import numbers
from archray.platform.run.run import Run
from archray.plurals import count


def constraint_words(run: Run[Any]) -> str | None:
    """Of one run, a few sentences; None of a search without a constraint, or whose pool is not scored."""
    config, pool = run.config, run.table("pool", POOL)
    if not isinstance(config, ZeroCostConfig) or (penalty := config.penalty) is None or pool.empty:
        return None
    values = numbers(pool, config.proxy)
    values = values[np.isfinite(values)]
    nu = penalty.bound(values.to_numpy())
    of_nu = f"the mean of {count(len(values), 'architecture')}" if penalty.nu is None else "as asked for"
    text = f"The pool was ordered by {config.proxy} under a constraint (Shu 2022, Eq. 6.8): what exceeds ν = "
    text += f"{significant(nu)} ({of_nu}) was subtracted μ = {significant(penalty.mu)} times. "
    text += f"{int((values > nu).sum())} of {count(len(values), 'architecture')} are above ν"
    own = values[pool.loc[values.index, "architecture"] == run.architecture]
    return text + (f"; the one that was chosen has {significant(own.iloc[0])}." if len(own) else ".")
