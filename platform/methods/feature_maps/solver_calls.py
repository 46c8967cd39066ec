"""Test accuracy of the best so far against solver calls and seconds. Khodak et al. 2020, Figures 2 and 3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.feature_maps.oracle_accuracy import (
    TEST,
    AccuracyCurve,
    By,
    accuracy_at,
    accuracy_curve,
    found_repeat,
    names_of,
    progress_of,
    shares_solves,
    with_deviation,
)
from archray.platform.quantities import significant, whole_number
from archray.platform.report.figures import FOUND, INK, SURFACE, NothingToDraw, drawing, figure, plain
from archray.platform.report.pointed_at import tell_line, tell_points
from archray.platform.report.repeat_spread import draw_spread, spread_words
from archray.platform.report.section import Column, Section, captioned, folded, numeric, table
from archray.platform.report.table_columns import flags, numbers
from archray.platform.run.run import Run
from archray.plurals import count

_AXES = {"calls": "solver calls", "seconds": "seconds of featurising, solving and scoring"}

_TOLD = 40  # steps of a curve that are told one by one
_SKEWED = 8  # where 1 - accuracy falls by more than this factor, it is drawn instead, on a logarithmic axis
_LONG = 50  # and where the longest of several runs is more than this many times the least x shown, so has x
_FLOOR = 1e-5  # the least that a logarithmic axis shows: a band may reach below zero


@dataclass(frozen=True)
class Line:
    """A curve as it is drawn: its name in the legend, its colour and dashes (None for a whole line)."""

    label: str
    curve: AccuracyCurve
    colour: str = FOUND
    dashes: tuple[float, ...] | None = None


def solver_calls_section(run: Run[Any]) -> Section:
    """Figure 2, and folded below it the solver calls of one repeat."""
    shown = _captioned(run, halving_accuracy_by_calls(run), "calls")
    return Section("solver-calls", "Test accuracy over solver calls", shown + _calls(run))


def seconds_section(run: Run[Any]) -> Section:
    """Figure 3."""
    return Section("seconds", "Test accuracy over time", _captioned(run, halving_accuracy_by_seconds(run), "seconds"))


@figure(height=310)
def halving_accuracy_by_calls(run: Run[Any], canvas: Figure) -> None:
    """Test accuracy of a feature map search's best so far over its solver calls. Khodak et al. 2020, Figure 2."""
    _draw(run, canvas, "calls")


@figure(height=310)
def halving_accuracy_by_seconds(run: Run[Any], canvas: Figure) -> None:
    """Test accuracy of a feature map search's best so far over seconds of its calls. Khodak et al. 2020, Figure 3."""
    _draw(run, canvas, "seconds")


def _draw(run: Run[Any], canvas: Figure, by: By) -> None:
    curve, axes = _curve(run, by), canvas.subplots()
    missing = draw_accuracies(axes, [Line("", curve)], by)
    axes.annotate(
        TEST.show(curve.mean[-1]),
        (curve.x[-1], TEST.factor * (1 - curve.mean[-1] if missing else curve.mean[-1])),
        xytext=(-2, 11),
        textcoords="offset points",
        ha="right",
        fontsize=11,
        color=INK,
    )


def _curve(run: Run[Any], by: By) -> AccuracyCurve:
    """Raises: NothingToDraw without a known test accuracy, or without seconds."""
    curve = accuracy_curve(progress_of(run), by)
    if curve is None:
        raise NothingToDraw(f"no test accuracy over {by} is known of the run; it needs a search for a feature map")
    return curve


def _captioned(run: Run[Any], canvas: Figure, by: By) -> str:
    curve, over = _curve(run, by), "solver calls" if by == "calls" else "seconds"
    description = f"Test accuracy over {over}, from {TEST.show(curve.mean[0])} to {TEST.show(curve.mean[-1])}."
    return captioned(drawing(f"accuracy-{by}", canvas, description=description), _caption(progress_of(run), by))


def draw_accuracies(axes: Axes, lines: Sequence[Line], by: By) -> bool:
    """Step curves with their bands of one standard deviation, or two repeats as points, each ending in a dot.

    Where 1 - accuracy falls by a large factor, that is drawn, on a logarithmic axis, which says so.

    Returns: whether 1 - accuracy is drawn.
    """
    missing = _is_skewed(lines)
    for line in lines:
        curve, look = line.curve, (0, line.dashes) if line.dashes else "solid"
        mean, each = (TEST.factor * (1 - part if missing else part) for part in (curve.mean, curve.each))
        floor = _FLOOR * TEST.factor if missing else -math.inf
        draw_spread(axes, curve.x, each, TEST.factor * curve.deviation, line.colour, floor)
        axes.plot(
            curve.x, mean, drawstyle="steps-post", color=line.colour, linewidth=2.0, linestyle=look, label=line.label
        )
        axes.plot(
            curve.x[-1:], mean[-1:], "o", color=line.colour, markersize=8, markeredgecolor=SURFACE, zorder=4,
            clip_on=False,
        )  # fmt: skip
        _tell(axes, line, mean, by)
    _scale(axes, lines, by, logarithmic=missing)
    axes.set_xlabel(_AXES[by])
    axes.set_ylabel(f"1 − {TEST.axis}" if missing else TEST.axis)
    return missing


