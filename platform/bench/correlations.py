"""`archray.bench_proxies`: correlations of a table's training-free metrics and of HNAS's bounds. Shu 2022, ch. 7."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, spearmanr

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.bench.page import markdown_table, written
from archray.platform.bench.question import columns_of
from archray.platform.methods.hnas.config import KAPPA
from archray.platform.report.statistics import MIN_POINTS
from archray.platform.report.texts import texts_of
from archray.plurals import count
from archray.searchers.hnas.objective import fit_trade_off
from archray.trainables.tabular import Table, read_table

PLAIN, REALIZABLE, TRADE_OFF = "as it is", "1/M", "1/M + trade-off"
REALIZABLE_KAPPA, NON_REALIZABLE = "κ/M", "κ/M + trade-off"


def correlations(table: Table) -> pd.DataFrame:
    """Computes correlations of metrics and bounds with the values of a table.

    The scenario `as it is` correlates the metric with the column. The other scenarios correlate a bound on the error
    (lower is better) with the column. M is |M| divided by its maximum, without rows in which M is 0 or a value is
    missing. The trade-off mu (M^2 - nu)^2 has two parameters. They are fitted on the objective and evaluated on the
    result, and also, as in Shu (2022), fitted on the column on which they are evaluated (in-sample). A good metric has
    a positive correlation: columns in which smaller is better change their sign.

    Returns: a row per metric, scenario and column: `metric`, `scenario`, `fitted_on`, `judged_on`, `spearman`,
    `kendall`, `mu`, `nu`, `n`.
    """
    objective, judged = str(table.roles.objective), str(table.roles.result or table.roles.objective)
    sign = 1.0 if table.mode == "max" else -1.0
    values = {objective: sign * table.objective[table.rows], judged: sign * table.result[table.rows]}
    kappa = table.metrics.get(KAPPA)
    rows: list[dict[str, object]] = []
    for name, column in columns_of(table).items():
        metric = column[table.rows]
        finite = np.isfinite(metric)
        rows += [_row(name, PLAIN, "", by, metric[finite], value[finite]) for by, value in values.items()]
        if name == KAPPA or name not in table.metrics:
            continue
        rows += _bounds(name, np.abs(metric), np.ones_like(metric), values, (REALIZABLE, TRADE_OFF))
        if kappa is not None:
            rows += _bounds(name, np.abs(metric), kappa[table.rows], values, (REALIZABLE_KAPPA, NON_REALIZABLE))
    return pd.DataFrame(rows)


def _bounds(
    name: str, metric: np.ndarray, kappa: np.ndarray, values: dict[str, np.ndarray], scenarios: tuple[str, str]
) -> list[dict[str, object]]:
    """Returns the rows of a bound without and with trade-off. Metric, kappa and the values have the shape (n,)."""
    usable = np.isfinite(metric) & np.isfinite(kappa) & (metric > 0)
    plain, with_trade_off = scenarios
    if usable.sum() < MIN_POINTS:
        return []
    scaled = metric[usable] / metric[usable].max()
    quotient = kappa[usable] / scaled
    values = {by: column[usable] for by, column in values.items()}
    rows = [_row(name, plain, "", by, -quotient, column) for by, column in values.items()]
    objective = next(iter(values))
    fits = {by: fit_trade_off(scaled, quotient, column) for by, column in values.items()}
    for by, column in values.items():
        for fitted in dict.fromkeys((objective, by)):
            fit = fits[fitted]
            bound = quotient + fit.mu * (scaled**2 - fit.nu) ** 2
            rows.append(_row(name, with_trade_off, fitted, by, -bound, column) | {"mu": fit.mu, "nu": fit.nu})
    return rows


def _row(
    name: str, scenario: str, fitted_on: str, judged_on: str, prediction: np.ndarray, values: np.ndarray
) -> dict[str, object]:
    """Returns a row of correlations.

    Args:
        prediction: (n,); as in `values`, higher is better.
    """
    few = len(values) < MIN_POINTS or np.ptp(prediction) == 0
    return {
        "metric": name,
        "scenario": scenario,
        "fitted_on": fitted_on,
        "judged_on": judged_on,
        "spearman": np.nan if few else float(spearmanr(prediction, values).statistic),
        "kendall": np.nan if few else float(kendalltau(prediction, values).statistic),
        "mu": np.nan,
        "nu": np.nan,
        "n": len(values),
    }


CSV, MARKDOWN = "proxies.csv", "proxies.md"
NOTE = texts_of(__package__)("correlations")


def bench_proxies(
    table: str | Path,
    *,
    out: str | Path | None = None,
    where: Mapping[str, str] | None = None,
    objective: str | None = None,
    result: str | None = None,
) -> pd.DataFrame:
    """Correlates every training-free metric of a table with its values; see `correlations`.

    Args:
        table, where, objective, result: as in `archray.bench`.
        out: folder for `proxies.csv` and `proxies.md`, which must not contain these files.

    Returns: a row per metric, scenario and column.
    Raises: InvalidTable for an unusable table, InvalidInput for a table without a metric, RunFolderError.

    Example:
        ```python
        table = archray.bench_proxies("nb201.parquet", out="correlations")
        print(table.sort_values("spearman", ascending=False))
        ```
    """
    contents = read_table(table, where, objective=objective, result=result)
    if not contents.metrics:
        raise InvalidInput(
            f"expected a table with a training-free metric, got {contents.location} without one. Name them with: "
            "archray bench import --proxies a,b"
        )
    folder = None if out is None else Folder(out)
    if folder is not None and any(folder.exists(name) for name in (CSV, MARKDOWN)):
        raise RunFolderError(f"{folder} already contains {CSV} or {MARKDOWN}. Choose another --out")
    rows = correlations(contents)
    if folder is not None:
        folder.write_bytes(CSV, rows.to_csv(index=False).encode())
        roles = contents.roles
        judged = f"{count(len(contents.rows), 'architecture')} of {contents.location}. Objective:"
        lead = f"{judged} {roles.objective}; result: {roles.result or roles.objective}."
        text = f"# Training-free metrics\n\n{lead}\n\n{markdown_table(written_correlations(rows))}\n\n{NOTE}\n"
        folder.write_bytes(MARKDOWN, text.encode())
    return rows


def written_correlations(correlation_rows: pd.DataFrame) -> pd.DataFrame:
    """Formats a row per metric, scenario and fit, with two correlations per column of evaluation."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for row in correlation_rows.to_dict("records"):
        key = tuple(str(row[name]) for name in ("metric", "scenario", "fitted_on"))
        cells = rows.setdefault(key, {"n": str(row["n"])})
        mark = "*" if row["fitted_on"] == row["judged_on"] else ""
        for name, letter in (("spearman", "ρ"), ("kendall", "τ")):
            cells[f"{letter} {row['judged_on']}"] = written(row[name], 3) + mark
    keys = ("metric", "scenario", "fitted on")
    frame = pd.DataFrame([{**dict(zip(keys, key, strict=True)), **cells} for key, cells in rows.items()]).fillna("")
    scenarios = list(dict.fromkeys([PLAIN, *correlation_rows["scenario"]]))
    order = sorted(range(len(frame)), key=lambda row: scenarios.index(str(frame["scenario"].iloc[row])))
    judged = [column for column in frame if column not in (*keys, "n")]
    return frame.iloc[order].reset_index(drop=True)[[*keys, *judged, "n"]]
