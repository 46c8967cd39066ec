"""The report of HNAS: headline, reason for the selection, table of trials. Shu 2022, ch. 7, Eq. 7.7."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.hnas import tables
from archray.platform.methods.hnas.figures import landscape_section, pool_section
from archray.platform.methods.hnas.tables import POOL, SUGGESTIONS, VALUE, names_of
from archray.platform.methods.recipe import Report
from archray.platform.methods.report import list_trials, network_headline, network_sections, pool_bounds_section
from archray.platform.quantities import MISSING, as_float, significant
from archray.platform.report import section
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, OWN_SCHEDULE, SEARCH, TrainingCurves
from archray.platform.report.figures import figure
from archray.platform.report.measures import measured_networks
from archray.platform.report.page import Card, Headline
from archray.platform.report.run_sections import Tables, accuracy_cards
from archray.platform.report.section import Column, Section, failures, flags, numbers, numeric, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count
from archray.searchers.hnas.objective import Pool

_text = texts_of(__package__)
_TABLES: Tables = {
    "scoring the pool": POOL,
    "search": SUGGESTIONS,
    "final training": ("final", TRIALS),
    "comparison": ("baseline", TRIALS),
}
_CURVES = TrainingCurves((SEARCH, FINAL, BASELINE), of_both=OWN_SCHEDULE, names_of=names_of)


def trials_section(run: Run[Any]) -> Section | None:
    """The training runs, best first, and a folded table of all suggestions of the optimizer. None without trials."""
    names, run = names_of(run), run.best
    frame, pool, objective = run.table(*SUGGESTIONS), tables.usable_pool(run), tables.objective_of(run)
    if frame.empty:
        return None
    with_point = any(numbers(frame, name).notna().any() for name in ("mu", "nu"))
    scale = None
    if with_point and pool is not None and objective is not None:
        scale = tables.PenaltyScale(pool, objective)
    again = flags(frame, "repeat")
    text = _text(
        "trials",
        training_runs=int((~again).sum()),
        questions=len(frame),
        repeats=int(again.sum()),
        with_share=scale is not None,
    )
    content = paragraphs([text]) + _trial_table(frame, ~again, names, scale)
    if again.any():
        everything = _trial_table(frame, again | ~again, names, scale, by_value=False)
        content += section.folded("All suggestions of the optimizer, in order", everything)
    return Section("trials", "Trials of the search", content)


def _trial_table(
    frame: pd.DataFrame,
    shown: pd.Series,
    names: section.ShortNames,
    scale: tables.PenaltyScale | None,
    *,
    by_value: bool = True,
) -> str:
    """The suggestions that are `shown`: architecture, value, number, (mu, nu), and outcome."""
    mu, nu, values = (numbers(frame, name) for name in ("mu", "nu", "value"))
    with_point = mu.notna().any() or nu.notna().any()
    columns = [Column("Architecture", "name"), Column(VALUE.heading, "number", "descending" if by_value else None)]
    columns += numeric("No.", *(["Penalty share (%)"] if scale else []), *(["μ", "ν"] if with_point else []))
    again, reasons, order = flags(frame, "repeat"), failures(frame), tables.trial_numbers(frame)
    architectures = frame["architecture"] if "architecture" in frame else pd.Series(MISSING, index=frame.index)
    best, rows = tables.best_trial(frame), []
    places = [i for i in range(len(frame)) if shown[i]]
    if by_value:
        worth = values.where(reasons.isna()).fillna(-np.inf)
        places.sort(key=lambda i: -worth[i])
    for i in places:
        number = MISSING if again[i] else "given" if pd.isna(order[i]) else int(order[i])
        row: list[object] = [names.of(architectures[i]), VALUE.bare(values[i]), number]
        if scale is not None:
            row.append(tables.in_percent(scale.odds(mu[i], nu[i])))
        if with_point:
            row += [significant(mu[i]), significant(nu[i])]
        rows.append((*row, reasons[i] or ("evaluated before" if again[i] else "best" if i == best else "")))
    return table(
        [*columns, Column("Note")],
        rows,
        label="Trials of the search",
        marked=places.index(best) if best in places else None,
        faint=frozenset(place for place, i in enumerate(places) if again[i]),
    )


@figure(height=CURVES_HEIGHT)
def hnas_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of all training runs of HNAS: search, final training, random architectures."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    """The training curves of the run. None without a finite value."""
    return _CURVES.section(run, hnas_training_curves(run))


def choice_section(run: Run[Any]) -> Section | None:
    """How HNAS selected the architecture. None for a run without a result."""
    names, run = names_of(run), run.best
    questions, objective, pool = run.table(*SUGGESTIONS), tables.objective_of(run), tables.usable_pool(run)
    best, values = tables.best_trial(questions), sorted(tables.values_by_architecture(questions).values(), reverse=True)
    if run.found is None or best is None or objective is None or not values:
        return None
    text = _text(
        "choice",
        trained=len(values),
        name=names.of(run.architecture),
        label=VALUE.label,
        best=VALUE.show(values[0]),
        second=VALUE.show(values[1]) if len(values) > 1 else None,
        median=VALUE.show(float(np.median(values))),
        failures=int(failures(questions).notna().sum()),
    )
    if pool is None or (row := tables.row_of(pool, run.architecture)) is None:
        return Section("choice", "Why this architecture", paragraphs([text]))
    scoring = _text("scoring", size=len(pool), metric=run.config.proxy)
    body = paragraphs([scoring, text]) + _ranks(pool, objective, row, questions.iloc[best])
    return Section("choice", "Why this architecture", body)


def _ranks(pool: Pool, objective: tables.Objective, row: int, best: pd.Series) -> str:
    rows: list[tuple[str, str, str, str]] = []

    def add(name: str, values: np.ndarray, low_is_good: bool) -> None:
        better = values < values[row] if low_is_good else values > values[row]
        rows.append((name, significant(values[row]), significant(np.median(values)), f"{int(better.sum()) + 1}"))

    add("M, relative to the pool's maximum", pool.metric, low_is_good=False)
    add("κ", pool.kappa, low_is_good=True)
    add("κ/M", pool.kappa / (pool.metric + objective.epsilon), low_is_good=True)
    mu, nu = as_float(best.get("mu")), as_float(best.get("nu"))
    if mu > 0 and nu >= 0:
        values = tables.rank(pool, mu, nu, objective)
        share = tables.in_percent(tables.PenaltyScale(pool, objective).odds(mu, nu))
        add(f"objective (penalty share {share} %, √ν = {significant(np.sqrt(nu))})", values, low_is_good=True)
    columns = (Column("Score"), *numeric("selected", "pool's median", "rank in the pool"))
    return table(columns, rows, label="Scores of the selected architecture in the pool")


SECTIONS = network_sections(
    choice_section,
    landscape_section,
    pool_section,
    pool_bounds_section,
    curves_section,
    trials_section,
    tables=_TABLES,
    names_of=names_of,
    order="in the order of their validation accuracy",
)


def headline(run: Run[Any]) -> Headline:
    """The test accuracies, and the numbers of scored and trained architectures."""
    pool, questions = run.best.table(*POOL), run.best.table(*SUGGESTIONS)
    cards, best = accuracy_cards(run), tables.best_trial(questions)
    if best is not None:
        cards.append(Card("trial", VALUE.show(numbers(questions, "value")[best]), f"best search trial, {VALUE.label}"))
    training_runs = int((~flags(questions, "repeat")).sum())
    facts = {
        "Training-free metric": run.config.proxy,
        "Scored architectures": count(len(pool), "in the pool", "in the pool") if len(pool) else None,
        "Search": count(training_runs, "training run") if training_runs else None,
    }
    return network_headline(run, _TABLES, facts, cards=cards)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The trials of the search, best first."""
    return list_trials(run.table("search", TRIALS), "trials of the search", "validation_accuracy", [run.architecture])


REPORT = Report[Any](
    measured=measured_networks,
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)
