"""Test accuracy of what was found beside random architectures trained with the same budget."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.report.network_size import network_size
from archray.platform.report.plot import FOUND, INK, RANDOM, SURFACE, Size, plot
from archray.platform.report.quantity import Quantity, count, finite_values
from archray.platform.report.section import Section, figure
from archray.platform.report.view import RunView, failures, numbers

_TEST = Quantity.of("test_accuracy")
_POINT = 8.0  # diameter of a point in pixels


def comparison_section(view: RunView) -> Section | None:
    """A row of points for the found architecture's seeds, one for the random ones. Nothing without either."""
    found = finite_values(numbers(view.final, "test_accuracy"))
    random = finite_values(numbers(view.baseline, "test_accuracy"))
    if found.size == 0 and random.size == 0:
        return None

    def draw(canvas: Figure, narrow: bool) -> None:
        axes = canvas.subplots()
        draw_strips(
            axes, [("found", found, FOUND, "o"), ("random", random, RANDOM, "D")], _TEST, width=260 if narrow else 620
        )

    description = f"Test accuracy. Found: {_TEST.spread(found)}. Random: {_TEST.spread(random)}."
    drawing = plot("comparison", draw, description=description, wide=Size(760, 220), narrow=Size(350, 230))
    return Section("comparison", "Against random architectures", figure(drawing, _caption(view, found, random)))


def _caption(view: RunView, found: np.ndarray, random: np.ndarray) -> str:
    parts = []
    if found.size:
        parts.append(f"Circles: the found architecture, {count(found.size, 'final training')}, each with its own seed.")
    if random.size:
        parts.append(
            f"Diamonds: {count(random.size, 'architecture')} drawn at random from the same space, "
            "trained with the same budget, settings and data."
        )
    parts.append("The vertical stroke is the mean; ± is the standard deviation of the points, not of the mean.")
    if found.size and random.size:
        beaten = int((random < found.mean()).sum())
        share = f"all {random.size}" if beaten == random.size > 1 else f"{beaten} of the {random.size}"
        parts.append(f"The found architecture's mean is above {share}.")
    if found.size == 1:
        parts.append("With one final seed, the spread between seeds is not known.")
    size, random_size = network_size(view.final), network_size(view.baseline)
    if size:
        parts.append(
            f"The found network has {size}" + (f"; a random one {random_size} on average." if random_size else ".")
        )
    failed = int(failures(view.baseline).notna().sum())
    if failed:
        parts.append(
            f"{count(failed, 'random architecture')} failed to train and {'is' if failed == 1 else 'are'} left out."
        )
    return " ".join(parts)


def draw_strips(
    axes: Axes, groups: list[tuple[str, np.ndarray, str, str]], quantity: Quantity, *, width: float
) -> None:
    """A strip of points per group, first at the top, with mean and spread written above it.

    Args:
        groups: label, values (n,), colour and marker of each.
        width: of the axes in pixels, about; points nearer to each other than their size are set apart vertically.
    """
    groups = [group for group in groups if group[1].size]
    everything = np.concatenate([values for _, values, _, _ in groups]) * quantity.factor
    low, high = float(everything.min()), float(everything.max())
    margin = max((high - low) * 0.06, 0.25 if quantity.unit == "%" else abs(high) * 0.02, 1e-9)
    low, high = low - margin, high + margin
    for row, (_, values, colour, marker) in enumerate(groups):
        shown = np.sort(values) * quantity.factor
        lift = dodge(shown, (high - low) * _POINT / width)
        axes.scatter(
            shown,
            row + lift * 0.11,
            s=_POINT**2 * 0.8,
            marker=marker,
            color=colour,
            edgecolor=SURFACE,
            linewidth=0.8,
            alpha=0.9,
            zorder=3,
        )
        axes.plot([shown.mean()] * 2, [row - 0.27, row + 0.27], color=INK, linewidth=1.6, zorder=4)
        axes.annotate(
            f"{quantity.spread(values)} · n = {values.size}",
            (shown.mean(), row - 0.31),
            xytext=(0, 0),
            textcoords="offset points",
            ha=_side(shown.mean(), low, high),
            va="bottom",
            fontsize=11,
            color=INK,
        )
    axes.set_yticks(range(len(groups)), [label for label, *_ in groups])
    axes.set_ylim(len(groups) - 0.55, -0.7)
    axes.set_xlim(low, high)
    axes.set_xlabel(quantity.axis)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0, labelsize=12)
    axes.spines["left"].set_visible(False)


def dodge(values: np.ndarray, size: float) -> np.ndarray:
    """Vertical steps (n,), 0, 1, -1, 2, ..., that keep sorted values nearer than `size` from covering each other."""
    steps = np.zeros(values.size)
    order = [0, 1, -1, 2, -2]
    for i in range(1, values.size):
        near = {steps[j] for j in range(i) if values[i] - values[j] < size}
        steps[i] = next((step for step in order if step not in near), 0)
    return steps


def _side(value: float, low: float, high: float) -> str:
    """The alignment that keeps a label at `value` inside the axes."""
    place = (value - low) / (high - low)
    return "left" if place < 0.25 else "right" if place > 0.75 else "center"
