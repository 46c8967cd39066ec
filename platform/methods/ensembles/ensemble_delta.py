"""Validation loss and error of the sampled ensembles against delta, by temperature. Shu 2022, Figure 5.7."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.ensembles.sampled_table import (
    METRICS,
    Dashes,
    Look,
    chosen_ensemble,
    ranked_by,
    sampled_ensembles,
)
from archray.platform.report.plot import FOUND, GREEN, INDIGO, INK, PINK, RANDOM, SURFACE, TRIAL, Size, plot
from archray.platform.report.quantity import MISSING, Quantity, as_float, count, signed, significant, whole_number
from archray.platform.report.section import Column, Section, figure, table
from archray.platform.report.view import RunView

_DASHES: tuple[Dashes, ...] = ("-", "--", ":")
_LOOKS: tuple[Look, ...] = tuple(
    (colour, dashes) for dashes in _DASHES for colour in (FOUND, RANDOM, GREEN, PINK, INDIGO, TRIAL)
)


@dataclass(frozen=True)
class Swept:
    """The ensembles of one temperature.

    Args:
        temperature: NaN if it is not told.
        rows: those with a delta.
        means: a row per delta, ascending: its index is `delta`, its columns the metrics' means.
        best: the delta of the lowest mean of the ranking metric; NaN if none is finite.
    """

    temperature: float
    rows: pd.DataFrame
    means: pd.DataFrame
    best: float


def ensemble_delta_section(view: RunView) -> Section | None:
    """A panel per metric with a line per temperature. Nothing for fewer than two deltas."""
    sampled = sampled_ensembles(view)
    swept = swept_deltas(sampled)
    if not any(len(each.means) > 1 for each in swept):
        return None
    shown = [name for name in METRICS if any(each.means[name].notna().any() for each in swept)]
    chosen = chosen_ensemble(view, sampled)

    def draw(canvas: Figure, narrow: bool) -> None:
        panels = np.ravel(canvas.subplots(len(shown), 1) if narrow else canvas.subplots(1, len(shown)))
        for axes, metric in zip(panels, shown, strict=True):
            _draw_panel(axes, swept, metric)
            if chosen is not None and math.isfinite(sampled["delta"][chosen]):
                value = sampled[metric][chosen] * Quantity.of(metric).factor
                axes.plot(
                    sampled["delta"][chosen], value, "o", markersize=9, markerfacecolor=SURFACE, markeredgecolor=INK,
                    markeredgewidth=1.8, zorder=4,
                )  # fmt: skip
        if len(swept) > 1:
            canvas.legend(handles=_legend(swept), loc="outside upper left", ncols=2 if narrow else 5, handlelength=3)

    drawing = plot(
        "ensemble-delta",
        draw,
        description=f"Validation performance against delta of {count(sum(len(s.rows) for s in swept), 'ensemble')}.",
        wide=Size(760, 320),
        narrow=Size(350, 50 + 230 * len(shown)),
    )
    return Section(
        "ensemble-delta", "How much diversity?", figure(drawing, _caption(swept, chosen)) + _table(swept, shown)
    )


def swept_deltas(sampled: pd.DataFrame) -> list[Swept]:
    """The ensembles that were sampled at a delta and did not fail, by temperature, ascending."""
    if sampled.empty:
        return []
    rank = ranked_by(sampled)
    rows = sampled[sampled["delta"].notna() & sampled[rank].notna()]
    told = []
    for temperature, own in rows.groupby("temperature", dropna=False):
        means = own.groupby("delta")[list(METRICS)].mean()
        told.append(Swept(as_float(temperature), own, means, float(means.index[int(means[rank].to_numpy().argmin())])))
    return told


def _draw_panel(axes: Axes, swept: list[Swept], metric: str) -> None:
    quantity = Quantity.of(metric)
    for (colour, dashes), each in zip(_LOOKS, swept, strict=False):
        axes.plot(each.means.index, each.means[metric] * quantity.factor, color=colour, linestyle=dashes, linewidth=1.8)
        axes.scatter(
            each.rows["delta"],
            each.rows[metric] * quantity.factor,
            s=18,
            color=colour,
            alpha=0.7,
            linewidth=0,
            zorder=3,
        )
        if len(each.means) > 1:
            axes.axvline(each.best, color=colour, linestyle=(0, (1, 3)), linewidth=1.2, zorder=1)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set(xlabel="δ", ylabel=quantity.axis)


def _legend(swept: list[Swept]) -> list[Line2D]:
    return [
        Line2D([], [], color=colour, linestyle=dashes, linewidth=1.8, label=_words(each.temperature))
        for (colour, dashes), each in zip(_LOOKS, swept, strict=False)
    ]


def _words(temperature: float) -> str:
    return f"τ = {significant(temperature, 2)}" if math.isfinite(temperature) else "temperature not told"


def _caption(swept: list[Swept], chosen: int | None) -> str:
    text = "Ensembles by the δ at which SVGD-RD sampled them, with shared weights; a dot is one ensemble"
    repeated = any(len(each.rows) > len(each.means) for each in swept)
    text += ", a line goes through the means of one δ." if repeated else "."
    if len(swept) > 1:
        text += (
            " A line per temperature τ of the posterior: the higher, the flatter it is, and the lower the δ that it "
            "should need."
        )
    text += " Dotted: the best δ" + (" of each temperature." if len(swept) > 1 else ".")
    text += " Ring: the ensemble that was chosen." if chosen is not None else ""
    if len(swept) > len(_LOOKS):
        text += f" The first {len(_LOOKS)} of {len(swept)} temperatures are drawn."
    return f"{text} As Figure 5.7 of Shu 2022, there with test errors."


def _table(swept: list[Swept], shown: list[str]) -> str:
    columns = [Column("Temperature", "number"), Column("Ensembles", "number"), Column("Deltas", "number")]
    columns += [Column("Best δ", "number"), *(Column(Quantity.of(name).heading, "number") for name in shown)]
    rows = [
        (
            significant(each.temperature, 2) if math.isfinite(each.temperature) else MISSING,
            whole_number(len(each.rows)),
            whole_number(len(each.means)),
            signed(f"{each.best:.3g}"),
            *(Quantity.of(name).bare(each.means[name][each.best]) for name in shown),
        )
        for each in swept
    ]
    return table(columns, rows, label="The best delta by temperature")
