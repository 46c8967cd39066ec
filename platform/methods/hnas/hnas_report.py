"""What a search by HNAS shows: its report, and its trials in the terminal."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from rich.console import Console

from archray.platform.methods.found_networks import print_trials
from archray.platform.methods.hnas.choice import choice_section
from archray.platform.methods.hnas.hnas_tables import ASKED, POOL, VALUE, best_trial
from archray.platform.methods.hnas.landscape import landscape_section
from archray.platform.methods.hnas.pool_scatter import pool_section
from archray.platform.methods.hnas.trials_table import trials_section
from archray.platform.report.cell import cell_section
from archray.platform.report.columns import is_repeat, numbers
from archray.platform.report.comparison import accuracy_cards, accuracy_lead, comparison_section
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, SEARCH, TrainingCurves
from archray.platform.report.failures import Tables, failed, failures_section
from archray.platform.report.figures import figure
from archray.platform.report.header import Card, Headline
from archray.platform.report.manifest_section import manifest_section
from archray.platform.report.network_size import network_size
from archray.platform.report.page import MakeSection
from archray.platform.report.quantity import count
from archray.platform.report.repeats_section import repeats_section
from archray.platform.report.section import Section
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run

_TABLES: Tables = {
    "scoring the pool": POOL,
    "search": ASKED,
    "final training": ("final", TRIALS),
    "random architectures": ("baseline", TRIALS),
}
_CURVES = TrainingCurves(
    (SEARCH, FINAL, BASELINE),
    of_both="A training of the search has a learning rate schedule of its own, shorter than the final one: the two "
    "columns are not one curve continued.",
)


@figure(height=CURVES_HEIGHT)
def hnas_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of every training of HNAS: in the search, of what was found, at random."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    """The training curves of the run. Nothing without a finite value."""
    return _CURVES.section(run, hnas_training_curves(run))


SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    choice_section,
    landscape_section,
    pool_section,
    curves_section,
    trials_section,
    failures_section(_TABLES),
    manifest_section,
)


def headline(run: Run[Any]) -> Headline:
    """The test accuracies, and how much was scored and trained for them."""
    best_run = run.best
    pool, asked = best_run.table(*POOL), best_run.table(*ASKED)
    cards, best = accuracy_cards(run), best_trial(asked)
    if best is not None:
        cards.append(Card("trial", VALUE.show(numbers(asked, "value")[best]), f"best search trial, {VALUE.label}"))
    trainings = int((~is_repeat(asked)).sum())
    return Headline(
        thing="architecture",
        lead=accuracy_lead(run),
        names=(best_run.found["architecture"],) if best_run.found else (),
        cards=cards,
        facts={
            "Training-free metric": run.config.metric,
            "Scored architectures": count(len(pool), "in the pool", "in the pool") if len(pool) else None,
            "Search": count(trainings, "training") if trainings else None,
            "Network": network_size(best_run.table("final", TRIALS)),
            "Failures": failed(run, _TABLES),
        },
    )


def show(run: Run[Any], console: Console) -> None:
    """The trials of the search, best first."""
    print_trials(run.table("search", TRIALS), "trials of the search", "validation_accuracy", console)
