"""What a search for a feature map shows: the head of its report, its repeats, and its solver calls in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from archray.platform.methods.feature_maps.correlation import correlation_section
from archray.platform.methods.feature_maps.oracle_error import (
    TEST,
    by_repeat,
    error_at,
    found_repeat,
    last_rows,
    map_in,
    progress_of,
    with_error,
)
from archray.platform.methods.feature_maps.solver_calls import seconds_section, solver_calls_section
from archray.platform.number_words import MISSING, duration, significant, whole_number
from archray.platform.report.cell import cell_section
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.rounds import Halving
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section
from archray.platform.report.section import Column, Section, escape, numeric, table
from archray.platform.report.table_columns import finite_values, flags, numbers
from archray.platform.run.layout import ROUNDS, TRIALS
from archray.platform.run.listing import Listing
from archray.platform.run.run import Run
from archray.plurals import count

_TABLES: Tables = {"rounds of halving": ("search", ROUNDS), "final training": ("final", TRIALS)}
_LINES = 20  # solver calls that are printed one by one


def _lead(run: Run[Any], progress: pd.DataFrame) -> str:
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


def _cards(progress: pd.DataFrame) -> list[Card]:
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


def _facts(progress: pd.DataFrame) -> dict[str, str | None]:
    """What else is known of the run's solves. `progress` has a row."""
    dimension = numbers(progress, "dimension")
    low, high = dimension.min(), dimension.max()
    span = whole_number(high) if low == high else f"{whole_number(low)} to {whole_number(high)}"
    repeats = len(by_repeat(progress))
    return {
        "Feature dimension": span if dimension.notna().any() else None,
        "Solver calls": count(len(progress), "call") + (f" in {count(repeats, 'repeat')}" if repeats > 1 else ""),
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
            map_in(last, i) or "nothing found",
            whole_number(calls[i]),
            significant(seconds[i]),
            TEST.bare(errors[i]),
        )
        for i in last.index
    ]
    maps = {name for i in last.index if (name := map_in(last, i)) is not None}
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
    times = "once more" if errors.size == 1 else f"{count(errors.size, 'time')} more"
    return f" Solved {times} in full, with new random draws: {TEST.spread(errors)}."


rounds_section = Halving("Feature map", "solve", "Features", ending="The last solve is of the winner alone.").section
SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    map_repeats_section,
    correlation_section,
    solver_calls_section,
    seconds_section,
    rounds_section,
    failures_section(_TABLES),
    manifest_section,
)


def headline(run: Run[Any]) -> Headline:
    """Test error, solver calls and seconds; of repeats, their means, and what the best of them found."""
    architecture, progress = run.best.architecture, progress_of(run)
    if progress.empty or architecture is None:
        text = "The run found no feature map; the failures below say why."
    else:
        text = _lead(run, progress)
    return Headline(
        thing="feature map",
        lead=text,
        names=() if architecture is None else (architecture,),
        cards=() if progress.empty else _cards(progress),
        facts={**({} if progress.empty else _facts(progress)), "Failures": failed(run, _TABLES)},
    )


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The solver calls of the search: one row each, or one for each that was better than those before."""
    progress = progress_of(run)
    if progress.empty:
        return ()
    better = progress[progress["architecture"] != progress["architecture"].shift()]
    rows = [
        {
            **{key: row[key] for key in ("calls", "seconds", "candidates", "dimension")},
            "search_test_accuracy": 1 - row["test_error"],
            "architecture": row["architecture"],
        }
        for row in (progress if len(progress) <= _LINES else better).to_dict("records")
    ]
    return (Listing.of("solver calls, and the best so far after each", rows),)
