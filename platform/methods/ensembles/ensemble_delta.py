"""Validation loss and error of the sampled ensembles against delta. Shu 2022, Figure 5.7."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.ensemble_tables import METRICS, chosen_ensemble, ranked_by, sampled_ensembles
from archray.platform.report.figures import FOUND, INK, SURFACE, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.quantity import Quantity, count, signed, significant, whole_number
from archray.platform.report.section import Section, captioned, numeric, table
from archray.platform.run.run import Run


@dataclass(frozen=True)
class SweptDelta:
    """The ensembles that were sampled at a delta, and did not fail.

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
