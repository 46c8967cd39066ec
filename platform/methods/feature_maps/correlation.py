"""Shared-weights accuracy against standalone accuracy of the same feature maps. Khodak et al. 2020, Figure 1."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from archray.platform.methods.feature_maps.solve_stages import CORRELATION
from archray.platform.quantities import Quantity, quantity_of, whole_number
from archray.platform.report.figures import (
    FOUND,
    MUTED,
    SURFACE,
    TRIAL,
    NothingToDraw,
    drawing,
    few_ticks,
    figure,
    set_height,
)
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Column, Section, captioned, numeric, table
from archray.platform.report.table_columns import numbers
from archray.platform.run.run import Run
from archray.plurals import count

_SIDES = ("shared_accuracy", "standalone_accuracy")
_SHARED, _ALONE = map(quantity_of, _SIDES)
_RHO = Quantity("rank correlation", "", 1.0, 2)
_FEWEST = 3  # maps that a rank correlation needs: two always agree or disagree
_PANEL = {1: 330, 2: 235}  # height of a row of so many panels


@dataclass(frozen=True)
class Panel:
    """The maps of one dimension and kind of bases."""

    bases: str  # `shared` or `independent`
    dimension: int
    rows: (
        pd.DataFrame
    )  # `architecture`, `shared_accuracy`, `standalone_accuracy` of each map, in all repeats; only finite ones
    rho: pd.Series  # Spearman's rho of each repeat; NaN of one with fewer than three maps or with equal values only
    maps: int  # of a repeat; the most of any where they differ


def correlation_section(run: Run[Any]) -> Section:
    """A panel per dimension and kind of bases, and the table of their rho."""
    correlation = run.pooled("correlation", CORRELATION)
    panels = correlation_panels(correlation)
    described = ", ".join(f"{_RHO.bare(p.rho.mean())} at {p.dimension} with {p.bases} bases" for p in panels)
    shown = drawing(
        "correlation",
        shared_against_standalone(run),
        description=f"Shared against standalone validation accuracy; Spearman's rho {described}.",
    )
    lost = len(correlation) - sum(len(panel.rows) for panel in panels)
    return Section(
        "correlation",
        "Do shared weights tell good maps from bad ones?",
        captioned(shown, _caption(panels, run.best.architecture, lost)) + _table(panels),
    )


@figure(height=_PANEL[1])
def shared_against_standalone(run: Run[Any], canvas: Figure) -> None:
    """Shared-weights accuracy against standalone accuracy of the same feature maps, a panel per dimension and bases.

    The panels of each kind of bases begin a row of their own; all have the same axes. Khodak et al. 2020, Figure 1.
    """
    panels, found = correlation_panels(run.pooled("correlation", CORRELATION)), run.best.architecture
    kinds = Counter(panel.bases for panel in panels)
    columns = min(2, max(kinds.values()))
    places: list[Panel | None] = []
    for kind in kinds:
        places += [panel for panel in panels if panel.bases == kind]
        places += [None] * (-len(places) % columns)
    rows = len(places) // columns
    set_height(canvas, 30 + _PANEL[columns] * rows)
    grid = canvas.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    low, high = _range(panels)
    for axes, panel in zip(grid.flat, places, strict=True):
        if panel is None:
            axes.set_visible(False)
            continue
        _draw_panel(axes, panel, found, several=len(kinds) > 1)
        axes.set(xlim=(low, high), ylim=(low, high))
        few_ticks(axes, 5)
        axes.tick_params(labelbottom=True)
    canvas.supxlabel(_SHARED.axis, fontsize=12)
    canvas.supylabel(_ALONE.axis, fontsize=12)


def correlation_panels(correlation: pd.DataFrame) -> list[Panel]:
    """The panels, shared bases first, then by dimension. Raises: NothingToDraw if no map has both accuracies."""
    names = ("dimension", *_SIDES)
    frame = correlation.assign(**{name: numbers(correlation, name) for name in names})
    frame = frame[frame[list(names)].notna().all(axis=1)]
    if frame.empty:
        raise NothingToDraw(
            "the run has compared no shared with standalone accuracies; search by halving with correlation.maps"
        )
    panels = []
    for bases in sorted(frame["bases"].unique(), reverse=True):
        kind = frame[frame["bases"] == bases]
        for dimension, rows in kind.groupby("dimension"):
            repeats = [repeat for _, repeat in rows.groupby("repeat")]
            rho = pd.Series([spearman(*(repeat[side] for side in _SIDES)) for repeat in repeats])
            panels.append(Panel(str(bases), int(dimension), rows, rho, max(map(len, repeats))))
    return panels


def spearman(x: pd.Series, y: pd.Series) -> float:
    """Spearman's rho of finite values; NaN of fewer than three, or where one side is all equal."""
    if len(x) < _FEWEST or x.nunique() < 2 or y.nunique() < 2:
        return math.nan
    return float(spearmanr(x, y).statistic)


