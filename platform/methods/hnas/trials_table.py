"""The table of the search's trials, in the order they were suggested."""

from __future__ import annotations

from typing import Any

import pandas as pd

from archray.platform.methods.hnas.hnas_tables import ASKED, VALUE, best_trial, trial_numbers
from archray.platform.report.columns import failures, is_repeat, numbers
from archray.platform.report.quantity import MISSING, count, significant
from archray.platform.report.section import Column, Section, folded, numeric, table
from archray.platform.run.run import Run


def trials_section(run: Run[Any]) -> Section | None:
    """The trainings, and folded below them every question of the optimiser. Nothing without trials."""
    frame = run.best.table(*ASKED)
    if frame.empty:
        return None
    again = is_repeat(frame)
    body = f"<p>{count(int((~again).sum()), 'training')} in the order they were suggested"
    if not again.any():
        return Section("trials", "Trials of the search", f"{body}.</p>{_table(frame, ~again)}")
    body += (
        f". The optimiser asked {count(len(frame), 'question')}; {int(again.sum())} of them selected an architecture "
        "whose value was known already, and cost nothing.</p>"
    )
    everything = folded("All questions", _table(frame, again | ~again))
    return Section("trials", "Trials of the search", body + _table(frame, ~again) + everything)


def _table(frame: pd.DataFrame, shown: pd.Series) -> str:
    """The rows of the trials that are `shown`: number, architecture, point asked for, value, what became of it."""
    with_point = any(numbers(frame, name).notna().any() for name in ("mu", "nu"))
    columns = [*numeric("No."), Column("Architecture", "code")]
    columns += [*numeric(*(["μ", "ν"] if with_point else []), VALUE.axis), Column("Note")]
    again, reasons, order = is_repeat(frame), failures(frame), trial_numbers(frame)
    names = frame["architecture"] if "architecture" in frame else pd.Series(MISSING, index=frame.index)
    mu, nu, values = numbers(frame, "mu"), numbers(frame, "nu"), numbers(frame, "value")
    best, rows = best_trial(frame), []
    kept = [i for i in range(len(frame)) if shown[i]]
    for i in kept:
        number = MISSING if again[i] else "given" if pd.isna(order[i]) else int(order[i])
        row: list[object] = [number, names[i] if isinstance(names[i], str) else MISSING]
        if with_point:
            row += [significant(mu[i]), significant(nu[i])]
        note = reasons[i] or ("known already, not trained again" if again[i] else "best" if i == best else "")
        rows.append((*row, VALUE.bare(values[i]), note))
    return table(
        columns,
        rows,
        label="The trials of the search",
        marked=kept.index(best) if best in kept else None,
        faint=frozenset(place for place, i in enumerate(kept) if again[i]),
    )
