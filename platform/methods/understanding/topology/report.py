"""The report of the study of cells: headline, claims with verdicts, tables of cells, and figures. Shu 2022, ch. 4."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.recipe import Report
from archray.platform.methods.understanding.topology import tables
from archray.platform.methods.understanding.topology.tables import KINDS, connected, networks
from archray.platform.quantities import significant
from archray.platform.report import figures
from archray.platform.report.figures import DASHED, FOUND, GREEN, RANDOM, TRIAL, NothingToDraw, figure, figure_section
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import Tables, failures_section, manifest_section
from archray.platform.report.section import Column, Section, captioned, folded, numeric, paragraphs, table
from archray.platform.report.statistics import FAILS, HOLDS
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count

_text = texts_of(__package__)
_TABLES: Tables = {"training": ("trainings", TRIALS), "planes": ("planes", tables.PLANES)}
# Singular and plural of the verdicts.
_VERDICTS = {HOLDS: "hold", FAILS: "do not hold", tables.UNDECIDED: tables.UNDECIDED}
_COLUMNS = {  # heading -> (column, factor) of a table of networks
    "Width, c": ("width", 1),
    "Depth": ("depth", 1),
    "Parameters": ("parameters", 1),
    "Epochs to loss": ("epochs_to_threshold", 1),
    "Mean loss": ("mean_loss", 1),
    "Final loss": ("final_loss", 1),
    "Test accuracy, %": ("test_accuracy", 100),
    "Rise": ("rise", 1),
    "Flat, %": ("flat", 100),
    "Gradient variance": ("plane_variance", 1),
    "Curvature": ("hessian", 1),
}
_MEANS = {
    name: of for name, of in _COLUMNS.items() if name not in ("Epochs to loss", "Final loss")
}  # the columns that fit on the page


def headline(run: Run[Any]) -> Headline:
    """The numbers of claims by verdict."""
    run = run.best
    rows = run.table("variants", tables.VARIANTS)
    verdicts = [claim.verdict for claim in tables.claims(run)]
    numbers = {verdict: verdicts.count(verdict) for verdict in _VERDICTS}
    cells = count(len(set(rows["cell"])), "cell") if len(rows) else "no cell yet"
    lead = f"{cells} and their variants, {count(len(rows), 'network')} trained with equal budgets"
    if verdicts:
        parts = [count(number, verdict, _VERDICTS[verdict]) for verdict, number in numbers.items() if number]
        lead += f". Among {count(len(verdicts), 'claim')} of Shu (2022), chapter 4, {', '.join(parts)}"
    cards = [Card("found", str(number), _VERDICTS[verdict]) for verdict, number in numbers.items()]
    spaces = ", ".join(dict.fromkeys(rows["space"])) if len(rows) else run.config.space
    return Headline("cells", f"{lead}.", cards=cards if verdicts else (), facts={"Space": spaces})


def claims_section(run: Run[Any]) -> Section | None:
    """The claims, with verdicts and measured values."""
    claims = tables.claims(run.best)
    if not claims:
        return None
    columns = [Column("Claim"), Column("Verdict"), *numeric("Value [95 %]"), Column("Measured"), Column("Section")]
    rows = [(claim.text, claim.verdict, tables.interval(claim), claim.measure, claim.source) for claim in claims]
    body = table(columns, rows, label="Claims", sortable=False) + paragraphs([_text("claims")])
    return Section("claims", "Claims", body)


def cells_section(run: Run[Any]) -> Section | None:
    """Each cell, and means of its variants by kind."""
    run = run.best
    frame = networks(run)
    if frame.empty:
        return None
    rows: list[tuple[object, ...]] = []
    variants: list[int] = []
    for name, of_cell in frame.groupby("cell", sort=False):
        for kind, words in KINDS.items():
            of_kind = of_cell[of_cell["kind"] == kind]
            if len(of_kind):
                variants += [len(rows)] if kind != "cell" else []
                number = f" ({len(of_kind)})" if len(of_kind) > 1 else ""
                values = [significant(of_kind[column].mean() * factor) for column, factor in _MEANS.values()]
                rows.append((name, f"{words}{number}", *values))
    columns = [Column("Cell"), Column("Kind"), *numeric(*_MEANS)]
    caption = _text("cells", threshold=tables.loss_threshold(run))
    body = table(columns, rows, label="Cells and their variants", faint=frozenset(variants), sortable=False)
    return Section("cells", "Cells and their variants", captioned(body, caption) + folded("All networks", _all(frame)))


def _all(frame: pd.DataFrame) -> str:
    columns = [Column("Cell"), Column("Kind"), *numeric("No.", *_COLUMNS), Column("Genotype", "code")]
    rows = []
    for _, row in frame.iterrows():
        values = [significant(row[column] * factor) for column, factor in _COLUMNS.values()]
        rows.append((row["cell"], KINDS[row["kind"]], row["number"], *values, row["architecture"]))
    return table(columns, rows, label="All networks")


def rates_section(run: Run[Any]) -> Section | None:
    """Convergence and accuracy of the cells at other learning rates. None with a single rate."""
    run = run.best
    factors = sorted(run.config.learning_rates)
    if len(factors) < 2 or networks(run).empty:
        return None
    rows = []
    for factor in factors:
        trained = networks(run, factor)
        for kind, words in KINDS.items():
            of_kind = trained[trained["kind"] == kind]
            if len(of_kind):
                means = (of_kind["mean_loss"].mean(), of_kind["test_accuracy"].mean() * 100)
                rows.append((significant(factor * run.config.train.lr), words, *map(significant, means)))
    columns = [*numeric("Learning rate"), Column("Kind"), *numeric("Mean loss", "Test accuracy, %")]
    body = captioned(table(columns, rows, label="Learning rates"), "Means over all cells, and over variants by kind.")
    return Section("rates", "Learning rates", body)


def linear_section(run: Run[Any]) -> Section | None:
    """The numbers of instances that satisfy the bounds."""
    bounds = run.best.table("linear", tables.BOUNDS)
    if bounds.empty:
        return None
    rows = []
    for (theorem, gradient), group in bounds.groupby(["theorem", "gradient"]):
        for form in ("printed", "corrected"):
            bounded = group[group[form].notna()]
            if bounded.empty:
                continue
            holds = bounded["measured"] <= bounded[form] * (1 + 1e-9)
            instances = holds.groupby(bounded["instance"]).all()
            ratio = (bounded["measured"] / bounded[form]).max()
            rows.append((theorem, gradient, form, f"{instances.sum()} of {len(instances)}", significant(ratio)))
    columns = [*map(Column, ("Theorem", "Gradient", "Bound")), *numeric("Instances that satisfy it", "Largest ratio")]
    cells = captioned(table(columns, rows, label="Linear cells", sortable=False), _text("linear_cells"))
    description = "Bounds and measured values, with the line of equality."
    content = figures.drawing("linear-bounds", topology_linear_bounds(run), description=description)
    body = cells + captioned(content, _text("linear_bounds"))
    return Section("linear", "Theorems 4.3 and 4.4 on linear cells", body)


# Figures: convergence, measures by width, planes around trained weights, linear cells.

_COLORS = {"cell": FOUND, "widest": GREEN, "connections": TRIAL, "operations": RANDOM}
_ORDER = ("operations", "connections", "widest", "cell")  # drawing order, the last on top
_PANEL_COLUMNS, _ROW = 3, 165  # number of panels in a row, and height of a row
_TRENDS = (
    ("mean_loss", "mean validation loss", False),
    ("rise", "rise of the loss, nats", False),
    ("plane_variance", "gradient variance", True),
    ("test_accuracy", "test accuracy, %", False),
)


def _legend(canvas: Figure, kinds: set[str]) -> None:
    handles = [Line2D([], [], color=_COLORS[kind], label=KINDS[kind], lw=2) for kind in KINDS if kind in kinds]
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def convergence_section(run: Run[Any]) -> Section:
    canvas, caption = topology_convergence(run), _text("convergence")
    description = "Validation loss of each cell and its variants by epoch."
    return figure_section("convergence", "Convergence", canvas, description=description, caption=caption)


@figure(height=400)
def topology_convergence(run: Run[Any], canvas: Figure) -> None:
    """The validation loss by epoch of each cell of a study, and of its variants. Shu 2022, Figures 4.3 and 4.5."""
    run = run.best
    table, curves = networks(run), tables.curves_of(run)
    if curves.empty or curves["validation_loss"].notna().sum() == 0:
        raise NothingToDraw("the study has no training curves yet. Resume it")
    threshold = tables.loss_threshold(run)
    cells = list(dict.fromkeys(table["cell"]))
    grid = figures.panels(canvas, len(cells), _PANEL_COLUMNS, row=_ROW, head=60, sharex=True, sharey=True)
    for axes, name in zip(grid, cells, strict=True):
        rows = table[table["cell"] == name]
        axes.axhline(threshold, color=TRIAL, lw=0.8, ls=":")
        for kind in _ORDER:
            width, alpha = (2, 1) if kind == "cell" else (1, 0.65)
            for row in rows[rows["kind"] == kind].itertuples():
                words = name if kind == "cell" else f"{name}, {KINDS[kind]} {row.number}"
                text = f"{words}: {significant(row.width)} wide, {row.depth} deep"
                for _, curve in curves[curves["architecture"] == row.architecture].groupby("trial_id"):
                    x, y = curve["epoch"].to_list(), curve["validation_loss"].clip(upper=4 * threshold).to_list()
                    marker = "o" if len(x) == 1 else None  # a single epoch has no line
                    axes.plot(x, y, color=_COLORS[kind], lw=width, alpha=alpha, marker=marker, ms=3)
                    figures.add_line_tooltip(axes, x, y, text)
        axes.set_title(name)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
        axes.set_ylim(bottom=0)
    canvas.supxlabel("epoch", fontsize=12)
    canvas.supylabel("validation loss, nats", fontsize=12)
    _legend(canvas, set(table["kind"]))


def trends_section(run: Run[Any]) -> Section:
    description = "Measures of the networks by the width of their cells."
    caption = "Networks that differ from their cell only in the connections, by the width of the normal cell."
    return figure_section("trends", "Measures by width", topology_trends(run), description=description, caption=caption)


@figure(height=400)
def topology_trends(run: Run[Any], canvas: Figure) -> None:
    """Mean loss, landscape, gradient variance and accuracy of a study's networks by the width of their cells."""
    table = connected(networks(run.best))
    measured = [trend for trend in _TRENDS if not table.empty and table[trend[0]].notna().any()]
    if not measured:
        raise NothingToDraw("the study has no measures yet. Resume it")
    grid = figures.panels(canvas, len(measured), 2, row=190, head=60)
    for axes, (column, label, in_decades) in zip(grid, measured, strict=True):
        for kind in _ORDER:
            rows = table[(table["kind"] == kind) & table[column].notna()]
            y = rows[column] * (100 if column == "test_accuracy" else 1)
            axes.scatter(rows["width"], y, s=26 if kind != "connections" else 18, color=_COLORS[kind], alpha=0.8, lw=0)
            values = zip(rows["cell"], rows["kind"], rows["number"], rows["depth"], y, strict=True)
            texts = [f"{c}, {KINDS[k]} {n}\n{d} deep: {significant(value)}" for c, k, n, d, value in values]
            figures.add_tooltips(axes, rows["width"], y, texts)
        if in_decades:
            axes.set_yscale("log")
            figures.plain(axes.yaxis)
        axes.set_title(label)
        axes.xaxis.set_major_locator(MaxNLocator(6))
    canvas.supxlabel("width of the normal cell, c", fontsize=12)
    _legend(canvas, set(table["kind"]))


