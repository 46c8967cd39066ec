"""What a plain search shows: its report, and its trials in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from archray.errors import DamagedFile
from archray.platform.methods.found_networks import list_trials
from archray.platform.methods.plain.best_so_far import best_so_far_section
from archray.platform.methods.plain.plain_tables import ASKED, Trials, names_of
from archray.platform.methods.plain.pool_constraint import constraint_words
from archray.platform.methods.pool_bounds_section import pool_bounds_section
from archray.platform.quantities import Spread, quantity_of, significant
from archray.platform.report.cell import cell_section
from archray.platform.report.comparison import accuracy_cards, accuracy_lead, comparison_section
from archray.platform.report.cost_sections import cost_sections
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, OWN_SCHEDULE, SEARCH, TrainingCurves
from archray.platform.report.figures import figure
from archray.platform.report.measured import Measured, headline_cards, measured_networks
from archray.platform.report.page import Card, Headline, MakeSection, network_size
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section, repeats_section
from archray.platform.report.section import Column, Section, captioned, numeric, paragraphs, table
from archray.platform.report.short_names import names_section
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.layout import TRIALS
from archray.platform.run.listing import Listing
from archray.platform.run.run import Run
from archray.plurals import count

_TABLES: Tables = {
    "search": ASKED,
    "final training": ("final", TRIALS),
    "further members": ("members", TRIALS),
    "random architectures": ("baseline", TRIALS),
}
HEADLINES = ("test_accuracy", "result")
_SECONDS = {"validation_accuracy": "time_total_s", "objective": "seconds"}  # of a trial, by what is compared
_CURVES = TrainingCurves((SEARCH, FINAL, BASELINE), of_both=OWN_SCHEDULE, names_of=names_of)


@figure(height=CURVES_HEIGHT)
def plain_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of every training of a plain search: in the search, of what was found, at random."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    """The training curves of the run. Nothing without a finite value."""
    return _CURVES.section(run, plain_training_curves(run))


def _thing(run: Run[Any]) -> str:
    return "look-up" if run.config.on_table else "training"


def _found_row(run: Run[Any], trials: Trials) -> int | None:
    """The row of what was found, one of those with the best value; None if no row has a value."""
    number = (run.found or {}).get("number")
    return trials.best if number is None else int(number) - 1


def choice_section(run: Run[Any]) -> Section | None:
    """Why what was found was chosen: its place among the trials. Nothing for a run that found nothing."""
    names, run = names_of(run), run.best
    trials = Trials.of(run)
    best, quantity = _found_row(run, trials), trials.quantity
    if run.found is None or best is None:
        return None
    values = trials.values[trials.order].dropna()
    if values.empty:
        raise DamagedFile.at(f"{run.folder}/{'/'.join(ASKED)}", f"it has no {quantity.label}")
    name, extreme = names.of(run.architecture), "lowest" if trials.mode == "min" else "highest"
    text = f"Of {count(len(values), _thing(run))} that can be compared, that of {name}, number {best + 1}, has the "
    text += f"{extreme} {quantity.label}, {quantity.show(values.iloc[0])}"
    if len(values) > 1:
        text += f", ahead of {quantity.show(values.iloc[1])}; their median is {quantity.show(float(np.median(values)))}"
    stopped = int((failures(trials.table).isna() & trials.values.isna()).sum())
    if stopped:
        text += f". {count(stopped, 'training')} ended before the last epoch and took no part"
    if broken := int(failures(trials.table).notna().sum()):
        text += f". {count(broken, 'training')} failed and took no part"
    constraint = constraint_words(run)
    return Section("choice", "Why this one", paragraphs([f"{text}.", *([constraint] if constraint else [])]))


def rungs_section(run: Run[Any]) -> Section | None:
    """How many trainings ended after which epoch, and how good they were. Nothing where all were equally long."""
    trials = Trials.of(run.best)
    if trials.table.empty:
        return None
    epochs = numbers(trials.table, "epoch")[failures(trials.table).isna()].dropna()
    if epochs.nunique() < 2:
        return None
    reached, bare = numbers(trials.table, trials.key), trials.quantity.bare
    rows = []
    for epoch, ended in epochs.groupby(epochs):
        values = reached[ended.index]
        rows.append(
            (f"{epoch:.0f}", int((epochs >= epoch).sum()), len(ended), bare(values.max()), bare(values.median()))
        )
    headings = numeric("Epoch", "Reached it", "Ended there", "Best", "Median")
    caption = "Trainings by the epoch after which they ended, without those that failed. Best and median: "
    caption += f"{trials.quantity.axis}, of those that ended there; those of the last epoch were compared in the end."
    content = table(headings, rows, label="Where trainings ended")
    return Section("rungs", "Where trainings ended", captioned(content, caption))


def trials_section(run: Run[Any]) -> Section | None:
    """The trainings, the best first. Nothing without trials."""
    names, run = names_of(run), run.best
    trials = Trials.of(run)
    if trials.table.empty:
        return None
    values, reasons, epochs = trials.values, failures(trials.table), numbers(trials.table, "epoch")
    reached, seconds = numbers(trials.table, trials.key), numbers(trials.table, _SECONDS[trials.key])
    order, best, several, timed = trials.order, _found_row(run, trials), epochs.nunique() > 1, seconds.notna().any()
    sorted_so = "ascending" if trials.mode == "min" else "descending"
    columns = [Column("Architecture", "name"), Column(trials.quantity.heading, "number", sorted_so)]
    columns += numeric("No.", *(["Epochs"] if several else []), *(["Seconds"] if timed else []))
    columns += [Column("Note")]
    rows = []
    for row in order:
        note = reasons[row] or ("best" if row == best else "stopped early" if np.isnan(values[row]) else "")
        of_it = [row + 1, *([f"{epochs[row]:.0f}"] if several else []), *([significant(seconds[row])] if timed else [])]
        rows.append((names.of(trials.table["architecture"][row]), trials.quantity.bare(reached[row]), *of_it, note))
    text = f"{count(len(trials.table), _thing(run))}, the best first."
    body = table(
        columns,
        rows,
        label="The trials of the search",
        marked=None if best is None else list(order).index(best),
        faint=frozenset(place for place, row in enumerate(order) if np.isnan(values[row])),
    )
    return Section("trials", "Trials of the search", paragraphs([text]) + body)


SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    choice_section,
    best_so_far_section,
    pool_bounds_section,
    curves_section,
    rungs_section,
    trials_section,
    *cost_sections(names_of),
    names_section(names_of, "architectures", "in the order of the value they were trained to"),
    failures_section(_TABLES),
    manifest_section,
)


def measured_plain(run: Run[Any]) -> Measured:
    """Of one run: the final trainings and random architectures beside them; of a table, what that says of both."""
    if not run.config.on_table:
        return measured_networks(run)
    spreads = {
        "result": Spread.of(numbers(run.table("final", TRIALS), "result"), ""),
        "random_result": Spread.of(numbers(run.table("baseline", TRIALS), "result"), "random architecture"),
    }
    return {key: spread for key, spread in spreads.items() if spread}


def _table_lead(run: Run[Any]) -> str:
    """What a search on a table chose, and what the table says of it, in a sentence or two."""
    measured = measured_plain(run)
    if "result" not in measured:
        return "The search on a table has not ended."
    text = "The search chose the architecture below, by what a table of trained architectures told it; nothing was "
    text += f"trained. In the end the table says {quantity_of('result').show(measured['result'].mean)} of it"
    if (random := measured.get("random_result")) is not None:
        text += f", and {quantity_of('result').spread(random)} of {count(random.number, random.each)}"
    return f"{text}."


def headline(run: Run[Any]) -> Headline:
    """The test accuracies, and how much was trained for them."""
    best_run = run.best
    trials = Trials.of(best_run)
    on_table, best = run.config.on_table, trials.best
    cards = headline_cards(measured_plain(run), HEADLINES) if on_table else accuracy_cards(run)
    if best is not None:
        value = trials.quantity.show(trials.values[best])
        cards.append(Card("trial", value, f"best search trial, {trials.quantity.label}"))
    return Headline(
        thing="architecture",
        lead=_table_lead(run) if on_table else accuracy_lead(run),
        names=() if best_run.architecture is None else (best_run.architecture,),
        cards=cards,
        facts={
            "Table": f"SHA-256 {run.manifest['data_checksum'][:12]}" if on_table else None,
            "Search": count(len(trials.table), _thing(run)) if len(trials.table) else None,
            "Network": network_size(best_run.table("final", TRIALS)),
            "Failures": failed(run, _TABLES),
        },
    )


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The trials of the search, best first."""
    trials = Trials.of(run)
    least = trials.mode == "min"
    return list_trials(trials.table, "trials of the search", trials.key, [run.architecture], least_first=least)
