"""What a comparison of several searches for a feature map has beside others': their test accuracies at equal cost.

Khodak et al. 2020, Figures 2 and 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.feature_maps.figures import (
    Line,
    correlation_section,
    draw_accuracies,
    generalisation_section,
    seconds_section,
    solver_calls_section,
)
from archray.platform.methods.feature_maps.tables import (
    LETTER,
    REACHED,
    TEST,
    By,
    Progress,
    accuracy_at,
    accuracy_curve,
    by_repeat,
    comparable_by_calls,
    comparison_table,
    found_repeat,
    growing,
    is_random_search,
    last_rows,
    map_in,
    names_of,
    progress_of,
    reference_accuracy,
    total,
    with_deviation,
    written,
)
from archray.platform.quantities import MISSING, Spread, duration, quantity_of, significant, whole_number
from archray.platform.report.cell import cell_section
from archray.platform.report.figures import (
    FOUND,
    GREEN,
    INDIGO,
    PINK,
    RANDOM,
    TRIAL,
    NothingToDraw,
    drawing,
    figure,
    spread_words,
)
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.rounds import Halving
from archray.platform.report.run_sections import (
    Measured,
    Tables,
    failed,
    failures_section,
    headline_cards,
    manifest_section,
    over_repeats,
    tested,
)
from archray.platform.report.section import (
    Column,
    Section,
    captioned,
    flags,
    names_section,
    numbers,
    numeric,
    paragraphs,
    table,
)
from archray.platform.run.layout import ROUNDS, TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
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


@figure(height=400, of="progress")
def accuracies_compared_by_calls(runs: Sequence[Progress], canvas: Figure) -> None:
    """Test accuracy over solver calls, a line for each run that compares there. Khodak et al. 2020, Figure 2."""
    _draw(_lines(runs, "calls"), canvas, "calls")


@figure(height=400, of="progress")
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


# What a search for a feature map shows: the head of its report, its repeats, and its solver calls in the terminal.


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