_CAP = 6.0  # upper end of the color scale of a plane, nats above the center
_SQUARE_COLUMNS = 4  # number of planes in a row
_THEOREMS = {"4.3": "Theorem 4.3: smoothness", "4.4": "Theorem 4.4: variance"}


def _surroundings(run: Run[Any], column: str, nothing: str) -> list[tuple[str, pd.Series]]:
    """Name and row of each cell with a value in `column`, each followed by its narrowest and deepest variant, if any.

    nothing: the message without values. Raises: NothingToDraw.
    """
    table = connected(networks(run.best))
    if table.empty or column not in table or table[column].notna().sum() == 0:
        raise NothingToDraw(nothing)
    squares: list[tuple[str, pd.Series]] = []
    for name, rows in table[table[column].notna()].groupby("cell", sort=False):
        cells, others = rows[rows["kind"] == "cell"], rows[rows["kind"] == "connections"]
        if len(cells):
            squares.append((str(name), cells.iloc[0]))
        if len(cells) and len(others):
            narrowest = others.sort_values(["width", "depth"], ascending=[True, False]).iloc[0]
            squares.append(("narrowest variant", narrowest))
    return squares


def _squares(canvas: Figure, networks: Sequence[tuple[str, pd.Series]], half: float) -> list[Axes]:
    """A panel from -half to half per network, with its name, width and depth as title."""
    grid = figures.panels(canvas, len(networks), _SQUARE_COLUMNS, row=140, head=100, sharex=True, sharey=True)
    columns = min(_SQUARE_COLUMNS, len(networks))
    for number, (axes, (name, row)) in enumerate(zip(grid, networks, strict=True)):
        axes.set_title(f"{name}\n{significant(row['width'])} wide, {row['depth']} deep", fontsize=10)
        axes.set_aspect("equal")
        axes.grid(visible=False)
        axes.set_xticks([-half, 0, half])
        axes.set_yticks([-half, 0, half])
        axes.tick_params(labelsize=10, labelbottom=number + columns >= len(networks))
    return grid