def _draw_panel(axes: Axes, panel: Panel, found: str | None, several: bool) -> None:
    x, y = (panel.rows[side] * quantity_of(side).factor for side in _SIDES)
    axes.axline((0, 0), slope=1, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.scatter(x, y, s=26, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, alpha=0.8, zorder=2, clip_on=False)
    shown = zip(panel.rows["architecture"], x, y, strict=True)
    texts = [f"{name}\nshared weights {one:.2f} %, standalone {other:.2f} %" for name, one, other in shown]
    tell_points(axes, x, y, texts)
    own = panel.rows["architecture"] == found
    axes.scatter(x[own], y[own], s=52, color=FOUND, edgecolor=SURFACE, linewidth=0.8, zorder=3, clip_on=False)
    where = f", {panel.bases}" if several else ""
    rho = _RHO.bare(panel.rho.mean())
    axes.set_title(f"{whole_number(panel.dimension)} features{where}\nρ = {rho}, {count(panel.maps, 'map')}")


def _range(panels: Sequence[Panel]) -> tuple[float, float]:
    """The limits of every axis in percent: all accuracies, and a little more."""
    values = np.concatenate([panel.rows[list(_SIDES)].to_numpy().ravel() for panel in panels])
    low, high = float(values.min()) * _SHARED.factor, float(values.max()) * _SHARED.factor
    margin = max(0.04 * (high - low), 0.5)
    return low - margin, high + margin


def _caption(panels: Sequence[Panel], found: str | None, lost: int) -> str:
    """lost: how many points are left out."""
    text = (
        "Each point is a feature map: its validation accuracy with the weights that all maps of the panel share, and "
        "with weights solved for on its own. On the dashed line the two are equal. ρ is Spearman's rank correlation"
    )
    repeats = max(panel.rho.size for panel in panels)
    text += f", the mean over {count(repeats, 'repeat')}, whose points are drawn together." if repeats > 1 else "."
    if any((panel.rows["architecture"] == found).any() for panel in panels):
        text += " Blue is the feature map that was found."
    if any(panel.bases == "independent" for panel in panels):
        text += (
            " With shared bases all maps are built on the same random projections; with independent bases each has "
            "its own, and a weight stands for another feature in every map."
        )
    if lost:
        text += f" {count(lost, 'point')} without both accuracies {'is' if lost == 1 else 'are'} left out."
    return f"{text} As Figure 1 of Khodak et al. 2020."


def _table(panels: Sequence[Panel]) -> str:
    several = max(panel.rho.size for panel in panels) > 1
    columns = [Column("Bases")]
    columns += numeric("Features", "Maps", "Spearman's ρ", *(["Standard deviation", "Repeats"] if several else []))
    rows = []
    for panel in panels:
        row: list[object] = [panel.bases, whole_number(panel.dimension), panel.maps, _RHO.bare(panel.rho.mean())]
        rows.append(row + ([_RHO.bare(panel.rho.std()), panel.rho.count()] if several else []))
    return table(columns, rows, label="Rank correlation of shared and standalone accuracy")
