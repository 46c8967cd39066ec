"""Figures and sections of a feature map search: accuracy, correlation, bounds. Khodak et al. 2020, Fig. 1 to 3."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.feature_maps import tables
from archray.platform.methods.feature_maps.tables import TEST, By
from archray.platform.quantities import Quantity, points_between, quantity_of, significant, whole_number
from archray.platform.report import figures
from archray.platform.report.figures import FOUND, GREEN, INK, MUTED, RANDOM, SURFACE, TRIAL, NothingToDraw, figure
from archray.platform.report.section import Column, Section, flags, folded, numbers, numeric, paragraphs, table
from archray.platform.report.statistics import spearman
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import ROUNDS
from archray.platform.run.run import Run
from archray.plurals import count

_text = texts_of(__package__)
_AXES = {"calls": "solver calls", "seconds": "seconds of featurizing, solving and scoring"}
_STEPS = 40  # number of steps up to which each step has a tooltip
_SKEWED = 8  # factor of 1 - accuracy above which the axis shows 1 - accuracy on a logarithmic scale
_LONG = 50  # ratio of the longest run to the smallest x above which the x axis is logarithmic
_FLOOR = 1e-5  # lower limit of a logarithmic axis, as a band may reach below zero


@dataclass(frozen=True)
class Line:
    """A curve in a figure: its name in the legend, its color, and its dashes (None for a solid line)."""

    label: str
    curve: tables.AccuracyCurve
    color: str = FOUND
    dashes: tuple[float, ...] | None = None


def solver_calls_section(run: Run[Any]) -> Section:
    """Figure 2, and a folded table of the solver calls of one repeat."""
    canvas, title = halving_accuracy_by_calls(run), "Test accuracy by solver calls"
    return _accuracy_section(run, "calls", "solver-calls", title, canvas, _calls(run))


def seconds_section(run: Run[Any]) -> Section:
    """Figure 3."""
    canvas, title = halving_accuracy_by_seconds(run), "Test accuracy by time"
    return _accuracy_section(run, "seconds", "seconds", title, canvas)


def _accuracy_section(run: Run[Any], by: By, anchor: str, title: str, canvas: Figure, below: str = "") -> Section:
    curve, progress = _curve(run, by), tables.progress_of(run)
    over, start, end = ("solver calls" if by == "calls" else by), TEST.show(curve.mean[0]), TEST.show(curve.mean[-1])
    mean, deviation, repeats = tables.accuracy_at(progress)
    dimension = numbers(progress, "dimension")
    caption = _text(
        "accuracy",
        by=by,
        oracle=tables.shares_solves(progress),
        features=int(dimension.max()) if dimension.notna().any() else 0,
        sizes=dimension.nunique(),
        repeats=repeats,
        spread=figures.spread_words(repeats, "standard deviation"),
        final=flags(progress, "final").any(),
        end=tables.with_deviation(mean, deviation),
        unknown=int(numbers(progress, "search_test_accuracy").isna().sum()),
        calls=len(progress),
    )
    description = f"Test accuracy by {over}, from {start} to {end}."
    return figures.figure_section(anchor, title, canvas, description=description, caption=caption, below=below)


@figure(height=310)
def halving_accuracy_by_calls(run: Run[Any], canvas: Figure) -> None:
    """Test accuracy of the best feature map so far by solver calls. Khodak et al. 2020, Figure 2."""
    _draw(run, canvas, "calls")


@figure(height=310)
def halving_accuracy_by_seconds(run: Run[Any], canvas: Figure) -> None:
    """Test accuracy of the best feature map so far by seconds of solver calls. Khodak et al. 2020, Figure 3."""
    _draw(run, canvas, "seconds")


def _draw(run: Run[Any], canvas: Figure, by: By) -> None:
    curve, axes = _curve(run, by), canvas.subplots()
    missing = draw_accuracies(axes, [Line("", curve)], by)
    end = curve.x[-1], TEST.factor * (1 - curve.mean[-1] if missing else curve.mean[-1])
    look: dict[str, Any] = {"textcoords": "offset points", "ha": "right", "fontsize": 11, "color": INK}
    axes.annotate(TEST.show(curve.mean[-1]), end, xytext=(-2, 11), **look)


def _curve(run: Run[Any], by: By) -> tables.AccuracyCurve:
    """The accuracy curve of a run. Raises: NothingToDraw without a test accuracy, or without seconds."""
    curve = tables.accuracy_curve(tables.progress_of(run), by)
    if curve is None:
        raise NothingToDraw(f"the run has no test accuracy by {by}. Use a finished run of a feature map method")
    return curve


def draw_accuracies(axes: Axes, lines: Sequence[Line], by: By) -> bool:
    """Draws step curves with bands of one standard deviation, or two repeats as points, and a point at each end.

    If 1 - accuracy falls by a large factor, the figure shows 1 - accuracy on a logarithmic axis.

    Returns: whether the figure shows 1 - accuracy.
    """
    gaps = 1 - np.concatenate([line.curve.mean for line in lines])
    missing = bool(gaps.min() > 0 and gaps.max() > _SKEWED * gaps.min())
    floor = _FLOOR * TEST.factor if missing else -math.inf
    for line in lines:
        curve, look = line.curve, (0, line.dashes) if line.dashes else "solid"
        mean, repeats = (TEST.factor * (1 - part if missing else part) for part in (curve.mean, curve.curves))
        figures.draw_spread(axes, curve.x, repeats, TEST.factor * curve.deviation, line.color, floor)
        axes.plot(
            curve.x, mean, drawstyle="steps-post", color=line.color, linewidth=2.0, linestyle=look, label=line.label
        )
        end: dict[str, Any] = {"marker": "o", "markersize": 8, "markeredgecolor": SURFACE, "linestyle": "none"}
        axes.plot(curve.x[-1:], mean[-1:], color=line.color, zorder=4, clip_on=False, **end)
        _add_tooltips(axes, line, mean, by)
    _scale(axes, lines, by, logarithmic=missing)
    axes.set_xlabel(_AXES[by])
    axes.set_ylabel(f"1 − {TEST.axis}" if missing else TEST.axis)
    return missing


def _add_tooltips(axes: Axes, line: Line, heights: np.ndarray, by: By) -> None:
    """Adds tooltips with the accuracy at each step; with many steps, only at the end. heights: (k,) on the axis."""
    x, name = line.curve.x, f"{line.label}\n" if line.label else ""
    words = [count(int(at), "solver call") if by == "calls" else f"{significant(at)} s" for at in x]
    accuracies = [f"{TEST.label} {TEST.show(mean)}" for mean in line.curve.mean]
    texts = [f"{name}{mean} after {word}" for mean, word in zip(accuracies, words, strict=True)]
    figures.add_line_tooltip(axes, x.tolist(), heights.tolist(), texts[-1])
    if len(texts) <= _STEPS:
        figures.add_tooltips(axes, x, heights, texts)


def _scale(axes: Axes, lines: Sequence[Line], by: By, *, logarithmic: bool) -> None:
    starts, ends = [line.curve.x[0] for line in lines], [line.curve.x[-1] for line in lines]
    if logarithmic:
        axes.set_yscale("log")
        figures.plain(axes.yaxis)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6))
    if len(lines) > 1 and min(starts) > 0 and max(ends) > _LONG * min(starts):
        axes.set_xscale("log")
        figures.plain(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=by == "calls"))


def _calls(run: Run[Any]) -> str:
    """The folded table of the solver calls of the repeat that selected the map."""
    progress = tables.progress_of(run)
    repeat, frame = tables.found_repeat(run, progress)
    headings = {"calls": "Call", "dimension": "Dimension", "candidates": "Maps left"}
    counted = [name for name in headings if numbers(frame, name).notna().any()]
    names = tables.names_of(run)
    columns = numeric(*(headings[name] for name in counted))
    columns += [Column("Best so far", "name"), *numeric(TEST.heading, "Score", "Seconds")]
    score, accuracy, seconds = (numbers(frame, name) for name in ("score", "search_test_accuracy", "seconds"))
    rows = [
        (
            *(whole_number(numbers(frame, name)[i]) for name in counted),
            names.of(frame["architecture"][i]),
            TEST.bare(accuracy[i]),
            significant(score[i], 4),
            significant(seconds[i]),
        )
        for i in frame.index
    ]
    final = np.flatnonzero(flags(frame, "final"))
    label, marked = "Solver calls with the best feature map so far", int(final[-1]) if final.size else None
    summary = f"Solver calls of repeat {repeat}" if progress["repeat"].nunique() > 1 else "Solver calls"
    return folded(summary, table(columns, rows, label=label, marked=marked))


_SIDES = ("shared_accuracy", "standalone_accuracy")
_SHARED, _ALONE = map(quantity_of, _SIDES)
_RHO = Quantity("rank correlation", "", 1.0, 2)
_PANEL = {1: 330, 2: 235}  # height of a row by its number of panels


@dataclass(frozen=True)
class Panel:
    """The maps of one dimension and kind of bases."""

    bases: str  # `shared` or `independent`
    dimension: int
    rows: pd.DataFrame  # `architecture`, `shared_accuracy`, `standalone_accuracy` of the maps in all repeats; finite
    rho: pd.Series  # Spearman's rho of each repeat; NaN with fewer than three maps, or with constant values
    maps: int  # the largest number of maps in a repeat


def correlation_section(run: Run[Any]) -> Section:
    """A panel per dimension and kind of bases, and a table of the correlations."""
    correlation = run.pooled("correlation", tables.CORRELATION)
    panels = correlation_panels(correlation)
    described = ", ".join(f"{_RHO.bare(p.rho.mean())} at {p.dimension} with {p.bases} bases" for p in panels)
    caption = _text(
        "correlation",
        repeats=max(panel.rho.size for panel in panels),
        blue=any((panel.rows["architecture"] == run.best.architecture).any() for panel in panels),
        independent=any(panel.bases == "independent" for panel in panels),
        lost=len(correlation) - sum(len(panel.rows) for panel in panels),
    )
    return figures.figure_section(
        "correlation",
        "Accuracy with shared and standalone weights",
        shared_against_standalone(run),
        description=f"Validation accuracy with shared and standalone weights; Spearman's rho {described}.",
        caption=caption,
        below=_table(panels),
    )


@figure(height=_PANEL[1])
def shared_against_standalone(run: Run[Any], canvas: Figure) -> None:
    """Standalone accuracy by shared-weights accuracy of feature maps, a panel per dimension and kind of bases.

    The panels of each kind of bases start a new row. All panels have the same axes. Khodak et al. 2020, Figure 1.
    """
    panels, best = correlation_panels(run.pooled("correlation", tables.CORRELATION)), run.best.architecture
    kinds = Counter(panel.bases for panel in panels)
    columns = min(2, max(kinds.values()))
    places: list[Panel | None] = []
    for kind in kinds:
        places += [panel for panel in panels if panel.bases == kind]
        places += [None] * (-len(places) % columns)
    rows = len(places) // columns
    figures.set_height(canvas, 30 + _PANEL[columns] * rows)
    grid = canvas.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    values = _SHARED.factor * np.concatenate([panel.rows[list(_SIDES)].to_numpy().ravel() for panel in panels])
    low, high = float(values.min()), float(values.max())
    margin = max(0.04 * (high - low), 0.5)
    for axes, panel in zip(grid.flat, places, strict=True):
        if panel is None:
            axes.set_visible(False)
            continue
        _draw_panel(axes, panel, best, several=len(kinds) > 1)
        axes.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin))
        figures.few_ticks(axes, 5)
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
            "the run does not compare shared with standalone accuracies. Run halving with correlation.maps"
        )
    panels = []
    for bases in sorted(frame["bases"].unique(), reverse=True):
        kind = frame[frame["bases"] == bases]
        for dimension, rows in kind.groupby("dimension"):
            repeats = [repeat for _, repeat in rows.groupby("repeat")]
            rho = pd.Series([spearman(*repeat[list(_SIDES)].to_numpy(float).T) for repeat in repeats])
            panels.append(Panel(str(bases), int(dimension), rows, rho, max(map(len, repeats))))
    return panels


def _draw_panel(axes: Axes, panel: Panel, best: str | None, several: bool) -> None:
    x, y = (panel.rows[side] * quantity_of(side).factor for side in _SIDES)
    axes.axline((0, 0), slope=1, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    axes.scatter(x, y, s=26, color=TRIAL, edgecolor=SURFACE, linewidth=0.5, alpha=0.8, zorder=2, clip_on=False)
    shown = zip(panel.rows["architecture"], x, y, strict=True)
    texts = [f"{name}\nshared weights {one:.2f} %, standalone {other:.2f} %" for name, one, other in shown]
    figures.add_tooltips(axes, x, y, texts)
    blue = panel.rows["architecture"] == best
    axes.scatter(x[blue], y[blue], s=52, color=FOUND, edgecolor=SURFACE, linewidth=0.8, zorder=3, clip_on=False)
    where = f", {panel.bases}" if several else ""
    rho = _RHO.bare(panel.rho.mean())
    axes.set_title(f"{whole_number(panel.dimension)} features{where}\nρ = {rho}, {count(panel.maps, 'map')}")


def _table(panels: Sequence[Panel]) -> str:
    several = max(panel.rho.size for panel in panels) > 1
    columns = [Column("Bases")]
    columns += numeric("Features", "Maps", "Spearman's ρ", *(["Standard deviation", "Repeats"] if several else []))
    rows = []
    for panel in panels:
        row: list[object] = [panel.bases, whole_number(panel.dimension), panel.maps, _RHO.bare(panel.rho.mean())]
        rows.append(row + ([_RHO.bare(panel.rho.std()), panel.rho.count()] if several else []))
    return table(columns, rows, label="Rank correlation of shared and standalone accuracy")


_ERROR = Quantity("error", "percentage points", 100.0, 2)
_LOSS = Quantity("loss", "", 1.0, 3)
_LINES = (
    ("bound", FOUND, "solid", "log |C| of the round"),
    ("reused", GREEN, (0, (6, 2)), "same samples in every round"),
    ("alone", MUTED, (0, (2, 2)), "no selection, |C| = 1"),
)  # column, color, dashes, label


def generalization_section(run: Run[Any]) -> Section:
    """Bounds and measured gaps by round, bounds and gap of the winner, and the rates of the corollaries."""
    gaps = _gaps(run)
    errors = gaps[gaps["loss"] == "error"]
    below = paragraphs(_gap_sentences(run, gaps)) + _rounds_table(errors, _ERROR)
    clipped = gaps[gaps["loss"] == "clipped"]
    summary = f"Gaps and bounds of the solver's clipped loss, between 0 and {significant(clipped['B'].max())}"
    below += folded(summary, _rounds_table(clipped, _LOSS)) if len(clipped) else ""
    return figures.figure_section(
        "generalization",
        "Generalization gap of the selection",
        halving_generalization(run),
        description=f"Test minus validation error, at most {_ERROR.show(errors['gap'].max())}, and its bounds, at "
        f"least {_ERROR.show(errors['alone'].min())}.",
        caption=_text("generalization", delta=tables.DELTA, shared=gaps["shared"].any()),
        below=below + _rates(errors),
    )


@figure(height=330)
def halving_generalization(run: Run[Any], canvas: Figure) -> None:
    """Test minus validation error of the selection in each round of a feature map search, and bounds of Theorem 3.1.

    Khodak et al. 2020.
    """
    gaps = _gaps(run)
    gaps = gaps[gaps["loss"] == "error"]
    places = {key: place for place, key in enumerate(sorted(set(zip(gaps["round"], gaps["shared"], strict=True))))}
    x = np.array([places[key] for key in zip(gaps["round"], gaps["shared"], strict=True)])
    axes = canvas.subplots()
    for column, color, dashes, label in _LINES:
        if column == "reused" and not gaps["shared"].any():
            continue
        height = [_ERROR.factor * gaps[column][x == place].mean() for place in places.values()]
        axes.plot(list(places.values()), height, color=color, linestyle=dashes, marker="o", markersize=4, label=label)
    measured = _ERROR.factor * gaps["gap"].to_numpy()
    axes.scatter(x, measured, s=26, color=RANDOM, zorder=3, label="measured")
    texts = [
        f"round {row['round']}, {count(row['candidates'], 'candidate')}: test − validation {_ERROR.show(row['gap'])}"
        for row in gaps.to_dict("records")
    ]
    figures.add_tooltips(axes, x, measured, texts)
    axes.axhline(0, color=INK, linewidth=0.8, zorder=1)
    sizes = [gaps["candidates"][x == place].iloc[0] for place in places.values()]
    ends = ["\nwinner" if not shared else "" for _, shared in places]
    axes.set_xticks(list(places.values()), [f"{size}{end}" for size, end in zip(sizes, ends, strict=True)])
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xlabel("number of candidates")
    axes.set_ylabel("test − validation error (percentage points)")
    canvas.legend(loc="outside upper left", ncols=2)


def _gaps(run: Run[Any]) -> pd.DataFrame:
    """The gaps of a run. Raises: NothingToDraw without test and validation losses of the selection."""
    gaps = tables.selection_gaps(run)
    if gaps.empty:
        raise NothingToDraw("the search has no test and validation errors of its leaders. Run it again")
    return gaps


def _gap_sentences(run: Run[Any], gaps: pd.DataFrame) -> Iterator[str]:
    """Text about the measured gaps of the 0-1 loss, their bounds, and the excess error of the winner."""
    errors = gaps[gaps["loss"] == "error"]
    winner = errors[errors["winner"]]
    means = winner.mean(numeric_only=True)
    of_winner = {
        **{key: _ERROR.show(means[key]) for key in ("gap", "bound", "alone", "hoeffding")},
        "vacuous": means["bound"] >= 1,
        "guarantee": _ERROR.bare((winner["validation"] + winner["bound"]).mean()),
        "test": _ERROR.bare(means["test"]),
        "selecting": _ERROR.show(means["bound"] - means["alone"]),
    }
    broken, vacuous = int((errors["gap"] > errors["reused"]).sum()), errors[errors["bound"] >= 1]["round"].nunique()
    yield _text("gaps", gaps=len(errors), broken=broken, winner=of_winner if len(winner) else None, vacuous=vacuous)
    points = int(errors["test_points"].max())
    distance = _ERROR.show(tables.gap_bound(1.0, points, np.log(2)) / 2)
    yield _text("risk", points=points, distance=distance, delta=tables.DELTA)
    excess = tables.excess_errors(run)
    if len(excess) and len(winner):
        solved, candidates = int(excess["known"].max()), int(excess["of"].max())
        yield _text(
            "excess",
            excess=points_between(excess["excess"].mean()),
            solved=solved,
            bound=_ERROR.show(means["selection"]),
            candidates=candidates if solved < candidates and run.table("search", ROUNDS).size else 0,
            # whether the 0-1 loss of standalone solves selected the map
            proved=run.config.solve.score == "accuracy" and not (winner["round"] > 1).any(),
        )


def _rounds_table(gaps: pd.DataFrame, quantity: Quantity) -> str:
    headings = ["Candidates", "Validation samples", "Measured gap", "Largest", "Bound", "No selection"]
    reuses = gaps["shared"].any()
    columns = [Column("Selected"), *numeric(*headings, *(["Samples reused"] if reuses else []))]
    rows = []
    for (number, winner), of_round in gaps.groupby(["round", "winner"], sort=True):
        size = of_round["candidates"].iloc[0]
        row = [
            "winner" if winner else f"round {number}",
            whole_number(size),
            whole_number(of_round["points"].mean()),
            quantity.spread(of_round["gap"]).removesuffix(f" {quantity.unit}"),
            quantity.bare(of_round["gap"].max()),
            *(quantity.bare(of_round[name].mean()) for name in ("bound", "alone")),
        ]
        rows.append(row + ([quantity.bare(of_round["reused"].mean())] if reuses else []))
    return table(columns, rows, label=f"Measured gaps and bounds, {quantity.axis}", sortable=False)


def _rates(errors: pd.DataFrame) -> str:
    """The terms of Corollaries 3.1 and 3.2 for the winner."""
    winner = errors[errors["winner"]]
    if winner.empty:
        return ""
    row, size = winner.mean(numeric_only=True), int(winner["candidates"].iloc[0])
    norm, trained, points = row["weight_norm"], row["train_points"], row["points"]
    rows = [
        ("3.1 (Lipschitz loss)", "√((‖w‖² + 1)/|T| log 1/δ)", tables.weights_rate(norm, trained)),
        ("3.2 (random Fourier features, square loss)", "log²(1/δ)/√|T|", tables.kernel_rate(trained)),
        ("both", "√(1/|V| log((|C| + 1)/δ))", tables.validation_rate(points, size)),
        ("both, one candidate", "√(1/|V| log(2/δ))", tables.validation_rate(points, 1)),
    ]
    columns = [Column("Corollary"), Column("Term"), *numeric("Value")]
    text = _text("rates", norm=norm, points=trained)
    cells = [(name, term, significant(value)) for name, term, value in rows]
    return folded("Rates of the corollaries", paragraphs([text]) + table(columns, cells, label="Rates", sortable=False))
