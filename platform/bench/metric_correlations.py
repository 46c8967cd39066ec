"""How well training-free metrics order a table's architectures: as they are, and in the bounds that HNAS minimises.

Shu 2022, Tables 7.1 and 7.5, Corollaries 7.1 and 7.2; notes H1 and P6.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from archray.platform.bench.entrants import columns_of
from archray.platform.methods.hnas.hnas_config import KAPPA
from archray.trainables.tabular import Table

PLAIN, REALIZABLE, TRADE_OFF = "as it is", "1/M", "1/M + trade-off"
REALIZABLE_KAPPA, NON_REALIZABLE = "κ/M", "κ/M + trade-off"
LEVELS = 33  # of the fit, of mu and of nu each
LOG10_MU = (-4.0, 4.0)  # in units that balance the two terms; beyond, one of them decides alone
SAMPLE = 2000  # rows that the whole grid is tried on; the best of it on all
TRIED_ON_ALL = 20
FEWEST = 3  # rows that a correlation needs


@dataclass(frozen=True)
class Fit:
    """The trade-off with the highest Spearman correlation: mu and nu of Eq. 7.6, M over its largest."""

    mu: float
    nu: float


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


def fit_trade_off(metric: np.ndarray, quotient: np.ndarray, values: np.ndarray) -> Fit:
    """The mu and nu under which -(quotient + mu (M^2 - nu)^2) has the highest Spearman correlation with the values.

    Args:
        metric: (n,) M, positive. quotient: (n,) 1/M or kappa/M. values: (n,) the higher the better.

    Of a grid of LEVELS x LEVELS: root nu at the quantiles of M, mu even in its logarithm around where both terms have
    one median (note H1). All of it is tried on SAMPLE rows, evenly spaced by value, the best TRIED_ON_ALL on all.
    """
    order = np.argsort(values, kind="stable")
    few = order[np.linspace(0, len(order) - 1, min(SAMPLE, len(order))).round().astype(int)]
    roots = np.quantile(metric, np.linspace(0, 1, LEVELS))
    grid = []
    scores = []
    for root in roots:
        penalty = (metric**2 - root**2) ** 2
        unit = np.median(quotient) / max(float(np.median(penalty)), np.finfo(float).tiny)
        mus = unit * 10.0 ** np.linspace(*LOG10_MU, LEVELS)
        bounds = quotient[few] + mus[:, None] * penalty[few]  # (mu, rows)
        scores.append(_spearman(-bounds, values[few]))
        grid += [Fit(float(mu), float(root**2)) for mu in mus]
    best = np.argsort(-np.concatenate(scores), kind="stable")[:TRIED_ON_ALL]
    bounds = np.stack([quotient + grid[k].mu * (metric**2 - grid[k].nu) ** 2 for k in best])
    return grid[best[int(np.argmax(_spearman(-bounds, values)))]]


def _spearman(promises: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(k,) Spearman's correlation of each of the (k, n) promises with the values (n,); -1 where it is not defined."""
    from scipy.stats import rankdata

    ranks = rankdata(promises, axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    own = rankdata(values)
    own -= own.mean()
    norms = np.sqrt((ranks**2).sum(axis=1) * (own**2).sum())
    return np.where(norms > 0, ranks @ own / np.maximum(norms, np.finfo(float).tiny), -1.0)
