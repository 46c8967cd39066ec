"""The figures of the study of cells: convergence, and what is measured against width."""

import json
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.understanding.topology.tables import (
    BOUNDS,
    KINDS,
    connected,
    curves_of,
    loss_threshold,
    networks,
    plane_of,
)
from archray.platform.quantities import significant
from archray.platform.report.figures import (
    FOUND,
    GREEN,
    MUTED,
    RANDOM,
    TRIAL,
    NothingToDraw,
    figure,
    logarithmic,
    panels,
    plain,
    tell_line,
    tell_points,
)
from archray.platform.run.run import Run

COLOURS = {"cell": FOUND, "widest": GREEN, "connections": TRIAL, "operations": RANDOM}
ORDER = ("operations", "connections", "widest", "cell")  # the last on top
_COLUMNS = 3  # of panels
_ROW = 165  # height of a row of panels
_TRENDS = (
    ("mean_loss", "mean validation loss", False),
    ("rise", "rise of the loss, nats", False),
    ("plane_variance", "gradient variance", True),
    ("test_accuracy", "test accuracy, %", False),
)


def _legend(canvas: Figure, kinds: set[str]) -> None:
    handles = [Line2D([], [], color=COLOURS[kind], label=KINDS[kind], lw=2) for kind in KINDS if kind in kinds]
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))


@figure(height=400)
def topology_convergence(run: Run[Any], canvas: Figure) -> None:
    """The validation loss by epoch of each cell of a study, and of its variants. Shu 2022, Figures 4.3 and 4.5."""
    run = run.best
    table, curves = networks(run), curves_of(run)
    if curves.empty or curves["validation_loss"].notna().sum() == 0:
        raise NothingToDraw("the study has no curves yet: its cells are not trained")
    threshold = loss_threshold(run)
    cells = list(dict.fromkeys(table["cell"]))
    grid = panels(canvas, len(cells), _COLUMNS, row=_ROW, head=60, sharex=True, sharey=True)
    for axes, name in zip(grid, cells, strict=True):
        rows = table[table["cell"] == name]
        axes.axhline(threshold, color=TRIAL, lw=0.8, ls=":")
        for kind in ORDER:
            for row in rows[rows["kind"] == kind].itertuples():
                for _, curve in curves[curves["architecture"] == row.architecture].groupby("trial_id"):
                    cell = kind == "cell"
                    x, y = curve["epoch"].to_list(), curve["validation_loss"].clip(upper=4 * threshold).to_list()
                    marker = "o" if len(x) == 1 else None  # one epoch alone has no line
                    axes.plot(
                        x, y, color=COLOURS[kind], lw=2 if cell else 1, alpha=1 if cell else 0.65, marker=marker, ms=3
                    )
                    words = f"{name}, {KINDS[kind]} {row.number}" if not cell else name
                    tell_line(axes, x, y, f"{words}: {significant(row.width)} wide, {row.depth} deep")
        axes.set_title(name)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        axes.set_ylim(bottom=0)
    canvas.supxlabel("epoch", fontsize=12)
    canvas.supylabel("validation loss, nats", fontsize=12)
    _legend(canvas, set(table["kind"]))


@figure(height=400)
def topology_trends(run: Run[Any], canvas: Figure) -> None:
    """Mean loss, landscape, gradient variance and accuracy of a study's networks against the width of their cells."""
    table = connected(networks(run.best))
    measured = [trend for trend in _TRENDS if not table.empty and table[trend[0]].notna().any()]
    if not measured:
        raise NothingToDraw("the study has measured nothing yet: its cells are not trained")
    for axes, (column, label, in_decades) in zip(
        panels(canvas, len(measured), 2, row=190, head=60), measured, strict=True
    ):
        for kind in ORDER:
            rows = table[(table["kind"] == kind) & table[column].notna()]
            y = rows[column] * (100 if column == "test_accuracy" else 1)
            axes.scatter(rows["width"], y, s=26 if kind != "connections" else 18, color=COLOURS[kind], alpha=0.8, lw=0)
            values = zip(rows["cell"], rows["kind"], rows["number"], rows["depth"], y, strict=True)
            texts = [f"{c}, {KINDS[k]} {n}\n{d} deep: {significant(value)}" for c, k, n, d, value in values]
            tell_points(axes, rows["width"], y, texts)
        if in_decades:
            axes.set_yscale("log")
            plain(axes.yaxis)
        axes.set_title(label)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    canvas.supxlabel("width of the normal cell, c", fontsize=12)
    _legend(canvas, set(table["kind"]))


