"""The page that sets several searches for a feature map side by side. Khodak et al. 2020, Figures 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.feature_maps.equal_cost import (
    END,
    REACHED,
    Progress,
    comparable_by_calls,
    comparison_table,
    method_of,
    reference_error,
    written,
)
from archray.platform.methods.feature_maps.found_map import TEST, with_error
from archray.platform.methods.feature_maps.oracle_error import By, error_at, error_curve, total
from archray.platform.methods.feature_maps.solver_calls import Line, draw_errors
from archray.platform.report.page import write_page
from archray.platform.report.plot import FOUND, GREEN, INDIGO, PINK, RANDOM, TRIAL, Size, plot
from archray.platform.report.quantity import count
from archray.platform.report.section import Column, Section, escape, figure, paragraphs, table

__all__ = ["comparison_table", "error_at", "render_comparison"]

Look = tuple[str, tuple[float, ...] | None]  # colour and dashes

_LOOKS: dict[str, Look] = {
    "halving": (FOUND, None),
    "fast-halving": (GREEN, (6, 2)),
    "random": (RANDOM, None),
    "successive-halving": (PINK, (4, 2, 1, 2)),
    "hyperband": (INDIGO, (1.5, 1.5)),
}
_FURTHER: list[Look] = [
    (colour, dashes) for dashes in ((8, 2), (3, 1), (1, 2)) for colour in (TRIAL, GREEN, PINK, INDIGO, FOUND, RANDOM)
]


def render_comparison(runs: Sequence[Progress], title: str = "Comparison") -> str:
    """One self-contained page: test errors at equal cost, and Figures 2 and 3 with a line per run.

    Args:
        runs: label and `RunView.progress` of each; see `equal_cost`.
        title: the heading.

    Raises: InvalidInput without runs, or with a label twice.
    """
    told = comparison_table(runs)
    sections = [_table(runs, told)]
    for by in ("calls", "seconds"):
        section = _figure(runs, by)
        if section is not None:
            sections.append(section)
    header = f'<p class="kicker">archray · comparison</p><h1>{escape(title)}</h1>{_lead(runs, told)}'
    return write_page(title, header, sections)


def _lead(runs: Sequence[Progress], told: pd.DataFrame) -> str:
    """The method with the least error at the end, in a sentence; nothing where none has an error."""
    ends = told[END]
    if ends["mean"].isna().all():
        return ""
    best = str(ends["mean"].idxmin())
    mean, standard_error = (
        float(ends[part].to_numpy()[ends.index.get_loc(best)]) for part in ("mean", "standard error")
    )
    text = f"{count(len(runs), 'run')} of one space on the same data. "
    text += f"The least test error in the end is that of {best}: {with_error(mean, standard_error)}."
    return f'<p class="lead">{escape(text)}</p>'


def _table(runs: Sequence[Progress], told: pd.DataFrame) -> Section:
    shown = written(told)
    columns = [Column(""), *(Column(label, "number") for label in shown.index)]
    rows = [(_capital(str(name)), *cells) for name, cells in shown.to_dict("list").items()]
    body = table(columns, rows, label="Test error of each run at equal cost")
    return Section("table", "Test error at equal cost", body + paragraphs(_fairness(runs, told)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _fairness(runs: Sequence[Progress], told: pd.DataFrame) -> Iterator[str]:
    """What the table's numbers are, and which of them may be held against each other: note W6."""
    methods = {method_of(label) for label, _ in runs}
    yield (
        "Test errors in percent, mean and standard error over the repeats; a run that has ended keeps its last. Where "
        "solves are shared it is an oracle's: of the best feature map until then, solved on its own in full. Oracle "
        "solves count neither as solver calls nor as seconds: a search does without them."
    )
    yield (
        "At equal seconds (of featurising, solving and scoring) all methods may be compared, as long as they ran on "
        "one machine with the same settings."
    )
    text = (
        "At equal solver calls only methods may be compared whose calls are full solves: halving with weight sharing "
        "and random search."
    )
    if "fast-halving" in methods:
        text += " fast-halving is shown with them; all of its calls but the last two have fewer features and cost less."
    smaller = [label for label, _ in runs if not comparable_by_calls(label)]
    if smaller:
        text += (
            f" {', '.join(smaller)}: many solves with few features, whose number compares with nothing; "
            "the table leaves it out there."
        )
    yield text
    yield from _reached(runs, told)


def _reached(runs: Sequence[Progress], told: pd.DataFrame) -> Iterator[str]:
    """At what cost the runs with full solves came down to the error that random search ends with."""
    error = reference_error(runs)
    if error is None:
        return
    calls = next(total(progress, "calls") for label, progress in runs if method_of(label) == "random")
    others = [label for label, _ in runs if comparable_by_calls(label) and method_of(label) != "random"]
    reached = dict(zip(told.index, told[REACHED, "solver calls"].to_numpy(dtype=float), strict=True))
    parts = []
    for label in others:
        needed = reached[label]
        parts.append(
            f"{label} does not come down to it"
            if math.isnan(needed)
            else f"{label} is at or below it from solver call {needed:.0f} on: "
            f"{100 * needed / calls:.0f} % of random search's {calls:.0f}"
        )
    if parts:
        yield f"Random search ends with {TEST.show(error)} on average; {'; '.join(parts)}."


def _figure(runs: Sequence[Progress], by: By) -> Section | None:
    """The curves over solver calls, of the runs that compare there, or over seconds, of all."""
    looks = _looks([label for label, _ in runs])
    shown = [run for run in runs if by == "seconds" or comparable_by_calls(run[0])]
    lines = [
        Line(label, curve, *looks[label])
        for label, progress in shown
        if (curve := error_curve(progress, by)) is not None
    ]
    if not lines:
        return None

    def draw(canvas: Figure, narrow: bool) -> None:
        draw_errors(canvas.subplots(), lines, by, narrow)
        canvas.legend(loc="outside upper left", ncols=1 if narrow else 3, handlelength=3.2)

    ends = ", ".join(f"{line.label} {TEST.show(line.curve.mean[-1])}" for line in lines)
    extra = 22 * len(lines)
    drawing = plot(
        f"compare-{by}", draw, description=f"Test error over {by}, at the end: {ends}.",
        wide=Size(760, 420), narrow=Size(350, 300 + extra),
    )  # fmt: skip
    title = "Over solver calls" if by == "calls" else "Over time"
    return Section(f"over-{by}", title, figure(drawing, _caption(lines, by)))


def _looks(labels: Sequence[str]) -> dict[str, Look]:
    """Each method its own colour, on every page; a second run of one, and an unknown method, the next that is free."""
    looks: dict[str, Look] = {}
    free = iter(_FURTHER)
    for label in labels:
        own = _LOOKS.get(method_of(label))
        looks[label] = own if own is not None and own not in looks.values() else next(free)
    return looks


def _caption(lines: Sequence[Line], by: By) -> str:
    repeats = {line.curve.repeats for line in lines}
    text = f"Test error over {'solver calls' if by == 'calls' else 'seconds'}"
    if max(repeats) > 1:
        of = count(max(repeats), "repeat") if len(repeats) == 1 else f"{min(repeats)} to {max(repeats)} repeats"
        text += f"; lines are means of {of}, bands one standard error on either side"
    text += ". A line begins where every repeat has an error, and the dot is where its last repeat has ended."
    return f"{text} As Figure {2 if by == 'calls' else 3} of Khodak et al. 2020."
