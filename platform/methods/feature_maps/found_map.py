"""The head of the report of a search for a feature map, and its repeats: test error, solver calls, seconds."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from archray.platform.methods.feature_maps.oracle_error import by_repeat, error_at, last_rows, progress_of
from archray.platform.report.columns import flags, numbers
from archray.platform.report.header import Card
from archray.platform.report.quantity import (
    MISSING,
    Quantity,
    count,
    duration,
    finite_values,
    significant,
    whole_number,
)
from archray.platform.report.section import Column, Section, escape, numeric, table
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run

TEST = Quantity.of("test_error")


def found_repeat(run: Run[Any], progress: pd.DataFrame) -> tuple[object, pd.DataFrame]:
    """The first repeat that ended with the found feature map, else the first one: its number and its rows.

    The index of the rows counts from 0. `progress`, the run's `progress_of`, has a row.
    """
    repeats = [(repeat, rows.reset_index(drop=True)) for repeat, rows in by_repeat(progress)]
    architecture = run.best.architecture
    ended = [(repeat, rows) for repeat, rows in repeats if _map(rows, len(rows) - 1) == architecture]
    return (ended or repeats)[0]


def with_error(mean: float, standard_error: float) -> str:
    """A test error and its standard error: `3.21 ± 0.10 %`; the mean alone where there is one repeat."""
    if not math.isfinite(standard_error):
        return TEST.show(mean)
    return f"{TEST.bare(mean)} ± {TEST.bare(standard_error)} {TEST.unit}"


def lead(run: Run[Any], progress: pd.DataFrame) -> str:
    """What was found, in a sentence or two; plain text. `progress` has a row."""
    repeat, rows = found_repeat(run, progress)
    repeats = len(by_repeat(progress))
    if repeats == 1:
        return f"The search chose the feature map below {_cost(rows)}; {_solved(rows)}.{_again(run)}"
    mean, standard_error, known = error_at(progress)
    text = f"{count(repeats, 'search', 'searches')}, each with a seed of its own"
    if known:
        text += f", ended with a test error of {TEST.show(mean)} on average"
        text += f" (standard error {TEST.show(standard_error)})" if known > 1 else ""
    text += f". Below is the feature map that repeat {repeat} chose {_cost(rows)}; {_solved(rows)}."
    return text + _again(run)


def cards(progress: pd.DataFrame) -> list[Card]:
    """Test error, solver calls and seconds, means over the repeats. `progress` has a row."""
    mean, standard_error, _ = error_at(progress)
    last = last_rows(progress)
    of = f", mean of {count(len(last), 'repeat')} ± standard error" if len(last) > 1 else ""
    calls, seconds = numbers(last, "calls").mean(), numbers(last, "seconds").mean()
    shown = (
        Card("found", with_error(mean, standard_error), f"test error{of}"),
        Card("trial", significant(calls, 3 if calls % 1 else 1), "solver calls"),
        Card("trial", duration(seconds), "in these calls"),
    )
    return [card for card in shown if card.value != MISSING]


def facts(progress: pd.DataFrame) -> dict[str, str | None]:
    """What else is known of the run's solves. `progress` has a row."""
    dimension = numbers(progress, "dimension")
    low, high = dimension.min(), dimension.max()
    span = whole_number(high) if low == high else f"{whole_number(low)} to {whole_number(high)}"
    repeats = len(by_repeat(progress))
    return {
        "Feature dimension": span if dimension.notna().any() else None,
        "Solver calls": count(len(progress), "call") + (f" in {repeats} repeats" if repeats > 1 else ""),
    }


def map_repeats_section(run: Run[Any]) -> Section | None:
    """A row per repeat: what it chose, at what cost. Nothing for fewer than two."""
    progress = progress_of(run)
    last = last_rows(progress)
    if len(last) < 2:
        return None
    columns = (*numeric("No."), Column("Feature map", "code"), *numeric("Solver calls", "Seconds", TEST.axis))
    calls, seconds, errors = (numbers(last, name) for name in ("calls", "seconds", "test_error"))
    rows = [
        (
            last["repeat"][i],
            _map(last, i) or "nothing found",
            whole_number(calls[i]),
            significant(seconds[i]),
            TEST.bare(errors[i]),
        )
        for i in last.index
    ]
    maps = {name for i in last.index if (name := _map(last, i)) is not None}
    mean, standard_error, known = error_at(progress)
    text = (
        f"The whole search, {count(len(last), 'time')}, each with a seed of its own: candidates, bases and the maps "
        f"of the points are drawn anew. They chose {count(len(maps), 'distinct feature map')}"
    )
    text += f". Their test error: {with_error(mean, standard_error)}" if known else ""
    text += "; ± is the standard error of the mean." if known > 1 else "."
    shown, _ = found_repeat(run, progress)
    marked = next((i for i in last.index if last["repeat"][i] == shown), None)
    return Section(
        "repeats",
        "Repeats",
        f"<p>{escape(text)}</p>" + table(columns, rows, label="The repeats of the search", marked=marked),
    )


def _cost(rows: pd.DataFrame) -> str:
    calls, seconds = numbers(rows, "calls").max(), numbers(rows, "seconds").max()
    text = f"in {count(int(calls) if math.isfinite(calls) else len(rows), 'solver call')}"
    return text + (f" and {duration(seconds)}" if math.isfinite(seconds) else "")


def _solved(rows: pd.DataFrame) -> str:
    """What became of the found map, solved for on its own. Of solves of several sizes, which one it was is not told."""
    error, dimension = numbers(rows, "test_error").iloc[-1], numbers(rows, "dimension")
    if not math.isfinite(error):
        return "its test error is not known"
    known = flags(rows, "final").any() or dimension.nunique() == 1
    where = f" with {count(int(dimension.iloc[-1]), 'feature')}" if known and dimension.notna().all() else ""
    return f"solved on its own{where}, it has a test error of {TEST.show(error)}"


def _again(run: Run[Any]) -> str:
    """The solves for the found map after the search, each in bases of its own."""
    errors = 1 - finite_values(numbers(run.best.table("final", TRIALS), "test_accuracy"))
    if not errors.size:
        return ""
    times = "once more" if errors.size == 1 else f"{errors.size} times more"
    return f" Solved {times} in full, with new random draws: {TEST.spread(errors)}."


def _map(frame: pd.DataFrame, row: int) -> str | None:
    name = frame["architecture"][row] if "architecture" in frame else None
    return name if isinstance(name, str) else None
