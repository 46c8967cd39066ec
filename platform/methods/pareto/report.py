"""Report of searches with several objectives: Pareto front, its members, and hypervolume by trials."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.pareto.stages import ObjectiveTable, objective_table
from archray.platform.methods.plain import report as plain_report
from archray.platform.methods.plain.report import names_of
from archray.platform.quantities import Spread, quantity_of, significant
from archray.platform.report import figures
from archray.platform.report.figures import FOUND, SURFACE, TRIAL, NothingToDraw, figure, figure_section
from archray.platform.report.section import Column, Section, captioned, numeric, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import PARETO
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing, front_of
from archray.plurals import count

_text = texts_of(__package__)
_RESULTS = ("test_accuracy", "result")  # of a fully trained member: from its final training runs, or from a table
_NUMBERED = 12  # number of members up to which all are numbered; with more, only the fully trained ones are


def _objectives(run: Run[Any]) -> ObjectiveTable:
    """The objectives of a run. Raises: NothingToDraw if the run has no Pareto front."""
    if run.table("pareto", PARETO).empty:
        raise NothingToDraw("the run has no Pareto front: it has one objective, or its search has not finished")
    return objective_table(run)


@figure(height=300)
def pareto_front(run: Run[Any], canvas: Figure) -> None:
    """The value of every trial by cost, a panel per cost, with the numbered members of the Pareto front.

    Filled points are fully trained members.
    """
    objectives, names = _objectives(run.best), names_of(run)
    quantity = quantity_of(objectives.key)
    values = objectives.table[objectives.key].to_numpy() * quantity.factor
    front = front_of(run.best.folder)
    member = objectives.table["number"].map(front.set_index("number")["member"])  # NaN for other trials
    members = member.notna().to_numpy()
    full = objectives.table["number"].isin(front["number"][_in_full(run.best, front)]).to_numpy()
    columns = canvas.subplots(1, len(objectives.costs), sharey=True, squeeze=False)[0]
    texts = [names.of(name) for name in objectives.table["architecture"]]
    for axes, column in zip(columns, objectives.costs, strict=True):
        costs = objectives.table[column].to_numpy()
        axes.scatter(costs[~members], values[~members], s=18, color=TRIAL, alpha=0.75, linewidth=0)
        order = np.flatnonzero(members)[np.argsort(costs[members], kind="stable")]
        if len(objectives.costs) == 1:
            axes.step(costs[order], values[order], where="post", color=FOUND, linewidth=2)
        for which, fill in ((members & full, FOUND), (members & ~full, SURFACE)):
            axes.scatter(costs[which], values[which], s=30, color=fill, edgecolors=FOUND, linewidth=1.5, zorder=3)
        for place in order[full[order] | (len(order) <= _NUMBERED)]:
            text, at = str(int(member[place])), (costs[place], values[place])
            # Left of the point, where the step line does not pass.
            axes.annotate(text, at, (-5, 4), textcoords="offset points", ha="right", size=10, color=FOUND, zorder=4)
        labels = [
            f"{text}\n{quantity.bare(value / quantity.factor)}, {column} {significant(cost)}"
            for text, value, cost in zip(texts, values, costs, strict=True)
        ]
        figures.add_tooltips(axes, costs, values, labels)
        figures.few_ticks(axes, 6)
        axes.margins(x=0.05 + 0.03 * len(objectives.costs))  # room for a number at the left
        axes.set(xlabel=column)
    columns[0].set(ylabel=quantity.axis)


def _in_full(run: Run[Any], front: pd.DataFrame) -> pd.Series:
    """Whether each member has a result of a final training run or lookup."""
    results = [front[name].notna() for name in _RESULTS if name in front]
    if not results:  # a run of an older version: only the best architecture
        return front["architecture"] == run.architecture
    return pd.concat(results, axis=1).any(axis=1)


@figure(height=230)
def pareto_hypervolume(run: Run[Any], canvas: Figure) -> None:
    """The hypervolume after each trial, as a share of the final hypervolume."""
    objectives = _objectives(run.best)
    axes = canvas.subplots()
    axes.step(objectives.table["number"], objectives.hypervolumes(), where="post", color=FOUND, linewidth=2)
    figures.few_ticks(axes, 8, integer=True)
    axes.set(xlabel="training runs", ylabel="share of the final hypervolume")


def set_section(run: Run[Any]) -> Section | None:
    """The Pareto front as a figure, and its members as a table. None before the front is written."""
    names, run = names_of(run), run.best
    front = front_of(run.folder)
    if front.empty:
        return None
    objectives = objective_table(run)
    quantity, full = quantity_of(objectives.key), _in_full(run, front)
    result = next((name for name in _RESULTS if name in front), None)
    columns = [*numeric("Member"), Column("Architecture", "name")]
    columns += numeric(quantity.heading, *objectives.costs)
    columns += numeric(*([quantity_of(result).heading] if result else []), "No.", "Hypervolume contribution")
    rows = []
    for row in front.to_dict("records"):
        cells = [row["member"], names.of(row["architecture"]), quantity.bare(row[objectives.key])]
        cells += [significant(row[cost]) for cost in objectives.costs]
        cells += [_tested(row, result)] if result else []
        rows.append((*cells, int(row["number"]), f"{100 * row['hypervolume_contribution']:.1f} %"))
    described = f"{len(front)} of {count(len(objectives.table), 'architecture')} are on the Pareto front."
    front_table = table(columns, rows, label="Pareto front", faint=frozenset(np.flatnonzero(~full)))
    explanation = _text(
        "set",
        on_table=run.config.on_table,
        members=", ".join(map(str, np.flatnonzero(full) + 1)) or "none",
        complete=bool(full.all()),
    )
    content = figures.drawing("front", pareto_front(run), description=described) + front_table
    return Section("pareto", "Pareto front", captioned(content, f"{described} {explanation}"))


def _tested(row: Mapping[Any, Any], result: str) -> str:
    """The result of a fully trained member, with the deviation over its final training runs."""
    quantity, deviation = quantity_of(result), row.get(f"{result}_std")
    spread = Spread(float(row[result]), None if pd.isna(deviation) else float(deviation), 1)
    return quantity.bare(row[result]) if pd.isna(deviation) else quantity.spread(spread).removesuffix(" %")


def _set_listings(run: Run[Any]) -> Sequence[Listing]:
    """The numbered members of the front for the terminal; empty before the front is written."""
    front = front_of(run.folder)
    if front.empty:
        return ()
    objectives = objective_table(run)
    results = [name for name in _RESULTS if name in front]
    keys = ["member", objectives.key, *objectives.costs, *results, "architecture"]
    rows = [{key: row[key] for key in keys} for row in front.to_dict("records")]
    return (Listing.of("members of the Pareto front, most accurate first", rows),)


def hypervolume_section(run: Run[Any]) -> Section:
    """The hypervolume by the number of trials."""
    canvas, volumes = pareto_hypervolume(run), objective_table(run.best).hypervolumes()
    reached = 1 + int(np.argmax(volumes >= 0.95))
    text = f"After {count(reached, 'training run')} of {len(volumes)}, the hypervolume was 95 % of the final one."
    return figure_section("hypervolume", "Hypervolume by training runs", canvas, description=text, caption=text)


REPORT = replace(
    plain_report.REPORT,
    sections=plain_report.plain_sections(set_section, hypervolume_section),
    listings=lambda run: (*_set_listings(run), *plain_report.listings(run)),
)