def _is_skewed(lines: Sequence[Line]) -> bool:
    missing = 1 - np.concatenate([line.curve.mean for line in lines])
    return bool(missing.min() > 0 and missing.max() > _SKEWED * missing.min())


def _tell(axes: Axes, line: Line, drawn: np.ndarray, by: By) -> None:
    """The accuracy at each step; of many steps, at the end. drawn: where each is on the axis."""
    x, name = line.curve.x, f"{line.label}\n" if line.label else ""
    words = [count(int(at), "solver call") if by == "calls" else f"{significant(at)} s" for at in x]
    shown = [f"{TEST.label} {TEST.show(mean)}" for mean in line.curve.mean]
    texts = [f"{name}{mean} after {word}" for mean, word in zip(shown, words, strict=True)]
    tell_line(axes, x.tolist(), drawn.tolist(), texts[-1])
    if len(texts) <= _TOLD:
        tell_points(axes, x, drawn, texts)


def _scale(axes: Axes, lines: Sequence[Line], by: By, *, logarithmic: bool) -> None:
    starts, ends = [line.curve.x[0] for line in lines], [line.curve.x[-1] for line in lines]
    if logarithmic:
        axes.set_yscale("log")
        plain(axes.yaxis)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6))
    if len(lines) > 1 and min(starts) > 0 and max(ends) > _LONG * min(starts):
        axes.set_xscale("log")
        plain(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=by == "calls"))


def _caption(progress: pd.DataFrame, by: By) -> str:
    text = _what_accuracy(progress)
    mean, deviation, repeats = accuracy_at(progress)
    if repeats > 1:
        text += f" The line is the mean of {count(repeats, 'repeat')}, {spread_words(repeats, 'standard deviation')}"
        text += "; a repeat that has ended keeps its last value." if by == "seconds" else "."
    text += " The dot is the end of the search"
    text += ", with the standalone solve of what it chose" if flags(progress, "final").any() else ""
    text += f": {with_deviation(mean, deviation)}."
    unknown = int(numbers(progress, "search_test_accuracy").isna().sum())
    if unknown:
        text += (
            f" {count(unknown, 'solver call')} of {len(progress)} {'has' if unknown == 1 else 'have'} no known test "
            "accuracy; the one before stands."
        )
    return f"{text} As Figure {2 if by == 'calls' else 3} of Khodak et al. 2020."


def _what_accuracy(progress: pd.DataFrame) -> str:
    """Which test accuracy a progress has: an oracle's where solves are shared, else what the search itself solved."""
    if shares_solves(progress):
        dimension = numbers(progress, "dimension")
        at = f" with {count(int(dimension.max()), 'feature')}" if dimension.notna().any() else ""
        return (
            "Test accuracy by an oracle: at each moment, that of the feature map which the search then held for the "
            f"best, solved on its own{at}. These oracle solves count neither as solver calls nor as seconds."
        )
    at = ", with the features of that solve" if numbers(progress, "dimension").nunique() > 1 else ""
    return f"Test accuracy, at each moment, of the feature map with the best validation score so far, as solved{at}."


def _calls(run: Run[Any]) -> str:
    """The solver calls of the repeat that found the map above, folded."""
    progress = progress_of(run)
    repeat, frame = found_repeat(run, progress)
    headings = {"calls": "Call", "dimension": "Dimension", "candidates": "Maps left"}
    known = [name for name in headings if numbers(frame, name).notna().any()]
    names = names_of(run)
    columns = numeric(*(headings[name] for name in known))
    columns += [Column("Best so far", "name"), *numeric(TEST.heading, "Score", "Seconds")]
    score, accuracy, seconds = (numbers(frame, name) for name in ("score", "search_test_accuracy", "seconds"))
    rows = [
        (
            *(whole_number(numbers(frame, name)[i]) for name in known),
            names.of(frame["architecture"][i]),
            TEST.bare(accuracy[i]),
            significant(score[i], 4),
            significant(seconds[i]),
        )
        for i in frame.index
    ]
    final = flags(frame, "final")
    calls = table(
        columns,
        rows,
        label="The solver calls and the best feature map after each",
        marked=int(np.flatnonzero(final)[-1]) if final.any() else None,
    )
    summary = f"Solver calls of repeat {repeat}" if progress["repeat"].nunique() > 1 else "Solver calls"
    return folded(summary, calls)
