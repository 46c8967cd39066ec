"""The gradient's deviation around trained cells, and the bounds of linear cells. Shu 2022, Figure 4.7 and 4.3.3."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from archray.platform.methods.understanding.topology.topology_figures import cells_and_narrowest
from archray.platform.methods.understanding.topology.topology_tables import BOUNDS, connected, networks
from archray.platform.number_words import significant
from archray.platform.report.figures import (
    FOUND,
    MUTED,
    RANDOM,
    NothingToDraw,
    figure,
    logarithmic,
    plain,
    set_height,
)
from archray.platform.run.run import Run

TITLES = {"4.3": "Theorem 4.3: smoothness", "4.4": "Theorem 4.4: variance"}


@figure(height=400)
def topology_gradient_planes(run: Run[Any], canvas: Figure) -> None:
    """The gradient's standard deviation around each cell of a study, and around its narrowest variant. Figure 4.7."""
    table = connected(networks(run.best))
    if table.empty or "variances" not in table or table["variances"].notna().sum() == 0:
        raise NothingToDraw("the study has no variances of gradients yet")
    shown = cells_and_narrowest(table[table["variances"].notna()])
    if not shown:
        raise NothingToDraw("the study has no variances around a cell itself")
    squares = [(name, row, _deviations(row["variances"])) for name, row in shown]
    known = np.concatenate([square[np.isfinite(square) & (square > 0)] for _, _, square in squares])
    if not known.size:
        raise NothingToDraw("no gradient of the study varies")
    norm = LogNorm(float(known.min()), float(known.max()) * 1.001)
    across = min(4, len(squares))
    rows = math.ceil(len(squares) / across)
    set_height(canvas, 90 + 150 * rows)
    panels = list(canvas.subplots(rows, across, squeeze=False).flat)
    half = run.best.config.plane.radius / 2
    drawn = None
    for axes, (name, row, square) in zip(panels, squares, strict=False):
        extent = (-half, half, -half, half)
        masked = np.ma.masked_invalid(square.T)
        drawn = axes.imshow(masked, origin="lower", extent=extent, norm=norm, cmap="cividis")
        axes.set_title(f"{name}\n{significant(row['width'])} wide, {row['depth']} deep", fontsize=10)
        axes.grid(visible=False)
        axes.set_xticks([-half, 0, half])
        axes.set_yticks([-half, 0, half])
        axes.tick_params(labelsize=8)
    for axes in panels[len(squares) :]:
        axes.set_visible(False)
    assert drawn is not None  # there is a square, or nothing would be drawn
    bar = canvas.colorbar(drawn, ax=panels, location="top", aspect=40, label="standard deviation of the gradient")
    bar.outline.set_visible(False)
    plain(bar.ax.xaxis)


def _deviations(text: str) -> np.ndarray:
    """(points, points), the roots of a row's `variances`; NaN where it is not known."""
    return np.sqrt(np.array(json.loads(text), dtype=float).clip(0))


@figure(height=330)
def topology_linear_bounds(run: Run[Any], canvas: Figure) -> None:
    """Bounds of Theorems 4.3 and 4.4, printed and corrected, against what random linear cells have. Notes U1 and U2."""
    bounds = run.best.table("linear", BOUNDS)
    if bounds.empty:
        raise NothingToDraw("the study has no linear cells yet")
    narrow = bounds[bounds["gradient"] == "narrow"]
    for axes, (theorem, rows) in zip(canvas.subplots(1, 2), narrow.groupby("theorem"), strict=True):
        for name, colour in (("corrected", FOUND), ("printed", RANDOM)):
            above = rows[rows[name] > 0]  # a logarithmic axis has no 0
            axes.scatter(
                above["measured"], above[name], s=5, color=colour, alpha=0.35, linewidths=0, label=name, rasterized=True
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = rows["measured"].quantile([0.02, 1.0])  # a few saturated cells have next to none
        axes.set_xlim(low, high * 2)
        axes.set_ylim(low / 3, rows["corrected"].max() * 2)
        axes.axline((1, 1), (10, 10), color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        logarithmic(axes.xaxis)
        logarithmic(axes.yaxis)
        axes.set_title(TITLES[str(theorem)])
        axes.set_xlabel("measured")
    canvas.axes[0].set_ylabel("bound")
    handles, names = canvas.axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside upper left", ncols=2, markerscale=3)
