"""What a search for a feature map shows: the head of its report, its repeats, and its solver calls in the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from archray.platform.methods.feature_maps.correlation import correlation_section
from archray.platform.methods.feature_maps.generalisation import generalisation_section
from archray.platform.methods.feature_maps.oracle_accuracy import (
    LETTER,
    TEST,
    accuracy_at,
    by_repeat,
    found_repeat,
    last_rows,
    map_in,
    names_of,
    progress_of,
    with_deviation,
)
from archray.platform.methods.feature_maps.solver_calls import seconds_section, solver_calls_section
from archray.platform.quantities import MISSING, Spread, duration, quantity_of, significant, whole_number
from archray.platform.report.cell import cell_section
from archray.platform.report.measured import Measured, headline_cards, over_repeats, tested
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.rounds import Halving
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.report.short_names import names_section
from archray.platform.report.table_columns import flags, numbers
from archray.platform.run.layout import ROUNDS, TRIALS
from archray.platform.run.listing import Listing
from archray.platform.run.run import Run
from archray.plurals import count

_TABLES: Tables = {"rounds of halving": ("search", ROUNDS), "final training": ("final", TRIALS)}
HEADLINES = ("test_accuracy", "search_test_accuracy")  # the lower of the two is the headline
_LINES = 20  # solver calls that are printed one by one


def _lead(run: Run[Any], progress: pd.DataFrame) -> str:
    """What was found, in a sentence or two; plain text. `progress` has a row."""
    repeat, rows = found_repeat(run, progress)
    repeats = len(by_repeat(progress))
    if repeats == 1:
        text = f"The search chose the feature map below {_cost(rows)}; {_solved(rows)}."
    else:
        text = f"{count(repeats, 'search', 'searches')}, each with a seed of its own. Below is the feature map that "
        text += f"repeat {repeat} chose {_cost(rows)}; {_solved(rows)}."
    return text + _again(run)


def _cards(run: Run[Any], progress: pd.DataFrame) -> list[Card]:
    """The test accuracies, the lower one first, solver calls and seconds. `progress` has a row."""
    last = last_rows(progress)
    calls, seconds = numbers(last, "calls").mean(), numbers(last, "seconds").mean()
    costs = (
        Card("trial", significant(calls, 3 if calls % 1 else 1), "solver calls"),
        Card("trial", duration(seconds), "in these calls"),
    )
    return [*headline_cards(over_repeats(run, measured_maps), HEADLINES), *(c for c in costs if c.value != MISSING)]


def measured_maps(run: Run[Any]) -> Measured:
    """Of one search: the test accuracies of its final solves, and of the search's own last one."""
    tests = {"test_accuracy": Spread.of(tested(run, "final"), "final solve")}
    progress = progress_of(run)
    if len(progress):
        last = numbers(last_rows(progress), "search_test_accuracy")
        tests["search_test_accuracy"] = Spread.of(last, "search")
    return {key: spread for key, spread in tests.items() if spread}


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
    names = names_of(run)
    columns = [Column("Feature map", "name"), Column(TEST.heading, "number", "descending")]
    again = {number: tested(repeat, "final") for number, repeat in enumerate(run.repeats)}
    in_full = any(accuracies.size for accuracies in again.values())
    columns += numeric(*([quantity_of("test_accuracy").heading] if in_full else []), "No.", "Solver calls", "Seconds")
    calls, seconds, accuracies = (numbers(last, name) for name in ("calls", "seconds", "search_test_accuracy"))
    order = accuracies.sort_values(ascending=False, kind="stable").index.tolist()
    rows = [
        (
            "nothing found" if map_in(last, i) is None else names.of(map_in(last, i)),
            TEST.bare(accuracies[i]),
            *([TEST.spread(again.get(int(last["repeat"][i]), ())).removesuffix(" %")] if in_full else []),
            last["repeat"][i],
            whole_number(calls[i]),
            significant(seconds[i]),
        )
        for i in order
    ]
    maps = {name for i in last.index if (name := map_in(last, i)) is not None}
    mean, deviation, known = accuracy_at(progress)
    text = (
        f"The whole search, {count(len(last), 'time')}, each with a seed of its own: candidates, bases and the maps "
        f"of the points are drawn anew. They chose {count(len(maps), 'distinct feature map')}"
    )
    text += f". Their {TEST.label}: {with_deviation(mean, deviation)}" if known else ""
    text += f"; ± is the standard deviation of {known}." if known > 1 else "."
    text += " Test accuracy without a word is of the solves in full, after the search." if in_full else ""
    shown, _ = found_repeat(run, progress)
    marked = next((place for place, i in enumerate(order) if last["repeat"][i] == shown), None)
    return Section(
        "repeats",
        "Repeats",
        paragraphs([text]) + table(columns, rows, label="The repeats of the search", marked=marked),
    )


def _cost(rows: pd.DataFrame) -> str:
    calls, seconds = numbers(rows, "calls").max(), numbers(rows, "seconds").max()
    text = f"in {count(int(calls) if math.isfinite(calls) else len(rows), 'solver call')}"
    return text + (f" and {duration(seconds)}" if math.isfinite(seconds) else "")


def _solved(rows: pd.DataFrame) -> str:
    """What became of the found map, solved for on its own. Of solves of several sizes, which one it was is not told."""
    accuracy, dimension = numbers(rows, "search_test_accuracy").iloc[-1], numbers(rows, "dimension")
    if not math.isfinite(accuracy):
        return "its test accuracy is not known"
    known = flags(rows, "final").any() or dimension.nunique() == 1
    where = f" with {count(int(dimension.iloc[-1]), 'feature')}" if known and dimension.notna().all() else ""
    return f"solved on its own{where} by the search, it has a {TEST.label} of {TEST.show(accuracy)}"


def _again(run: Run[Any]) -> str:
    """The solves for the found map after the search, each in bases of its own."""
    accuracies = tested(run.best, "final")
    if not accuracies.size:
        return ""
    times = "once more" if accuracies.size == 1 else f"{count(accuracies.size, 'time')} more"
    return f" Solved {times} in full after the search, with new random draws: {TEST.spread(accuracies)}."


rounds_section = Halving(
    "Feature map", "solve", "Features", names_of, ending="The last solve is of the winner alone."
).section
SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    map_repeats_section,
    correlation_section,
    solver_calls_section,
    seconds_section,
    rounds_section,
    generalisation_section,
    names_section(names_of, "feature maps", "as the searches came to hold them for the best, the best first"),
    failures_section(_TABLES),
    manifest_section,
)


def headline(run: Run[Any]) -> Headline:
    """Test accuracies, solver calls and seconds; of repeats, their means, and what the best of them found."""
    architecture, progress = run.best.architecture, progress_of(run)
    if progress.empty or architecture is None:
        text = "The run found no feature map; the failures below say why."
    else:
        text = _lead(run, progress)
    return Headline(
        thing="feature map",
        lead=text,
        names=() if architecture is None else (architecture,),
        letter=LETTER,
        cards=() if progress.empty else _cards(run, progress),
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
            "search_test_accuracy": row["search_test_accuracy"],
            "architecture": row["architecture"],
        }
        for row in (progress if len(progress) <= _LINES else better).to_dict("records")
    ]
    return (Listing.of("solver calls, and the best so far after each", rows),)
