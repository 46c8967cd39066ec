"""The figures of the study of cells: convergence, and what is measured against width."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.understanding.topology.topology_tables import (
    KINDS,
    connected,
    curves_of,
    loss_threshold,
    networks,
)
from archray.platform.quantities import significant
from archray.platform.report.figures import FOUND, GREEN, RANDOM, TRIAL, NothingToDraw, figure, plain, set_height
from archray.platform.report.pointed_at import tell_line, tell_points
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


def _panels(canvas: Figure, cells: list[str], head: int) -> list[Axes]:
    rows = math.ceil(len(cells) / _COLUMNS)
    columns = min(_COLUMNS, len(cells))
    set_height(canvas, head + _ROW * rows)
    grid = canvas.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat
    panels = list(grid)
    for axes in panels[len(cells) :]:
        axes.set_visible(False)
    return panels[: len(cells)]


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
    for axes, name in zip(_panels(canvas, cells, 60), cells, strict=True):
        rows = table[table["cell"] == name]
        axes.axhline(threshold, color=TRIAL, lw=0.8, ls=":")
        for kind in ORDER:
            for row in rows[rows["kind"] == kind].itertuples():
                for _, curve in curves[curves["architecture"] == row.architecture].groupby("trial_id"):
                    own = kind == "cell"
                    x, y = curve["epoch"].to_list(), curve["validation_loss"].clip(upper=4 * threshold).to_list()
                    marker = "o" if len(x) == 1 else None  # one epoch alone has no line
                    axes.plot(
                        x, y, color=COLOURS[kind], lw=2 if own else 1, alpha=1 if own else 0.65, marker=marker, ms=3
                    )
                    words = f"{name}, {KINDS[kind]} {row.number}" if not own else name
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
    known = [trend for trend in _TRENDS if not table.empty and table[trend[0]].notna().any()]
    if not known:
        raise NothingToDraw("the study has measured nothing yet: its cells are not trained")
    set_height(canvas, 60 + 190 * math.ceil(len(known) / 2))
    grid = canvas.subplots(math.ceil(len(known) / 2), min(2, len(known)), squeeze=False).flat
    panels = list(grid)
    for axes in panels[len(known) :]:
        axes.set_visible(False)
    for axes, (column, label, in_decades) in zip(panels, known, strict=False):
        for kind in ORDER:
            rows = table[(table["kind"] == kind) & table[column].notna()]
            y = rows[column] * (100 if column == "test_accuracy" else 1)
            axes.scatter(rows["width"], y, s=26 if kind != "connections" else 18, color=COLOURS[kind], alpha=0.8, lw=0)
            told = zip(rows["cell"], rows["kind"], rows["number"], rows["depth"], y, strict=True)
            texts = [f"{c}, {KINDS[k]} {n}\n{d} deep: {significant(value)}" for c, k, n, d, value in told]
            tell_points(axes, rows["width"], y, texts)
        if in_decades:
            axes.set_yscale("log")
            plain(axes.yaxis)
        axes.set_title(label)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    canvas.supxlabel("width of the normal cell, c", fontsize=12)
    _legend(canvas, set(table["kind"]))
