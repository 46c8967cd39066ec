"""The report of a feature map search, and comparisons of runs at equal cost. Khodak et al. 2020, Fig. 2 and 3."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.feature_maps import figures, tables
from archray.platform.methods.feature_maps.figures import Line
from archray.platform.methods.feature_maps.tables import TEST, By, Progress
from archray.platform.methods.recipe import Report
from archray.platform.quantities import MISSING, Spread, duration, quantity_of, significant, whole_number
from archray.platform.report import figures as drawing
from archray.platform.report import measures, run_sections
from archray.platform.report.cell import cell_section
from archray.platform.report.figures import FOUND, GREEN, INDIGO, PINK, RANDOM, TRIAL, NothingToDraw, figure
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.rounds import Halving
from archray.platform.report.section import Column, Section, flags, names_section, numbers, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import ROUNDS, TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_text = texts_of(__package__)
Look = tuple[str, tuple[float, ...] | None]  # color and dashes

_LOOKS: tuple[Look, ...] = (
    (FOUND, None),
    (GREEN, (6, 2)),
    (PINK, (4, 2, 1, 2)),
    (INDIGO, (1.5, 1.5)),
    *((color, dashes) for dashes in ((8, 2), (3, 1), (1, 2)) for color in (TRIAL, GREEN, PINK, INDIGO, FOUND)),
)


def equal_cost_sections(runs: Sequence[Progress]) -> list[Section]:
    """Test accuracies at equal cost, and Figures 2 and 3 with a line per run; see `equal_cost`.

    Raises: InvalidInput without runs, or with a duplicate label.
    """
    comparison = tables.comparison_table(runs)
    return [_table(runs, comparison), *_curves(runs)]


def _table(runs: Sequence[Progress], comparison: pd.DataFrame) -> Section:
    words = tables.written(comparison)
    columns = [Column(""), *numeric(*words.index)]
    rows = [(str(name)[:1].upper() + str(name)[1:], *cells) for name, cells in words.to_dict("list").items()]
    body = table(columns, rows, label="Test accuracy of each run at equal cost")
    return Section("equal-cost", "Test accuracy at equal cost", body + paragraphs(_fairness(runs, comparison)))


def _fairness(runs: Sequence[Progress], comparison: pd.DataFrame) -> Iterator[str]:
    """Text about the numbers of the table, and which of them are comparable (note W6)."""
    yield _text("equal_cost")
    yield _text("equal_seconds")
    smaller = [label for label, progress in runs if len(progress) and not tables.comparable_by_calls(progress)]
    yield _text("equal_calls", growing=[label for label, progress in runs if tables.growing(progress)], smaller=smaller)
    accuracy = tables.reference_accuracy(runs)
    if accuracy is None:
        return
    calls = next(tables.total(progress, "calls") for _, progress in runs if tables.is_random_search(progress))
    by_label = comparison[tables.REACHED, "solver calls"].astype(float)
    needed = {
        label: None if math.isnan(by_label[label]) else by_label[label]
        for label, progress in runs
        if tables.comparable_by_calls(progress) and not tables.is_random_search(progress)
    }
    if needed:
        yield _text("reached", accuracy=TEST.show(accuracy), calls=calls, needed=needed)


@figure(height=400, of="progress")
def accuracies_compared_by_calls(runs: Sequence[Progress], canvas: Figure) -> None:
    """Test accuracy by solver calls, a line for each comparable run. Khodak et al. 2020, Figure 2."""
    _draw(runs, canvas, "calls")


@figure(height=400, of="progress")
def accuracies_compared_by_seconds(runs: Sequence[Progress], canvas: Figure) -> None:
    """Test accuracy by seconds, a line for each run. Khodak et al. 2020, Figure 3."""
    _draw(runs, canvas, "seconds")


_FIGURES: tuple[tuple[By, str, Callable[[Sequence[Progress]], Figure]], ...] = (
    ("calls", "Test accuracy by solver calls", accuracies_compared_by_calls),
    ("seconds", "Test accuracy by time", accuracies_compared_by_seconds),
)


def _draw(runs: Sequence[Progress], canvas: Figure, by: By) -> None:
    lines = _lines(runs, by)
    if not lines:
        raise NothingToDraw(f"none of the runs has a test accuracy by {by}; compare runs of feature map methods")
    figures.draw_accuracies(canvas.subplots(), lines, by)
    canvas.legend(loc="outside upper left", ncols=2, handlelength=3.2)


def _lines(runs: Sequence[Progress], by: By) -> list[Line]:
    """The curves by solver calls of the comparable runs, or by seconds of all runs."""
    lines = []
    for (label, progress), look in zip(runs, looks_of(runs), strict=True):
        if by == "seconds" or tables.comparable_by_calls(progress):
            curve = tables.accuracy_curve(progress, by)
            lines += [Line(label, curve, *look)] if curve is not None else []
    return lines


def looks_of(runs: Sequence[Progress]) -> list[Look]:
    """The look of each run, in order. The first run of random search has the look of random search on all pages."""
    looks, free = [], cycle(_LOOKS)
    for _, progress in runs:
        random = tables.is_random_search(progress) and (RANDOM, None) not in looks
        looks.append((RANDOM, None) if random else next(free))
    return looks


def _curves(runs: Sequence[Progress]) -> Iterator[Section]:
    """The sections with the curves by solver calls and by seconds, if there are any."""
    for by, title, compared in _FIGURES:
        lines = _lines(runs, by)
        if not lines:
            continue
        ends = ", ".join(f"{line.label} {TEST.show(line.curve.mean[-1])}" for line in lines)
        repeats = {line.curve.repeats for line in lines}
        fewest, most = min(repeats), max(repeats)
        spread = drawing.spread_words(most, "standard deviation")
        points = 2 in repeats and most > 2
        caption = _text("compared", by=by, fewest=fewest, most=most, two_as_points=points, spread=spread)
        description = f"Test accuracy by {by}; at the end {ends}."
        yield drawing.figure_section(f"over-{by}", title, compared(runs), description=description, caption=caption)


_TABLES: run_sections.Tables = {"rounds of halving": ("search", ROUNDS), "final training": ("final", TRIALS)}
HEADLINES = ("test_accuracy", "search_test_accuracy")  # the lower of the two is the headline
_LINES = 20  # number of solver calls up to which all are printed


def _lead(run: Run[Any], progress: pd.DataFrame) -> str:
    """The selected feature map in one or two sentences, plain text. `progress` has at least one row."""
    repeat, rows = tables.found_repeat(run, progress)
    calls, seconds = numbers(rows, "calls").max(), numbers(rows, "seconds").max()
    accuracy, dimension = numbers(rows, "search_test_accuracy").iloc[-1], numbers(rows, "dimension")
    # With solves of several sizes, the size of the last one is only known if it is the final solve.
    one_size = (flags(rows, "final").any() or dimension.nunique() == 1) and dimension.notna().all()
    accuracies = measures.tested(run.best.table("final", TRIALS))
    return _text(
        "lead",
        repeats=len(tables.by_repeat(progress)),
        repeat=repeat,
        calls=int(calls) if math.isfinite(calls) else len(rows),
        seconds=duration(seconds) if math.isfinite(seconds) else "",
        features=int(dimension.iloc[-1]) if one_size else 0,
        accuracy=f"{TEST.label} of {TEST.show(accuracy)}" if math.isfinite(accuracy) else "",
        solves=accuracies.size,
        accuracies=TEST.spread(accuracies),
    )


def measured_maps(run: Run[Any]) -> measures.Measured:
    """The test accuracies of a single run: of the final solves, and of the last solve of the search."""
    tests = {"test_accuracy": Spread.of(measures.tested(run.table("final", TRIALS)), "final solve")}
    progress = tables.progress_of(run)
    if len(progress):
        last = numbers(tables.last_rows(progress), "search_test_accuracy")
        tests["search_test_accuracy"] = Spread.of(last, "search")
    return {key: spread for key, spread in tests.items() if spread}


def map_repeats_section(run: Run[Any]) -> Section | None:
    """A row per repeat with its map and costs. None for fewer than two repeats."""
    progress = tables.progress_of(run)
    last = tables.last_rows(progress)
    if len(last) < 2:
        return None
    names = tables.names_of(run)
    columns = [Column("Feature map", "name"), Column(TEST.heading, "number", "descending")]
    again = {number: measures.tested(repeat.table("final", TRIALS)) for number, repeat in enumerate(run.repeats)}
    in_full = any(accuracies.size for accuracies in again.values())
    columns += numeric(*([quantity_of("test_accuracy").heading] if in_full else []), "No.", "Solver calls", "Seconds")
    calls, seconds, accuracies = (numbers(last, name) for name in ("calls", "seconds", "search_test_accuracy"))
    order = accuracies.sort_values(ascending=False, kind="stable").index.tolist()
    maps = {i: tables.map_in(last, i) for i in order}
    rows = [
        (
            "none found" if maps[i] is None else names.of(maps[i]),
            TEST.bare(accuracies[i]),
            *([TEST.spread(again.get(int(last["repeat"][i]), ())).removesuffix(" %")] if in_full else []),
            last["repeat"][i],
            whole_number(calls[i]),
            significant(seconds[i]),
        )
        for i in order
    ]
    mean, deviation, number = tables.accuracy_at(progress)
    text = _text(
        "repeats",
        repeats=len(last),
        maps=len({name for name in maps.values() if name is not None}),
        label=TEST.label,
        accuracy=tables.with_deviation(mean, deviation),
        number=number,
        in_full=in_full,
    )
    best, _ = tables.found_repeat(run, progress)
    marked = next((place for place, i in enumerate(order) if last["repeat"][i] == best), None)
    body = paragraphs([text]) + table(columns, rows, label="Repeats of the search", marked=marked)
    return Section("repeats", "Repeats", body)


rounds_section = Halving(
    "Feature map", "solve", "Features", tables.names_of, ending="The last solve has only the winner."
).section
SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    map_repeats_section,
    figures.correlation_section,
    figures.solver_calls_section,
    figures.seconds_section,
    rounds_section,
    figures.generalization_section,
    names_section(tables.names_of, "feature maps", "in the order of their test accuracy as best map of a search"),
    run_sections.failures_section(_TABLES),
    run_sections.manifest_section,
)


def headline(run: Run[Any]) -> Headline:
    """Test accuracies (the lower one first), solver calls and seconds; for repeats, means and the best map."""
    architecture, progress = run.best.architecture, tables.progress_of(run)
    lead = "The run found no feature map. See the failures below."
    cards: list[Card] = []
    facts: dict[str, object] = {}
    if len(progress):
        lead = lead if architecture is None else _lead(run, progress)
        last, repeats = tables.last_rows(progress), len(tables.by_repeat(progress))
        calls, seconds = numbers(last, "calls").mean(), numbers(last, "seconds").mean()
        costs = (
            Card("trial", significant(calls, 3 if calls % 1 else 1), "solver calls"),
            Card("trial", duration(seconds), "of solver calls"),
        )
        cards = run_sections.headline_cards(measures.over_repeats(run, measured_maps), HEADLINES)
        cards += [card for card in costs if card.value != MISSING]
        dimension = numbers(progress, "dimension")
        span = " to ".join(dict.fromkeys(whole_number(end) for end in (dimension.min(), dimension.max())))
        facts["Feature dimension"] = span if dimension.notna().any() else None
        of_repeats = f" in {count(repeats, 'repeat')}" if repeats > 1 else ""
        facts["Solver calls"] = f"{count(len(progress), 'call')}{of_repeats}"
    return Headline(
        thing="feature map",
        lead=lead,
        names=() if architecture is None else (architecture,),
        letter=tables.LETTER,
        cards=cards,
        facts={**facts, "Failures": run_sections.failed(run, _TABLES)},
    )


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The solver calls of the search, a row each; for many calls, only those with a new best map."""
    progress = tables.progress_of(run)
    if progress.empty:
        return ()
    better = progress[progress["architecture"] != progress["architecture"].shift()]
    keys = ("calls", "seconds", "candidates", "dimension", "search_test_accuracy", "architecture")
    steps = progress if len(progress) <= _LINES else better
    rows = [{key: row[key] for key in keys} for row in steps.to_dict("records")]
    return (Listing.of("solver calls with the best feature map so far", rows),)


REPORT = Report[Any](
    measured=measured_maps,
    headlines=HEADLINES,
    headline=headline,
    sections=SECTIONS,
    listings=listings,
    progress=tables.progress_of,
)
