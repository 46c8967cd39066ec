"""How well training-free metrics order a table's architectures: as they are, and in the bounds that HNAS minimises.

Shu 2022, Tables 7.1 and 7.5, Corollaries 7.1 and 7.2; notes H1 and P6.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from archray.platform.bench.entrants import columns_of
from archray.platform.methods.hnas.hnas_config import KAPPA
from archray.searchers.hnas.trade_off_fit import fit_trade_off
from archray.trainables.tabular import Table

PLAIN, REALIZABLE, TRADE_OFF = "as it is", "1/M", "1/M + trade-off"
REALIZABLE_KAPPA, NON_REALIZABLE = "κ/M", "κ/M + trade-off"
FEWEST = 3  # rows that a correlation needs


def correlations(table: Table) -> pd.DataFrame:
    """A row per metric, scenario and column that it is judged by: `metric`, `scenario`, `fitted_on`, `judged_on`,
    `spearman`, `kendall`, `mu`, `nu`, `n`.

    The metric as it is: its correlation with the value. The others: how well a bound on the error, the lower the
    better, orders the values. M is |M| over its largest; rows where it is 0, or a value is missing, are left out. The
    trade-off mu (M^2 - nu)^2 has two parameters. They are fitted on the objective and judged by the result; and, as the
    thesis has it, fitted on the column that they are judged by (in-sample). Correlations are positive where a metric
    is right: values of which the smaller is better are counted the other way round.
    """
    told, judged = str(table.roles.objective), str(table.roles.result or table.roles.objective)
    sign = 1.0 if table.mode == "max" else -1.0
    values = {told: sign * table.objective[table.rows], judged: sign * table.result[table.rows]}
    kappa = table.metrics.get(KAPPA)
    rows: list[dict[str, object]] = []
    for name, column in columns_of(table).items():
        metric = column[table.rows]
        known = np.isfinite(metric)
        rows += [_row(name, PLAIN, "", by, metric[known], own[known]) for by, own in values.items()]
        if name == KAPPA or name not in table.metrics:
            continue
        rows += _bounds(name, np.abs(metric), np.ones_like(metric), values, (REALIZABLE, TRADE_OFF))
        if kappa is not None:
            rows += _bounds(name, np.abs(metric), kappa[table.rows], values, (REALIZABLE_KAPPA, NON_REALIZABLE))
    return pd.DataFrame(rows)


def _bounds(
    name: str, metric: np.ndarray, kappa: np.ndarray, values: dict[str, np.ndarray], scenarios: tuple[str, str]
) -> list[dict[str, object]]:
    """The rows of a bound without and with trade-off. metric, kappa and each of the values: (n,)."""
    known = np.isfinite(metric) & np.isfinite(kappa) & (metric > 0)
    plain, with_trade_off = scenarios
    if known.sum() < FEWEST:
        return []
    scaled = metric[known] / metric[known].max()
    quotient = kappa[known] / scaled
    own = {by: column[known] for by, column in values.items()}
    rows = [_row(name, plain, "", by, -quotient, column) for by, column in own.items()]
    told = next(iter(own))
    fits = {by: fit_trade_off(scaled, quotient, column) for by, column in own.items()}
    for by, column in own.items():
        for fitted in dict.fromkeys((told, by)):
            fit = fits[fitted]
            bound = quotient + fit.mu * (scaled**2 - fit.nu) ** 2
            rows.append(_row(name, with_trade_off, fitted, by, -bound, column) | {"mu": fit.mu, "nu": fit.nu})
    return rows


def _row(
    name: str, scenario: str, fitted_on: str, judged_on: str, promise: np.ndarray, values: np.ndarray
) -> dict[str, object]:
    """promise: (n,) the higher the better, as the values."""
    from scipy.stats import kendalltau, spearmanr

    few = len(values) < FEWEST or np.ptp(promise) == 0
    return {
        "metric": name,
        "scenario": scenario,
        "fitted_on": fitted_on,
        "judged_on": judged_on,
        "spearman": np.nan if few else float(spearmanr(promise, values).statistic),
        "kendall": np.nan if few else float(kendalltau(promise, values).statistic),
        "mu": np.nan,
        "nu": np.nan,
        "n": len(values),
    }
