"""What a search by HNAS shows: its report, and its trials in the terminal."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from archray.platform.methods.found_networks import print_trials
from archray.platform.methods.hnas.choice import choice_section
from archray.platform.methods.hnas.hnas_tables import ASKED, POOL, VALUE, best_trial, trial_numbers
from archray.platform.methods.hnas.landscape import landscape_section
from archray.platform.methods.hnas.pool_scatter import pool_section
from archray.platform.report.cell import cell_section
from archray.platform.report.columns import failures, is_repeat, numbers
from archray.platform.report.comparison import accuracy_cards, accuracy_lead, comparison_section
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, OWN_SCHEDULE, SEARCH, TrainingCurves
from archray.platform.report.failures import Tables, failed, failures_section
from archray.platform.report.figures import figure
from archray.platform.report.header import Card, Headline, network_size
from archray.platform.report.manifest_section import manifest_section
from archray.platform.report.page import MakeSection
from archray.platform.report.quantity import MISSING, count, significant
from archray.platform.report.repeats_section import repeats_section
from archray.platform.report.section import Column, Section, folded, numeric, table
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
    of_both=OWN_SCHEDULE,
)


@figure(height=CURVES_HEIGHT)
def hnas_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of every training of HNAS: in the search, of what was found, at random."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    """The training curves of the run. Nothing without a finite value."""
    return _CURVES.section(run, hnas_training_curves(run))


# Trials


def trials_section(run: Run[Any]) -> Section | None:
    """The trainings, and folded below them every question of the optimiser. Nothing without trials."""
    frame = run.best.table(*ASKED)
    if frame.empty:
        return None
    again = is_repeat(frame)
    body = f"<p>{count(int((~again).sum()), 'training')} in the order they were suggested"
    if not again.any():
        return Section("trials", "Trials of the search", f"{body}.</p>{_trial_table(frame, ~again)}")
    body += (
        f". The optimiser asked {count(len(frame), 'question')}; {int(again.sum())} of them selected an architecture "
        "whose value was known already, and cost nothing.</p>"
    )
    everything = folded("All questions", _trial_table(frame, again | ~again))
    return Section("trials", "Trials of the search", body + _trial_table(frame, ~again) + everything)


def _trial_table(frame: pd.DataFrame, shown: pd.Series) -> str:
    """The rows of the trials that are `shown`: number, architecture, point asked for, value, what became of it."""
    with_point = any(numbers(frame, name).notna().any() for name in ("mu", "nu"))
    columns = [*numeric("No."), Column("Architecture", "code")]
    columns += [*numeric(*(["μ", "ν"] if with_point else []), VALUE.axis), Column("Note")]
    again, reasons, order = is_repeat(frame), failures(frame), trial_numbers(frame)
    names = frame["architecture"] if "architecture" in frame else pd.Series(MISSING, index=frame.index)
    mu, nu, values = numbers(frame, "mu"), numbers(frame, "nu"), numbers(frame, "value")
    best, rows = best_trial(frame), []
    kept = [i for i in range(len(frame)) if shown[i]]
    for i in kept:
        number = MISSING if again[i] else "given" if pd.isna(order[i]) else int(order[i])
        row: list[object] = [number, names[i] if isinstance(names[i], str) else MISSING]
        if with_point:
            row += [significant(mu[i]), significant(nu[i])]
        note = reasons[i] or ("known already, not trained again" if again[i] else "best" if i == best else "")
        rows.append((*row, VALUE.bare(values[i]), note))
    return table(
        columns,
        rows,
        label="The trials of the search",
        marked=kept.index(best) if best in kept else None,
        faint=frozenset(place for place, i in enumerate(kept) if again[i]),
    )


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
        names=() if best_run.architecture is None else (best_run.architecture,),
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
