"""The table of the search's trials, in the order they were suggested."""

from __future__ import annotations

import pandas as pd

from archray.platform.report.quantity import MISSING, Quantity, count, significant
from archray.platform.report.section import Column, Section, table
from archray.platform.report.view import RunView, failures, numbers


def trials_section(view: RunView) -> Section | None:
    """Number, architecture, the point asked for, value, and what became of it. Nothing without trials."""
    frame = view.evaluated
    if frame.empty:
        return None
    metric = Quantity.of(view.metric)
    with_point = any(numbers(frame, name).notna().any() for name in ("mu", "nu"))
    columns = [Column("No.", "number"), Column("Architecture", "code")]
    if with_point:
        columns += [Column("μ", "number"), Column("ν", "number")]
    columns += [Column(metric.axis, "number"), Column("Note")]
    repeats, reasons = is_repeat(frame), failures(frame)
    names = frame["architecture"] if "architecture" in frame else pd.Series(MISSING, index=frame.index)
    order, mu, nu, values = trial_numbers(frame), numbers(frame, "mu"), numbers(frame, "nu"), numbers(frame, "value")
    best = view.best_trial()
    rows = []
    for i in range(len(frame)):
        row: list[object] = [
            int(order[i]) if order[i] > 0 else "given",
            names[i] if isinstance(names[i], str) else MISSING,
        ]
        if with_point:
            row += [significant(mu[i]), significant(nu[i])]
        note = reasons[i] or ("known already, not trained again" if repeats[i] else "best" if i == best else "")
        rows.append((*row, metric.bare(values[i]), note))
    faint = frozenset(i for i in range(len(frame)) if repeats[i])
    total = f"{count(len(frame) - len(faint), 'training')} in the order they were suggested"
    if faint:
        total += f", and {count(len(faint), 'suggestion')} of an architecture whose value was known already (grey)"
    body = f"<p>{total}.</p>" + table(columns, rows, label="The trials of the search", marked=best, faint=faint)
    return Section("trials", "Trials of the search", body)


def is_repeat(frame: pd.DataFrame) -> pd.Series:
    """Which rows told a value that was known already."""
    if "repeat" not in frame:
        return pd.Series(False, index=frame.index)
    return frame["repeat"].map(lambda value: bool(value) if pd.notna(value) else False).astype(bool)


def trial_numbers(frame: pd.DataFrame) -> pd.Series:
    """The numbers that trials are shown with, from 1; what the user gave instead of the search has none above 0."""
    given = numbers(frame, "number")
    return (given if given.notna().all() else pd.Series(range(len(frame)), index=frame.index, dtype=float)) + 1
