"""What a comparison of several searches for a feature map has beside others': their test accuracies at equal cost.

Khodak et al. 2020, Figures 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.feature_maps.equal_cost import (
    REACHED,
    Progress,
    comparable_by_calls,
    comparison_table,
    growing,
    is_random_search,
    reference_accuracy,
    written,
)
from archray.platform.methods.feature_maps.oracle_accuracy import TEST, By, accuracy_curve, total
from archray.platform.methods.feature_maps.solver_calls import Line, draw_accuracies
from archray.platform.report.figures import FOUND, GREEN, INDIGO, PINK, RANDOM, TRIAL, NothingToDraw, drawing, figure
from archray.platform.report.repeat_spread import spread_words
from archray.platform.report.section import Column, Section, captioned, numeric, paragraphs, table
from archray.plurals import count

Look = tuple[str, tuple[float, ...] | None]  # colour and dashes

_LOOKS: tuple[Look, ...] = (
    (FOUND, None),
    (GREEN, (6, 2)),
    (PINK, (4, 2, 1, 2)),
    (INDIGO, (1.5, 1.5)),
    *((colour, dashes) for dashes in ((8, 2), (3, 1), (1, 2)) for colour in (TRIAL, GREEN, PINK, INDIGO, FOUND)),
)


def equal_cost_sections(runs: Sequence[Progress]) -> list[Section]:
    """Test accuracies at equal cost, and Figures 2 and 3 with a line per run; see `equal_cost`.

    Raises: InvalidInput without runs, or with a label twice.
    """
    comparison = comparison_table(runs)
    return [_table(runs, comparison), *_curves(runs)]


def _table(runs: Sequence[Progress], comparison: pd.DataFrame) -> Section:
    shown = written(comparison)
    columns = [Column(""), *numeric(*shown.index)]
    rows = [(str(name)[:1].upper() + str(name)[1:], *cells) for name, cells in shown.to_dict("list").items()]
    body = table(columns, rows, label="Test accuracy of each run at equal cost")
    return Section("equal-cost", "Test accuracy at equal cost", body + paragraphs(_fairness(runs, comparison)))


def _fairness(runs: Sequence[Progress], comparison: pd.DataFrame) -> Iterator[str]:
    """What the table's numbers are, and which of them may be held against each other: note W6."""
    yield (
        "Test accuracies in percent, mean and standard deviation over the repeats; a run that has ended keeps its "
        "last. Where solves are shared it is an oracle's: of the best feature map until then, solved alone in full. "
        "Oracle solves count neither as solver calls nor as seconds: a search does without them."
    )
    yield (
        "At equal seconds (of featurising, solving and scoring) all methods may be compared, as long as they ran on "
        "one machine with the same settings."
    )
    text = (
        "At equal solver calls only methods may be compared whose calls are full solves: halving with weight sharing "
        "and random search."
    )
    for label, progress in runs:
        if growing(progress):
            text += f" {label} is shown with them; all of its calls but the last two have fewer features and cost less."
    smaller = [label for label, progress in runs if len(progress) and not comparable_by_calls(progress)]
    if smaller:
        text += (
            f" {', '.join(smaller)}: many solves with few features, whose number compares with nothing; "
            "the table leaves it out there."
        )
    yield text
    yield from _reached(runs, comparison)


def _reached(runs: Sequence[Progress], comparison: pd.DataFrame) -> Iterator[str]:
    """At what cost the runs with full solves reached the accuracy that random search ends with."""
    accuracy = reference_accuracy(runs)
    if accuracy is None:
        return
    calls = next(total(progress, "calls") for _, progress in runs if is_random_search(progress))
    others = [label for label, own in runs if comparable_by_calls(own) and not is_random_search(own)]
    reached = dict(zip(comparison.index, comparison[REACHED, "solver calls"].to_numpy(dtype=float), strict=True))
    parts = []
    for label in others:
        needed = reached[label]
        parts.append(
            f"{label} does not reach it"
            if math.isnan(needed)
            else f"{label} is at or above it from solver call {needed:.0f} on: "
            f"{100 * needed / calls:.0f} % of random search's {calls:.0f}"
        )
    if parts:
        yield f"Random search ends with {TEST.show(accuracy)} on average; {'; '.join(parts)}."


@figure(height=400)
def accuracies_compared_by_calls(runs: Sequence[Progress], canvas: Figure) -> None:
    """Test accuracy over solver calls, a line for each run that compares there. Khodak et al. 2020, Figure 2."""
    _draw(_lines(runs, "calls"), canvas, "calls")


@figure(height=400)
def accuracies_compared_by_seconds(runs: Sequence[Progress], canvas: Figure) -> None:
    """Test accuracy over seconds, a line for each run. Khodak et al. 2020, Figure 3."""
    _draw(_lines(runs, "seconds"), canvas, "seconds")


_FIGURES: tuple[tuple[By, str, Callable[[Sequence[Progress]], Figure]], ...] = (
    ("calls", "Over solver calls", accuracies_compared_by_calls),
    ("seconds", "Over time", accuracies_compared_by_seconds),
)


def _draw(lines: Sequence[Line], canvas: Figure, by: By) -> None:
    if not lines:
        raise NothingToDraw(f"none of the runs has a test accuracy over {by}; compare searches for feature maps")
    draw_accuracies(canvas.subplots(), lines, by)
    canvas.legend(loc="outside upper left", ncols=2, handlelength=3.2)


def _lines(runs: Sequence[Progress], by: By) -> list[Line]:
    """The curves over solver calls, of the runs that compare there, or over seconds, of all."""
    lines = []
    for (label, progress), look in zip(runs, looks_of(runs), strict=True):
        if by == "seconds" or comparable_by_calls(progress):
            curve = accuracy_curve(progress, by)
            lines += [Line(label, curve, *look)] if curve is not None else []
    return lines


def looks_of(runs: Sequence[Progress]) -> list[Look]:
    """How each run is drawn, in their order: random search as on every page, a second run of it as any other."""
    looks, free = [], cycle(_LOOKS)
    for _, progress in runs:
        random = is_random_search(progress) and (RANDOM, None) not in looks
        looks.append((RANDOM, None) if random else next(free))
    return looks


def _curves(runs: Sequence[Progress]) -> Iterator[Section]:
    """The curves over solver calls and over seconds, where there are any."""
    for by, title, compared in _FIGURES:
        lines = _lines(runs, by)
        if lines:
            ends = ", ".join(f"{line.label} {TEST.show(line.curve.mean[-1])}" for line in lines)
            shown = drawing(
                f"compare-{by}", compared(runs), description=f"Test accuracy over {by}, at the end: {ends}."
            )
            yield Section(f"over-{by}", title, captioned(shown, _caption(lines, by)))


def _caption(lines: Sequence[Line], by: By) -> str:
    repeats = {line.curve.repeats for line in lines}
    text = f"Test accuracy over {'solver calls' if by == 'calls' else 'seconds'}"
    if max(repeats) > 1:
        of = (
            count(max(repeats), "repeat") if len(repeats) == 1 else f"{min(repeats)} to {count(max(repeats), 'repeat')}"
        )
        text += f"; lines are means of {of}, {spread_words(max(repeats), 'standard deviation')}"
        if 2 in repeats and max(repeats) > 2:
            text += ", of two repeats these as points"
    text += ". A line begins where every repeat has one, and the dot is where its last repeat has ended."
    return f"{text} As Figure {2 if by == 'calls' else 3} of Khodak et al. 2020."