def _bar(canvas: Figure, squares: list[Axes], drawn: Any, label: str) -> Colorbar:
    """Draws the color bar of all planes above them."""
    bar = canvas.colorbar(drawn, ax=squares, location="top", aspect=40, label=label)
    bar.outline.set_visible(False)
    return bar


def planes_section(run: Run[Any]) -> Section:
    canvas = topology_planes(run)
    try:
        description = "Standard deviation of gradients around the trained weights of each cell."
        deviations = figures.drawing("gradients", topology_gradient_planes(run), description=description)
        below = captioned(deviations, _text("gradient_planes"))
    except NothingToDraw:
        below = ""
    description = "The loss around the trained weights of each cell."
    caption = _text("planes")
    return figure_section("planes", "Loss landscapes", canvas, description=description, caption=caption, below=below)


@figure(height=400)
def topology_planes(run: Run[Any], canvas: Figure) -> None:
    """The loss on a plane of weights around each cell of a study, and around its narrowest variant. Figure 4.6."""
    cells = _surroundings(run, "plane", "the study has no planes yet. Resume it")
    if not cells:
        raise NothingToDraw("the study has no plane of an original cell. See the failures of its stage planes")
    radius = run.best.config.plane.radius
    grid, levels, drawn = _squares(canvas, cells, radius), np.linspace(0, _CAP, 13), None
    for axes, (_, row) in zip(grid, cells, strict=True):
        plane = tables.square(row["plane"])
        steps = np.linspace(-radius, radius, len(plane))
        rise = np.nan_to_num(plane - row["center"], nan=_CAP, posinf=_CAP).clip(0, _CAP)
        drawn = axes.contourf(steps, steps, rise.T, levels=levels, cmap="cividis")
        axes.contour(steps, steps, rise.T, levels=levels[1:-1], colors="white", linewidths=0.3)
    _bar(canvas, grid, drawn, "rise of the loss, nats").set_ticks([0, 2, 4, _CAP])


