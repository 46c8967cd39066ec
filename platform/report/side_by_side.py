"""Comparison of runs: results, accuracies and costs as a table and a figure."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from archray.platform.quantities import DECIDING, MISSING, UNDER_ATTACK, Spread, data_words, quantity_of
from archray.platform.report import figures
from archray.platform.report.figures import FOUND, SURFACE, TRIAL, NothingToDraw, figure
from archray.platform.report.page import without_folder
from archray.platform.report.section import Column, Section, captioned, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.run_summary import RunSummary
from archray.plurals import count

Compared = Sequence[tuple[str, RunSummary]]  # name and summary of each run

_text = texts_of(__package__)
TEST = quantity_of("test_accuracy")
COSTS = ("parameters", "multiply_adds", "trainings", "seconds")
# Columns of the first table, which fits a narrow screen.
FIRST = ("test_accuracy", "search_test_accuracy", "found_test_accuracy", *COSTS)
RANDOM = ("largest_test_accuracy", "random_test_accuracy", "best_random_test_accuracy", "others_test_accuracy")
ENSEMBLES = ("test_nll", "ece", "members_test_accuracy", "ppd")
QUANTITIES = (*FIRST[:3], *DECIDING, *RANDOM, *ENSEMBLES, *UNDER_ATTACK, *COSTS)
_WORDS = ("Method", "Space", "Data")  # text columns of a run
_ROW = 30  # height of a run's row in the figure
_WIDE = 18  # maximum characters of a line of a run's name in the figure


def spreads_of(summary: RunSummary) -> Mapping[str, Spread]:
    """Returns the compared quantities of a run; with several repeats, over the repeats."""
    repeats = [repeat for repeat in summary.repeats if repeat.state == "done"] or [summary]
    spreads = {key: Spread.read(summary.result, key) for key in QUANTITIES}
    for key in DECIDING:
        spreads[key] = Spread.of((repeat.result.get(key) for repeat in repeats), "repeat" if summary.repeats else "run")
    spreads["seconds"] = Spread.of((repeat.seconds for repeat in repeats), "repeat" if summary.repeats else "run")
    return {key: spread for key, spread in spreads.items() if spread}


def side_by_side(runs: Compared) -> pd.DataFrame:
    """Returns a row per run, indexed by name.

    Columns: `method`, `space`, `data`, `members` (size of the ensemble; 1 otherwise), `repeats`; for each quantity its
    mean as `KEY`, the standard deviation as `KEY_std`, and the number of values as `KEY_n`. Accuracies are fractions;
    NaN for missing values.
    """
    rows = []
    for _, summary in runs:
        row: dict[str, Any] = {name: getattr(summary, name) for name in ("method", "space", "data")}
        row |= {"members": max(len(summary.architectures), 1), "repeats": max(len(summary.repeats), 1)}
        for key, spread in spreads_of(summary).items():
            row |= {key: spread.mean, f"{key}_std": spread.deviation, f"{key}_n": spread.number}
        rows.append(row)
    frame = pd.DataFrame(rows, [name for name, _ in runs])
    columns = [f"{key}{end}" for key in QUANTITIES for end in ("", "_std", "_n") if f"{key}{end}" in frame]
    described = ["method", "space", "data", "members", "repeats"]
    return frame[described + columns].astype(dict.fromkeys(columns, float))


def written_side_by_side(runs: Compared) -> pd.DataFrame:
    """Formats the table with a column per quantity: `93.21 ± 0.35 (3)` over three values; a dash if missing."""
    spreads = [spreads_of(summary) for _, summary in runs]
    columns: dict[str, list[str]] = {
        name: [without_folder(getattr(summary, name.lower())) for _, summary in runs] for name in _WORDS
    }
    columns["Data"] = [data_words(name, run.data_limit) for name, (_, run) in zip(columns["Data"], runs, strict=True)]
    members = [max(len(summary.architectures), 1) for _, summary in runs]
    if max(members) > 1:
        columns["Members"] = [str(number) for number in members]
    for key in QUANTITIES:
        if any(key in spreads_of_run for spreads_of_run in spreads):
            columns[quantity_of(key).heading] = [_cell(key, spreads_of_run.get(key)) for spreads_of_run in spreads]
    return pd.DataFrame(columns, [name for name, _ in runs])


def _cell(key: str, spread: Spread | None) -> str:
    quantity = quantity_of(key)
    if spread is None:
        return MISSING
    text = quantity.spread(spread).removesuffix(f" {quantity.unit}") if quantity.unit else quantity.spread(spread)
    return text if spread.deviation is None else f"{text} ({spread.number})"


@figure(height=200, of="summaries")
def runs_compared(runs: Compared, canvas: Figure) -> None:
    """Test accuracy of each run, and test accuracy by seconds: means and one standard deviation."""
    shown = [(name, spreads_of(summary)) for name, summary in runs]
    shown = [(name, spreads) for name, spreads in shown if "test_accuracy" in spreads]
    if not shown:
        raise NothingToDraw("no run has a test accuracy. Resume the unfinished runs")
    figures.set_height(canvas, 90 + _ROW * max(len(shown), 4))
    left, right = canvas.subplots(1, 2, width_ratios=(1, 1))
    best = max(spreads["test_accuracy"].mean for _, spreads in shown)
    reach: list[float] = []  # ends of the bars
    numbered: dict[tuple[float, float], list[str]] = {}
    for place, (name, spreads) in enumerate(shown):
        spread, cost = spreads["test_accuracy"], spreads["seconds"]
        mean, deviation = spread.mean * TEST.factor, (spread.deviation or 0.0) * TEST.factor
        color = FOUND if spread.mean == best else TRIAL
        look: dict[str, Any] = {"fmt": "o", "color": color, "markeredgecolor": SURFACE, "markersize": 8, "zorder": 3}
        left.errorbar(mean, place, xerr=deviation, elinewidth=1.4, **look)
        right.errorbar(cost.mean, mean, xerr=cost.deviation or 0.0, yerr=deviation, elinewidth=1.0, **look)
        text = f"{name}\n{TEST.label} {TEST.spread(spread)}\n{quantity_of('seconds').text(cost.mean)}"
        figures.add_tooltips(left, [mean], [place], [text])
        figures.add_tooltips(right, [cost.mean], [mean], [text])
        reach += [mean - deviation, mean + deviation]
        numbered.setdefault((cost.mean, mean), []).append(str(place + 1))
    for point, numbers in numbered.items():
        right.annotate(", ".join(numbers), point, (6, 5), textcoords="offset points", fontsize=11)
    margin = max(0.08 * (max(reach) - min(reach)), 0.25)
    left.set_xlim(min(reach) - margin, max(reach) + margin)
    right.set_ylim(min(reach) - margin, max(reach) + 2 * margin)  # and space for a number
    names = []  # method and folder on separate lines, cut to the end that distinguishes them
    for place, (name, _) in enumerate(shown, 1):
        lines = [part if len(part) <= _WIDE else f"…{part[1 - _WIDE :]}" for part in name.split(", ", 1)]
        names.append(f"{place}: " + "\n".join(lines))
    left.set_yticks(range(len(shown)), names)
    left.set_ylim(len(shown) - 0.4, -0.6)
    left.grid(False, axis="y")
    left.tick_params(axis="y", length=0)
    left.xaxis.set_major_locator(MaxNLocator(4))
    left.set_xlabel(TEST.axis)
    right.xaxis.set_major_locator(MaxNLocator(4))
    right.margins(x=0.2)
    right.set(xlabel="seconds of the run", ylabel=TEST.axis)


def _columns(names: Sequence[str]) -> list[Column]:
    return [Column("Run"), *(Column(name, "text" if name in _WORDS else "number") for name in names)]


def comparison_lead(runs: Compared) -> str:
    """Describes the run with the highest test accuracy, or the number of runs if no run has a test accuracy."""
    accuracies = [(name, spreads_of(summary).get("test_accuracy")) for name, summary in runs]
    tested = [(name, spread) for name, spread in accuracies if spread is not None]
    text = f"{count(len(runs), 'run')} on the same test data."
    if not tested:
        return f"{text} No run has a test accuracy."
    name, spread = max(tested, key=lambda run: run[1].mean)
    others = [other for other, value in tested if other != name and TEST.bare(value.mean) == TEST.bare(spread.mean)]
    if others:
        names = " and ".join([name, *others])
        return f"{text} {names} have the highest test accuracy: {TEST.show(spread.mean)}."
    return f"{text} {name} has the highest test accuracy: {TEST.spread(spread)}, {spread.words}."


def side_by_side_sections(runs: Compared, differences: Mapping[str, Sequence[object]]) -> list[Section]:
    """Creates the sections of the comparison: the table with its figure, and the differences.

    Args:
        differences: values of each run by key of the configuration.
    """
    written = written_side_by_side(runs)
    first: list[str] = [name for key in FIRST if (name := quantity_of(key).heading) in written]
    rest = [str(name) for name in written if name not in (*first, *_WORDS)]
    rest += [name for name in _WORDS if name != "Data" or written[name].nunique() > 1]  # last, since space is limited

    def rows(names: Sequence[str]) -> list[tuple[str, ...]]:
        return [(name, *row) for name, row in zip(written.index, written[names].itertuples(index=False), strict=True)]

    accuracies = [spreads_of(summary).get("test_accuracy") for _, summary in runs]
    means = [np.nan if spread is None else spread.mean for spread in accuracies]
    marked = int(np.nanargmax(means)) if np.isfinite(means).any() else None
    body = table(_columns(first), rows(first), label="Results and costs of the runs", marked=marked)
    body += table(_columns(rest), rows(rest), label="Methods and other accuracies of the runs", marked=marked)
    try:
        shown = ", ".join(f"{name} {TEST.spread(spread)}" for (name, _), spread in zip(runs, accuracies, strict=True))
        canvas = runs_compared(runs)
        content = figures.drawing("runs-compared", canvas, description=f"Test accuracy of each run: {shown}.")
        body = captioned(content, _text("runs_compared")) + body
    except NothingToDraw:
        pass
    sections = [Section("side-by-side", "Side by side", body + paragraphs([_text("side_by_side")]))]
    if differences:
        names = [name for name, _ in runs]
        cells = [(key, *values) for key, values in differences.items()]
        listed = table([Column("Option", "code"), *map(Column, names)], cells, label="Options that differ")
        text = "Common options with different values, which may also explain differences of the results."
        sections.append(Section("differences", "Other differences", paragraphs([text]) + listed))
    return sections