_CAP = 6.0  # nats above the centre, of a plane's colours
_SQUARE_COLUMNS = 4  # of squares
Shown = list[tuple[str, pd.Series]]  # what a network is called, and its row
TITLES = {"4.3": "Theorem 4.3: smoothness", "4.4": "Theorem 4.4: variance"}


def _cells_and_narrowest(table: pd.DataFrame) -> Shown:
    """Each cell, and after it its narrowest and deepest variant if it has one, with what they are called."""
    shown: Shown = []
    for name, rows in table.groupby("cell", sort=False):
        cells, others = rows[rows["kind"] == "cell"], rows[rows["kind"] == "connections"]
        if len(cells):
            shown.append((str(name), cells.iloc[0]))
        if len(cells) and len(others):
            narrowest = others.sort_values(["width", "depth"], ascending=[True, False]).iloc[0]
            shown.append(("its narrowest", narrowest))
    return shown


def _squares(canvas: Figure, shown: Shown, half: float) -> list[Axes]:
    """Room for a square of weights from -half to half for each network, under its name, width and depth."""
    grid = panels(canvas, len(shown), _SQUARE_COLUMNS, row=140, head=100, sharex=True, sharey=True)
    columns = min(_SQUARE_COLUMNS, len(shown))
    for number, (axes, (name, row)) in enumerate(zip(grid, shown, strict=True)):
        axes.set_title(f"{name}\n{significant(row['width'])} wide, {row['depth']} deep", fontsize=10)
        axes.set_aspect("equal")
        axes.grid(visible=False)
        axes.set_xticks([-half, 0, half])
        axes.set_yticks([-half, 0, half])
        axes.tick_params(labelsize=10, labelbottom=number + columns >= len(shown))
    return grid


def _bar(canvas: Figure, squares: list[Axes], drawn: Any, label: str) -> Colorbar:
    """The scale of all squares, over them."""
    bar = canvas.colorbar(drawn, ax=squares, location="top", aspect=40, label=label)
    bar.outline.set_visible(False)
    return bar


@figure(height=400)
def topology_planes(run: Run[Any], canvas: Figure) -> None:
    """The loss on a plane of weights around each cell of a study, and around its narrowest variant. Figure 4.6."""
    table = connected(networks(run.best))
    if table.empty or "plane" not in table or table["plane"].notna().sum() == 0:
        raise NothingToDraw("the study has no planes yet")
    shown = _cells_and_narrowest(table[table["plane"].notna()])
    if not shown:
        raise NothingToDraw("the study has no plane of a cell itself")
    radius = run.best.config.plane.radius
    grid, levels, drawn = _squares(canvas, shown, radius), np.linspace(0, _CAP, 13), None
    for axes, (_, row) in zip(grid, shown, strict=True):
        plane = plane_of(row["plane"])
        assert plane is not None  # rows without one are left out
        steps = np.linspace(-radius, radius, len(plane))
        rise = np.nan_to_num(plane - row["centre"], nan=_CAP, posinf=_CAP).clip(0, _CAP)
        drawn = axes.contourf(steps, steps, rise.T, levels=levels, cmap="cividis")
        axes.contour(steps, steps, rise.T, levels=levels[1:-1], colors="white", linewidths=0.3)
    _bar(canvas, grid, drawn, "rise of the loss, nats").set_ticks([0, 2, 4, _CAP])


@figure(height=400)
def topology_gradient_planes(run: Run[Any], canvas: Figure) -> None:
    """The gradient's standard deviation around each cell of a study, and around its narrowest variant. Figure 4.7."""
    table = connected(networks(run.best))
    if table.empty or "variances" not in table or table["variances"].notna().sum() == 0:
        raise NothingToDraw("the study has no variances of gradients yet")
    shown = _cells_and_narrowest(table[table["variances"].notna()])
    if not shown:
        raise NothingToDraw("the study has no variances around a cell itself")
    squares = [_deviations(row["variances"]) for _, row in shown]
    positive = np.concatenate([square[np.isfinite(square) & (square > 0)] for square in squares])
    if not positive.size:
        raise NothingToDraw("no gradient of the study varies")
    norm = LogNorm(float(positive.min()), float(positive.max()) * 1.001)
    half = run.best.config.plane.radius / 2
    grid, drawn = _squares(canvas, shown, half), None
    for axes, square in zip(grid, squares, strict=True):
        extent = (-half, half, -half, half)
        drawn = axes.imshow(np.ma.masked_invalid(square.T), origin="lower", extent=extent, norm=norm, cmap="cividis")
    plain(_bar(canvas, grid, drawn, "standard deviation of the gradient").ax.xaxis)


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