@figure(height=400)
def topology_gradient_planes(run: Run[Any], canvas: Figure) -> None:
    """The gradient's standard deviation around each cell of a study, and around its narrowest variant. Figure 4.7."""
    cells = _surroundings(run, "variances", "the study has no variances of gradients yet. Resume it")
    if not cells:
        raise NothingToDraw("the study has no variances around an original cell. See the failures of its stage planes")
    squares = [np.sqrt(tables.square(row["variances"]).clip(0)) for _, row in cells]
    positive = np.concatenate([square[np.isfinite(square) & (square > 0)] for square in squares])
    if not positive.size:
        raise NothingToDraw("all gradient variances of the study are 0 or missing")
    norm = LogNorm(float(positive.min()), float(positive.max()) * 1.001)
    half = run.best.config.plane.radius / 2
    grid, drawn = _squares(canvas, cells, half), None
    for axes, square in zip(grid, squares, strict=True):
        extent = (-half, half, -half, half)
        drawn = axes.imshow(np.ma.masked_invalid(square.T), origin="lower", extent=extent, norm=norm, cmap="cividis")
    figures.plain(_bar(canvas, grid, drawn, "standard deviation of the gradient").ax.xaxis)


@figure(height=330)
def topology_linear_bounds(run: Run[Any], canvas: Figure) -> None:
    """Bounds of Theorems 4.3 and 4.4, printed and corrected, and values measured on linear cells. Notes U1 and U2."""
    bounds = run.best.table("linear", tables.BOUNDS)
    if bounds.empty:
        raise NothingToDraw("the study has no linear cells. Resume it, or run it with --linear")
    narrow = bounds[bounds["gradient"] == "narrow"]
    points: dict[str, Any] = {"s": 5, "alpha": 0.35, "linewidths": 0, "rasterized": True}
    for axes, (theorem, rows) in zip(canvas.subplots(1, 2), narrow.groupby("theorem"), strict=True):
        for name, color in (("corrected", FOUND), ("printed", RANDOM)):
            above = rows[rows[name] > 0]  # a logarithmic axis has no 0
            axes.scatter(above["measured"], above[name], color=color, label=name, **points)
        axes.set(xscale="log", yscale="log", title=_THEOREMS[str(theorem)], xlabel="measured")
        low, high = rows["measured"].quantile([0.02, 1.0])  # a few saturated cells have values close to 0
        axes.set_xlim(low, high * 2)
        axes.set_ylim(low / 3, rows["corrected"].max() * 2)
        axes.axline((1, 1), (10, 10), **DASHED)
        figures.logarithmic(axes.xaxis)
        figures.logarithmic(axes.yaxis)
    canvas.axes[0].set_ylabel("bound")
    handles, names = canvas.axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside upper left", ncols=2, markerscale=3)


SECTIONS: tuple[MakeSection, ...] = (
    claims_section,
    cells_section,
    convergence_section,
    trends_section,
    planes_section,
    rates_section,
    linear_section,
    failures_section(_TABLES),
    manifest_section,
)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The cells, fastest convergence first."""
    table = networks(run.best)
    if table.empty:
        return []
    cells = table[table["kind"] == "cell"].sort_values("mean_loss")
    keys = ["cell", "width", "depth", "parameters", "mean_loss", "test_accuracy", "rise"]
    rows = [dict(zip(keys, row, strict=True)) for row in cells[keys].itertuples(index=False)]
    return [Listing.of("cells by mean loss over the epochs", rows)]


REPORT = Report[Any](
    findings=tables.findings,
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)
