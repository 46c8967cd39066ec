"""The set that a search with several objectives ends with: the front, and the hypervolume by trainings."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from archray.platform.methods.pareto.pareto_stage import ObjectiveTable, objective_table
from archray.platform.methods.plain.plain_tables import names_of
from archray.platform.number_words import significant
from archray.platform.quantities import quantity_of
from archray.platform.report.figures import FOUND, TRIAL, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Column, Section, captioned, numeric, table
from archray.platform.run.layout import PARETO
from archray.platform.run.run import Run
from archray.plurals import count


def _objectives(run: Run[Any]) -> ObjectiveTable:
    """Raises: NothingToDraw if the run has no set."""
    if run.table("pareto", PARETO).empty:
        raise NothingToDraw("no set of this search has been written: it has one objective, or has not ended")
    return objective_table(run)


@figure(height=300)
def pareto_front(run: Run[Any], canvas: Figure) -> None:
    """The value of every training against its cost, a panel per cost, and the set that no other betters."""
    objectives, names = _objectives(run.best), names_of(run)
    quantity = quantity_of(objectives.key)
    values = objectives.table[objectives.key].to_numpy() * quantity.factor
    chosen = np.isin(objectives.table["number"], run.best.table("pareto", PARETO)["number"])
    panels = canvas.subplots(1, len(objectives.costs), sharey=True, squeeze=False)[0]
    texts = [names.of(name) for name in objectives.table["architecture"]]
    for axes, column in zip(panels, objectives.costs, strict=True):
        costs = objectives.table[column].to_numpy()
        axes.scatter(costs[~chosen], values[~chosen], s=18, color=TRIAL, alpha=0.75, linewidth=0)
        order = np.flatnonzero(chosen)[np.argsort(costs[chosen], kind="stable")]
        if len(objectives.costs) == 1:
            axes.step(costs[order], values[order], where="post", color=FOUND, linewidth=2)
        axes.scatter(costs[order], values[order], s=30, color=FOUND, linewidth=0, zorder=3)
        told = zip(texts, values, costs, strict=True)
        labels = [f"{text}\n{quantity.bare(v / quantity.factor)}, {column} {significant(c)}" for text, v, c in told]
        tell_points(axes, costs, values, labels)
        few_ticks(axes, 6)
        axes.set(xlabel=column)
    panels[0].set(ylabel=quantity.axis)


@figure(height=230)
def pareto_hypervolume(run: Run[Any], canvas: Figure) -> None:
    """The hypervolume of what was trained so far, over the trainings, as a share of that in the end."""
    objectives = _objectives(run.best)
    axes = canvas.subplots()
    axes.step(objectives.table["number"], objectives.hypervolumes(), where="post", color=FOUND, linewidth=2)
    few_ticks(axes, 8, integer=True)
    axes.set(xlabel="trainings", ylabel="share of the last hypervolume")


def set_section(run: Run[Any]) -> Section | None:
    """The front as a figure, and its members as a table. Nothing before the set is written."""
    front, names = run.best.table("pareto", PARETO), names_of(run)
    if front.empty:
        return None
    objectives = objective_table(run.best)
    quantity = quantity_of(objectives.key)
    described = f"{count(len(front), 'architecture')} of {len(objectives.table)} that no other betters in everything."
    canvas = drawing("front", pareto_front(run), description=described)
    columns = [Column("Architecture", "name")]
    columns += numeric(quantity.heading, *objectives.costs, "No.", "Hypervolume it adds")
    rows = [
        (
            names.of(row["architecture"]),
            quantity.bare(row[objectives.key]),
            *(significant(row[cost]) for cost in objectives.costs),
            int(row["number"]),
            f"{100 * row['hypervolume_contribution']:.1f} %",
        )
        for row in front.to_dict("records")
    ]
    caption = (
        described + " Each is better than every other in one objective at least; the first had the final training."
    )
    caption += " The last column: how much smaller the set's hypervolume would be without it, up to a tenth of each "
    caption += "objective's range beyond the worst training."
    return Section("pareto", "The set", captioned(canvas + table(columns, rows, label="The set"), caption))


def hypervolume_section(run: Run[Any]) -> Section | None:
    """The hypervolume by trainings. Nothing before the set is written."""
    if run.best.table("pareto", PARETO).empty:
        return None
    volumes = objective_table(run.best).hypervolumes()
    reached = 1 + int(np.argmax(volumes >= 0.95))
    described = f"After {count(reached, 'training')} of {len(volumes)} the hypervolume was 95 % of the last."
    content = drawing("hypervolume", pareto_hypervolume(run), description=described)
    return Section("hypervolume", "Hypervolume by trainings", captioned(content, described))
