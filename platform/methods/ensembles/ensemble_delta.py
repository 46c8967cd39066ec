"""Delta in this run: what it does to the members of the sampled ensembles, and which is best. Shu 2022, 5.3.4.

A higher delta drives SVGD's particles apart, so that the members decoded from them differ in more decisions; what it
costs is that particles leave the modes of the posterior, and members alone get worse.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.ensemble_tables import (
    MEMBERS,
    METRICS,
    SEARCH,
    chosen_ensemble,
    ranked_by,
    sampled_ensembles,
)
from archray.platform.report.figures import FOUND, INK, SURFACE, TRIAL, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.quantity import Quantity, count, signed, significant, whole_number
from archray.platform.report.section import Section, captioned, numeric, table
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space

_MEASURES = {
    "difference": Quantity("decisions that two members differ in", "%", 100.0, 1),
    "error": Quantity("mean error of a member", "%", 100.0, 2),
}


@figure(height=250)
def ensembles_delta_effect(run: Run[Any], canvas: Figure) -> None:
    """How far the members of each sampled ensemble differ, and how good they are alone, against delta."""
    members = member_measures(run)
    chosen = chosen_ensemble(run, members)
    for axes, (name, quantity) in zip(canvas.subplots(1, len(_MEASURES)), _MEASURES.items(), strict=True):
        x, y = members["delta"], members[name] * quantity.factor
        means = y.groupby(x).mean()
        axes.plot(means.index, means, color=TRIAL, linewidth=1.4, alpha=0.8)
        axes.scatter(x, y, s=26, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, zorder=3)
        if chosen is not None:
            axes.scatter(x[chosen], y[chosen], s=70, color=FOUND, edgecolor=SURFACE, zorder=4)
        few_ticks(axes, 5)
        axes.margins(0.08)
        axes.set_title(quantity.label)
        axes.set(xlabel="δ", ylabel=quantity.unit)


def delta_effect_section(run: Run[Any]) -> Section:
    """Difference and quality of the members of each ensemble by the delta it was sampled at."""
    members = member_measures(run)
    content = drawing(
        "delta-effect",
        ensembles_delta_effect(run),
        description=f"Difference and error of the members of {count(len(members), 'ensemble')} against delta.",
    )
    text = (
        "What δ does in this run. Left: the share of the space's decisions in which two members of a sampled ensemble "
        "differ, averaged over the pairs. Right: the validation error of its members alone, with shared weights. At "
        "δ = 0 the sampler is SVGD; a higher δ drives particles apart, below −1 they attract each other. A dot is one "
        "ensemble, a line goes through the means of one δ."
    )
    text += " Blue: the chosen ensemble." if chosen_ensemble(run, members) is not None else ""
    return Section("delta-effect", "What delta does", captioned(content, text))


def member_measures(run: Run[Any]) -> pd.DataFrame:
    """The ensembles that were sampled at a delta, with `difference` and `error`, fractions.

    Raises: NothingToDraw if there is none of two members or more.
    """
    sampled = sampled_ensembles(run)
    if len(sampled):
        sampled = sampled[sampled["delta"].notna() & (sampled["members"].map(len) > 1)]
    if sampled.empty:
        raise NothingToDraw("this run sampled no ensemble at a delta; choose --sampler svgd-rd")
    space = get_space(run.best.space)
    alone = run.pooled(SEARCH, MEMBERS)
    errors = dict(zip(alone["architecture"], alone["error"], strict=True)) if len(alone) else {}

    def difference(members: tuple[str, ...]) -> float:
        pairs = itertools.combinations([space.decode(member) for member in members], 2)
        return float(np.mean([[a != b for a, b in zip(*pair, strict=True)] for pair in pairs]))

    return sampled.assign(
        difference=sampled["members"].map(difference),
        error=sampled["members"].map(
            lambda members: float(np.mean([errors.get(member, np.nan) for member in members]))
        ),
    )


# The best delta


@dataclass(frozen=True)
class SweptDelta:
    """The ensembles that were sampled at a delta, and did not fail: validation performance, Figure 5.7 of Shu 2022.

    Args:
        rows: of `sampled_ensembles`.
        means: a row per delta, ascending: its index is `delta`, its columns the metrics' means.
        best: the delta of the lowest mean of the ranking metric.
    """

    rows: pd.DataFrame
    means: pd.DataFrame
    best: float

    @property
    def shown(self) -> list[str]:
        """The metrics with a value."""
        return [name for name in METRICS if self.means[name].notna().any()]


@figure(height=270)
def ensembles_by_delta(run: Run[Any], canvas: Figure) -> None:
    """The validation loss and error of the sampled ensembles against the delta they were sampled at."""
    swept = swept_delta(run)
    chosen = chosen_ensemble(run, swept.rows)
    for axes, metric in zip(np.ravel(canvas.subplots(1, len(swept.shown))), swept.shown, strict=True):
        _draw_panel(axes, swept, metric)
        if chosen is not None:
            value = swept.rows[metric][chosen] * Quantity.of(metric).factor
            axes.plot(
                swept.rows["delta"][chosen], value, "o", markersize=9, markerfacecolor=SURFACE, markeredgecolor=INK,
                markeredgewidth=1.8, zorder=4,
            )  # fmt: skip


def ensemble_delta_section(run: Run[Any]) -> Section:
    """A panel per metric, and the best delta."""
    canvas, swept = ensembles_by_delta(run), swept_delta(run)
    description = f"Validation performance against delta of {count(len(swept.rows), 'ensemble')}."
    content = drawing("ensemble-delta", canvas, description=description)
    return Section("ensemble-delta", "How much diversity?", captioned(content, _caption(run, swept)) + _table(swept))


def swept_delta(run: Run[Any]) -> SweptDelta:
    """Raises: NothingToDraw for fewer than two deltas."""
    rows = sampled_ensembles(run)
    if len(rows):
        rank = ranked_by(rows)
        rows = rows[rows["delta"].notna() & rows[rank].notna()]
    if rows.empty or rows["delta"].nunique() < 2:
        raise NothingToDraw("this run sampled ensembles at fewer than two deltas; choose --delta grid or bo")
    means = rows.groupby("delta")[list(METRICS)].mean()
    return SweptDelta(rows, means, float(means.index[int(means[rank].to_numpy().argmin())]))


def _draw_panel(axes: Axes, swept: SweptDelta, metric: str) -> None:
    quantity = Quantity.of(metric)
    axes.plot(swept.means.index, swept.means[metric] * quantity.factor, color=FOUND, linewidth=1.8)
    x, y = swept.rows["delta"], swept.rows[metric] * quantity.factor
    axes.scatter(x, y, s=18, color=FOUND, alpha=0.7, linewidth=0, zorder=3)
    axes.axvline(swept.best, color=FOUND, linestyle=(0, (1, 3)), linewidth=1.2, zorder=1)
    few_ticks(axes, 5)
    axes.set(xlabel="δ", ylabel=quantity.axis)


def _caption(run: Run[Any], swept: SweptDelta) -> str:
    text = "Ensembles by the δ at which SVGD-RD sampled them, with shared weights; a dot is one ensemble"
    text += ", a line goes through the means of one δ." if len(swept.rows) > len(swept.means) else "."
    temperature = float(swept.rows["temperature"].iloc[0])
    if math.isfinite(temperature) and temperature != 1:
        text += f" The posterior's temperature is {significant(temperature, 2)}: the higher, the flatter it is."
    text += " Dotted: the best δ."
    text += " Ring: the ensemble that was chosen." if chosen_ensemble(run, swept.rows) is not None else ""
    return f"{text} As Figure 5.7 of Shu 2022, there with test errors."


def _table(swept: SweptDelta) -> str:
    columns = numeric("Ensembles", "Deltas", "Best δ", *(Quantity.of(name).heading for name in swept.shown))
    row = (
        whole_number(len(swept.rows)),
        whole_number(len(swept.means)),
        signed(f"{swept.best:.3g}"),
        *(Quantity.of(name).bare(swept.means[name][swept.best]) for name in swept.shown),
    )
    return table(columns, [row], label="The best delta")
