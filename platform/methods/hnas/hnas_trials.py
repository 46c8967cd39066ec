"""The trials of an HNAS search, as a table: the trainings by value, and every question of the optimiser as asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.methods.hnas.hnas_tables import (
    ASKED,
    VALUE,
    best_trial,
    names_of,
    objective_of,
    trial_numbers,
    usable_pool,
)
from archray.platform.methods.hnas.penalty_share import MEANING, PenaltyScale, in_percent
from archray.platform.quantities import MISSING, significant
from archray.platform.report.section import Column, Section, folded, numeric, paragraphs, table
from archray.platform.report.short_names import ShortNames
from archray.platform.report.table_columns import failures, flags, numbers
from archray.platform.run.run import Run
from archray.plurals import count


def trials_section(run: Run[Any]) -> Section | None:
    """The trainings, the best first, and folded below them every question of the optimiser. Nothing without trials."""
    names, run = names_of(run), run.best
    frame, pool, objective = run.table(*ASKED), usable_pool(run), objective_of(run)
    if frame.empty:
        return None
    scale = None if pool is None or objective is None else PenaltyScale(pool, objective)
    trials = _Trials(frame, names, scale)
    again = flags(frame, "repeat")
    text, everything = f"{count(int((~again).sum()), 'training')}, the best first.", ""
    if again.any():
        text += (
            f" The optimiser asked {count(len(frame), 'question')}; {int(again.sum())} of them selected an "
            "architecture whose value was known already, and cost nothing."
        )
        everything = folded("All questions, as they were asked", trials.table(again | ~again, by_value=False))
    text += f" {MEANING}" if trials.with_share else ""
    return Section("trials", "Trials of the search", paragraphs([text]) + trials.table(~again) + everything)


@dataclass(frozen=True)
class _Trials:
    frame: pd.DataFrame  # as the search has asked
    names: ShortNames
    scale: PenaltyScale | None

    @property
    def with_point(self) -> bool:
        return any(numbers(self.frame, name).notna().any() for name in ("mu", "nu"))

    @property
    def with_share(self) -> bool:
        return self.with_point and self.scale is not None

    def table(self, shown: pd.Series, *, by_value: bool = True) -> str:
        """The rows that are `shown`: architecture, value, number, point asked for, what became of it."""
        frame = self.frame
        columns = [Column("Architecture", "name"), Column(VALUE.heading, "number", "descending" if by_value else None)]
        columns += [*numeric("No.", *(["Penalty's share (%)"] if self.with_share else []))]
        columns += [*numeric(*(["μ", "ν"] if self.with_point else [])), Column("Note")]
        again, reasons, order = flags(frame, "repeat"), failures(frame), trial_numbers(frame)
        names = frame["architecture"] if "architecture" in frame else pd.Series(MISSING, index=frame.index)
        mu, nu, values = numbers(frame, "mu"), numbers(frame, "nu"), numbers(frame, "value")
        best, rows = best_trial(frame), []
        kept = [i for i in range(len(frame)) if shown[i]]
        if by_value:
            worth = values.where(reasons.isna()).fillna(-np.inf)
            kept.sort(key=lambda i: -worth[i])
        for i in kept:
            number = MISSING if again[i] else "given" if pd.isna(order[i]) else int(order[i])
            row: list[object] = [self.names.of(names[i]), VALUE.bare(values[i]), number]
            if self.with_share and self.scale is not None:
                row.append(in_percent(self.scale.odds(mu[i], nu[i])))
            if self.with_point:
                row += [significant(mu[i]), significant(nu[i])]
            note = reasons[i] or ("known already" if again[i] else "best" if i == best else "")
            rows.append((*row, note))
        return table(
            columns,
            rows,
            label="The trials of the search",
            marked=kept.index(best) if best in kept else None,
            faint=frozenset(place for place, i in enumerate(kept) if again[i]),
        )
