"""The correlations of a table's metrics in words, and `archray.bench_proxies`, which prints and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from archray.errors import InvalidInput, RunFolderError
from archray.files import Folder
from archray.platform.bench.bench_tables import markdown_table, written
from archray.platform.bench.metric_correlations import PLAIN, correlations
from archray.plurals import count
from archray.trainables.tabular import Table, read_table

CSV, MARKDOWN = "proxies.csv", "proxies.md"
NOTE = (
    "ρ is Spearman's and τ Kendall's correlation with a value, positive where a metric is right. “1/M” is the "
    "realizable bound of Corollary 7.1 (M is |M|), “κ/M” the one with the condition number; “trade-off” adds "
    "mu (M² - nu)², so “κ/M + trade-off” is Eq. 7.6. mu and nu are fitted on a grid, on the values that “fitted on” "
    "names; what is marked with * is judged by what it was fitted on, as apparently Tables 7.1 and 7.5 of the thesis "
    "are: too good."
)


def bench_proxies(
    table: str | Path,
    *,
    out: str | Path | None = None,
    where: Mapping[str, str] | None = None,
    objective: str | None = None,
    result: str | None = None,
) -> pd.DataFrame:
    """The correlations of every metric of a table with its values; see `correlations`.

    Args:
        table, where, objective, result: as of `archray.bench`.
        out: a folder for `proxies.csv` and `proxies.md`, new or without these.

    Raises: InvalidTable for a table that cannot serve, InvalidInput for one without a metric, RunFolderError.
    """
    held = read_table(table, where, objective=objective, result=result)
    if not held.metrics:
        raise InvalidInput(
            f"{held.location} has no training-free metric; name its columns (archray bench import --proxies a,b)"
        )
    folder = None if out is None else Folder(out)
    if folder is not None and any(folder.exists(name) for name in (CSV, MARKDOWN)):
        raise RunFolderError(f"{folder} has {CSV} or {MARKDOWN} already; choose another --out")
    told = correlations(held)
    if folder is not None:
        folder.write_bytes(CSV, told.to_csv(index=False).encode())
        text = f"# Training-free metrics\n\n{lead(held)}\n\n{markdown_table(written_correlations(told))}\n\n{NOTE}\n"
        folder.write_bytes(MARKDOWN, text.encode())
    return told


def lead(table: Table) -> str:
    """What was correlated with what."""
    roles = table.roles
    text = f"{count(len(table.rows), 'architecture')} of {table.location}; a search is told {roles.objective}"
    return f"{text}, and judged by {roles.result}." if roles.result else f"{text}, and judged by it."


def written_correlations(told: pd.DataFrame) -> pd.DataFrame:
    """A row per metric, scenario and fit, as text; two columns per column of the table that it is judged by."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for row in told.to_dict("records"):
        key = tuple(str(row[name]) for name in ("metric", "scenario", "fitted_on"))
        cells = rows.setdefault(key, {"n": str(row["n"])})
        mark = "*" if row["fitted_on"] == row["judged_on"] else ""
        for name, letter in (("spearman", "ρ"), ("kendall", "τ")):
            cells[f"{letter} {row['judged_on']}"] = written(row[name], 3) + mark
    keys = ("metric", "scenario", "fitted on")
    frame = pd.DataFrame([{**dict(zip(keys, key, strict=True)), **cells} for key, cells in rows.items()]).fillna("")
    scenarios = list(dict.fromkeys([PLAIN, *told["scenario"]]))
    order = sorted(range(len(frame)), key=lambda row: scenarios.index(str(frame["scenario"].iloc[row])))
    judged = [column for column in frame if column not in (*keys, "n")]
    return frame.iloc[order].reset_index(drop=True)[[*keys, *judged, "n"]]
