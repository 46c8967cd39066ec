"""What failed, counted by its reason: nothing that failed is dropped silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from archray.platform.report.columns import failures
from archray.platform.report.page import MakeSection
from archray.platform.report.quantity import count
from archray.platform.report.section import Column, Section, table
from archray.platform.run.run import Run

Tables = Mapping[str, tuple[str, str]]  # what was done, in words -> the stage and the table that tell what failed
_REASONS = 40  # more distinct reasons than this are counted together
_LONG = 300  # characters of a reason that are shown


def failures_section(tables: Tables) -> MakeSection:
    """A table of stage, reason and count, or the sentence that nothing failed. Nothing for a run without tables."""

    def make(run: Run[Any]) -> Section | None:
        stages = {words: run.pooled(*place) for words, place in tables.items()}
        if all(frame.empty for frame in stages.values()):
            return None
        rows = [row for stage, frame in stages.items() for row in _counted(stage, frame)]
        if not rows:
            return Section("failures", "Failures", "<p>Nothing failed.</p>")
        columns = (Column("Stage"), Column("Reason"), Column("Failed", "number"), Column("of", "number"))
        body = (
            "<p>A failure is a result with a reason; it takes no part in means, rankings or the figures above.</p>"
            + table(columns, rows, label="Failures by stage and reason")
        )
        return Section("failures", "Failures", body)

    return make


def failed(run: Run[Any], tables: Tables) -> str | None:
    """`3 in scoring, 1 in final`; None if nothing failed."""
    numbers = {words: int(failures(run.pooled(*place)).notna().sum()) for words, place in tables.items()}
    return ", ".join(f"{number} in {words}" for words, number in numbers.items() if number) or None


def _counted(stage: str, frame: pd.DataFrame) -> list[tuple[str, str, int, int]]:
    """Stage, reason, how many, of how many; the most frequent first."""
    counts = failures(frame).dropna().astype(str).value_counts()
    rows = [
        (stage, reason if len(reason) <= _LONG else reason[:_LONG] + "…", int(number), len(frame))
        for reason, number in zip(counts.index[:_REASONS].map(str), counts, strict=False)
    ]
    rest = counts.iloc[_REASONS:]
    if len(rest):
        rows.append((stage, count(len(rest), "further reason"), int(rest.sum()), len(frame)))
    return rows
