"""What a plain search shows: its report, and its trials in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from archray.platform.methods.found_networks import list_trials
from archray.platform.methods.plain.best_so_far import best_so_far_section
from archray.platform.methods.plain.plain_tables import ASKED, VALUE, best_trial, names_of, values_of
from archray.platform.report.cell import cell_section
from archray.platform.report.comparison import accuracy_cards, accuracy_lead, comparison_section
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, OWN_SCHEDULE, SEARCH, TrainingCurves
from archray.platform.report.figures import figure
from archray.platform.report.page import Card, Headline, MakeSection, network_size
from archray.platform.report.run_sections import Tables, failed, failures_section, manifest_section, repeats_section
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.report.short_names import names_section
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.layout import TRIALS
from archray.platform.run.listing import Listing
from archray.platform.run.run import Run
from archray.plurals import count

_TABLES: Tables = {
    "search": ASKED,
    "final training": ("final", TRIALS),
    "random architectures": ("baseline", TRIALS),
}
_CURVES = TrainingCurves((SEARCH, FINAL, BASELINE), of_both=OWN_SCHEDULE, names_of=names_of)


@figure(height=CURVES_HEIGHT)
def plain_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of every training of a plain search: in the search, of what was found, at random."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    """The training curves of the run. Nothing without a finite value."""
    return _CURVES.section(run, plain_training_curves(run))


def choice_section(run: Run[Any]) -> Section | None:
    """Why what was found was chosen: its place among the trials. Nothing for a run that found nothing."""
    names, run = names_of(run), run.best
    trials = run.table(*ASKED)
    best = best_trial(trials)
    if run.found is None or best is None:
        return None
    values = values_of(trials).dropna().sort_values(ascending=False)
    name = names.of(run.architecture)
    text = (
        f"Of {count(len(values), 'training')} that can be compared, that of {name}, number {best + 1}, has the highest"
    )
    text += f" {VALUE.label}, {VALUE.show(values.iloc[0])}"
    if len(values) > 1:
        text += f", ahead of {VALUE.show(values.iloc[1])}; their median is {VALUE.show(float(np.median(values)))}"
    stopped = int((failures(trials).isna() & values_of(trials).isna()).sum())
    if stopped:
        text += f". {count(stopped, 'training')} ended before the last epoch and took no part"
    if broken := int(failures(trials).notna().sum()):
        text += f". {count(broken, 'training')} failed and took no part"
    return Section("choice", "Why this one", paragraphs([f"{text}."]))


def trials_section(run: Run[Any]) -> Section | None:
    """The trainings, the best first. Nothing without trials."""
    names, run = names_of(run), run.best
    trials = run.table(*ASKED)
    if trials.empty:
        return None
    values, reasons, epochs = values_of(trials), failures(trials), numbers(trials, "epoch")
    reached = numbers(trials, "validation_accuracy")
    order = values.fillna(-1.0).sort_values(ascending=False, kind="stable").index
    best, several = best_trial(trials), epochs.nunique() > 1
    columns = [Column("Architecture", "name"), Column(VALUE.heading, "number", "descending")]
    columns += [*numeric("No.", *(["Epochs"] if several else []), "Seconds"), Column("Note")]
    seconds = numbers(trials, "time_total_s")
    rows = []
    for row in order:
        note = reasons[row] or ("best" if row == best else "stopped early" if np.isnan(values[row]) else "")
        of_it = [row + 1, *([f"{epochs[row]:.0f}"] if several else []), f"{seconds[row]:.1f}"]
        rows.append((names.of(trials["architecture"][row]), VALUE.bare(reached[row]), *of_it, note))
    text = f"{count(len(trials), 'training')}, the best first."
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
    curves_section,
    trials_section,
    names_section(names_of, "architectures", "in the order of the value they were trained to"),
    failures_section(_TABLES),
    manifest_section,
)


def headline(run: Run[Any]) -> Headline:
    """The test accuracies, and how much was trained for them."""
    best_run = run.best
    trials = best_run.table(*ASKED)
    cards, best = accuracy_cards(run), best_trial(trials)
    if best is not None:
        cards.append(Card("trial", VALUE.show(values_of(trials)[best]), f"best search trial, {VALUE.label}"))
    return Headline(
        thing="architecture",
        lead=accuracy_lead(run),
        names=() if best_run.architecture is None else (best_run.architecture,),
        cards=cards,
        facts={
            "Search": count(len(trials), "training") if len(trials) else None,
            "Network": network_size(best_run.table("final", TRIALS)),
            "Failures": failed(run, _TABLES),
        },
    )


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The trials of the search, best first."""
    return list_trials(run.table(*ASKED), "trials of the search", "validation_accuracy", [run.architecture])
