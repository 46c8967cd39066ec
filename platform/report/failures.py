"""What failed, counted by its reason: nothing that failed is dropped silently."""

from __future__ import annotations

import pandas as pd

from archray.platform.report.quantity import count
from archray.platform.report.section import Column, Section, table
from archray.platform.report.view import RunView, failures

_REASONS = 40  # more distinct reasons than this are counted together
_LONG = 300  # characters of a reason that are shown


def failures_section(view: RunView) -> Section | None:
    """A table of stage, reason and count, or the sentence that nothing failed. Nothing for a run without tables."""
    stages = {
        "scoring the pool": view.pool,
        "search": view.evaluated,
        "supernets of the search": view.found,
        "evaluating ensembles": view.ensembles,
        "scoring with shared weights": view.scores,
        "rounds of halving": view.rounds,
        "selection": view.selection,
        "final training": view.final,
        "random architectures": view.baseline,
    }
    if all(frame.empty for frame in stages.values()):
        return None
    rows = [row for stage, frame in stages.items() for row in _counted(stage, frame)]
    if not rows:
        body = "<p>Nothing failed.</p>"
    else:
        columns = (Column("Stage"), Column("Reason"), Column("Failed", "number"), Column("of", "number"))
        body = (
            "<p>A failure is a result with a reason; it takes no part in means, rankings or the figures above.</p>"
            + table(columns, rows, label="Failures by stage and reason")
        )
    return Section("failures", "Failures", body)


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
