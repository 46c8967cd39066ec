"""Figures of the study of validation sets: losses, hyper-gradients, points needed, and spectral solutions."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from archray.platform.methods.understanding.split.tables import (
    curves,
    excess_by_parameters,
    largest,
    measures_of,
    needed_by_parameters,
    of_problems,
    points,
    spectral_of,
)
from archray.platform.quantities import significant
from archray.platform.report.figures import (
    FOUND,
    GREEN,
    INK,
    MUTED,
    RANDOM,
    SERIES,
    TRIAL,
    NothingToDraw,
    figure,
    logarithmic,
    plain,
    tell_line,
    tell_points,
)
from archray.platform.run.run import Run
from archray.trainables.validation_split.measures import Array

_BAND = (25, 75)  # percentiles of the problems
_TICKS = 4  # on an axis of half a figure's width
_AXIS = "validation points"
_NO_EXCESS = 1e-4  # least excess that is drawn: it may be 0


@figure(height=300)
def split_losses(run: Run[Any], canvas: Figure) -> None:
    """Validation and test loss of what each size of the validation set selects, at the largest h; median and quartiles.

    Lines without points: the best architecture, equal weights, and random architectures.
    """
    frame = largest(measures_of(run))
    axes = canvas.subplots()
    sizes = sorted(int(size) for size in frame["points"].unique())
    levels = (
        ("best", "best", INK, "--"),
        ("uniform", "equal weights", MUTED, (0, (1, 2))),
        ("random", "random", TRIAL, "-."),
    )
    for column, words, colour, dashes in levels:
        value = float(np.median(of_problems(frame, column)))
        axes.axhline(value, color=colour, linewidth=1.2, linestyle=dashes, zorder=1, label=words)
        tell_line(axes, [sizes[0], sizes[-1]], [value, value], f"{words}\ntest loss {significant(value)}")
    for column, words, colour in (
        ("single_test_loss", "single activation, test", GREEN),
        ("selected_validation_loss", "selected, validation", RANDOM),
        ("selected_test_loss", "selected, test", FOUND),
    ):
        _band(axes, *curves(frame, column), colour, words)
    _log_axes(axes, sizes)
    axes.set_ylabel("mean square error")
    canvas.legend(loc="outside lower center", ncols=3)


@figure(height=290)
def split_gradients(run: Run[Any], canvas: Figure) -> None:
    """How far validation loss and hyper-gradient are from the test set's, over random architectures, at the largest h.

    The largest and the mean distance; the mean over seeds and its quartiles. Dashed: the slope of n^(-1/2).
    """
    frame = largest(measures_of(run))
    left, right = canvas.subplots(1, 2)
    for axes, what, title in ((left, "loss", "loss"), (right, "gradient", "hyper-gradient")):
        for column, words, colour in ((f"{what}_gap_sup", "largest", RANDOM), (f"{what}_gap_mean", "mean", FOUND)):
            sizes, values = curves(frame, column)
            _band(axes, sizes, values, colour, words)
        start = float(np.median(values[:, 0]))
        axes.plot(sizes, start * (np.array(sizes) / sizes[0]) ** -0.5, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        _log_axes(axes, sizes)
        axes.set_title(title)
    left.set_ylabel("distance from the test set's")
    canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2)


@figure(height=300)
def split_points_needed(run: Run[Any], canvas: Figure) -> None:
    """Excess test loss of what is selected, by validation points, a line for each h; and the points needed by h.

    Medians over seeds with quartiles on the left, 90 % of resampled seeds on the right.
    """
    sizes, excess = excess_by_parameters(run)
    left, right = canvas.subplots(1, 2)
    for (h, values), colour in zip(excess.items(), _cycle(len(excess)), strict=True):
        _band(left, sizes, np.maximum(values, _NO_EXCESS), colour, f"h = {h}")
    left.axhline(run.config.tolerance, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    _log_axes(left, sizes)
    left.set_ylabel("excess test loss")
    left.set_title("by validation points")
    needed = {h: of for h, of in needed_by_parameters(run).items() if np.isfinite(of.value)}
    for (h, of), colour in zip(needed.items(), _cycle(len(needed)), strict=True):
        high = of.high if np.isfinite(of.high) else sizes[-1]
        right.plot([h, h], [of.low, high], color=colour, linewidth=1.5)
        right.scatter([h], [of.value], s=34, color=colour, zorder=3)
    tell_points(
        right, needed, (of.value for of in needed.values()), (f"h = {h}\n{points(o)}" for h, o in needed.items())
    )
    if needed:
        h, of = next(iter(needed.items()))
        numbers = np.array(sorted(excess))
        right.plot(numbers, of.value * numbers / h, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    right.set(xscale="log", yscale="log", xlabel="architecture parameters h", ylabel="points needed")
    right.set_xticks(list(excess), [str(h) for h in excess])
    right.minorticks_off()
    plain(right.yaxis)
    right.set_title(f"within {100 * run.config.tolerance:g} % of the best")
    canvas.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(excess))


@figure(height=300)
def split_spectral(run: Run[Any], canvas: Figure) -> None:
    """The spectral solution of the upper problem beside descent on the validation loss: excess test loss by points.

    A panel for the low-rank form and one for multiple kernels, both of activations; median and quartiles over seeds.
    """
    frame = spectral_of(run)
    designs = {"activation": "low-rank form", "kernels": "multiple kernels"}
    panels = canvas.subplots(1, 2, sharey=True)
    for axes, (design, title) in zip(panels, designs.items(), strict=True):
        rows = frame[frame["design"] == design]
        if rows.empty:
            raise NothingToDraw("the run has no spectral solutions of its activations")
        for column, words, colour in (("spectral", "spectral", FOUND), ("descent", "descent", RANDOM)):
            excess = rows.assign(excess=rows[column] / rows["best"] - 1)
            sizes, values = curves(excess, "excess")
            _band(axes, sizes, np.maximum(values, _NO_EXCESS), colour, words)
        _log_axes(axes, sizes)
        axes.tick_params(labelleft=True)
        axes.set_title(title)
    panels[0].set_ylabel("excess test loss")
    canvas.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)


@figure(height=250)
def split_rank_one(run: Run[Any], canvas: Figure) -> None:
    """How near the spectral solution comes to a teacher of Gaussian features, by validation points.

    1 - cosine^2 of the angle between them, median and quartiles over seeds. Dashed: by the training points alone.
    """
    rows = spectral_of(run)
    rows = rows[rows["design"] == "gaussian"]
    if rows.empty:
        raise NothingToDraw("the run has no low-rank problems of Gaussian features")
    axes = canvas.subplots()
    sizes, values = curves(rows.assign(angle=1 - rows["cosine"] ** 2), "angle")
    _band(axes, sizes, values, FOUND, "split")
    alone = float(np.median(1 - of_problems(rows, "cosine_single") ** 2))
    axes.axhline(alone, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="training points alone")
    _log_axes(axes, sizes)
    axes.set_ylabel("1 − cosine²")
    canvas.legend(loc="outside lower center", ncols=2)


def _band(axes: Axes, sizes: Sequence[int], values: Array, colour: str, words: str) -> None:
    """The median over problems, and its quartiles."""
    middle = np.median(values, axis=0)
    low, high = np.percentile(values, _BAND, axis=0)
    axes.fill_between(sizes, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(sizes, middle, color=colour, linewidth=1.8, marker="o", markersize=3.5, label=words)
    texts = (f"{words}, {size} points\n{significant(value)}" for size, value in zip(sizes, middle, strict=True))
    tell_points(axes, sizes, middle, texts)


def _log_axes(axes: Axes, sizes: Sequence[int]) -> None:
    """Both axes logarithmic, ticks at sizes of the validation set."""
    axes.set(xscale="log", yscale="log", xlabel=_AXIS)
    shown = sizes[:: math.ceil(len(sizes) / _TICKS)]
    axes.set_xticks(shown, [str(size) for size in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    (logarithmic if high > 300 * low else plain)(axes.yaxis)


def _cycle(number: int) -> list[str]:
    return [SERIES[place % len(SERIES)] for place in range(number)]
