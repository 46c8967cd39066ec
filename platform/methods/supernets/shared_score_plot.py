"""The architectures that were scored with shared weights: how their accuracies spread, and where the found one is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.supernets.search_seeds import seed_columns, several_repeats, supernets, with_repeat
from archray.platform.report.plot import FOUND, SURFACE, TRIAL, Size, plot
from archray.platform.report.quantity import Quantity, as_float, count, finite_values, whole_number
from archray.platform.report.section import Column, Section, figure, table
from archray.platform.report.view import RunView, numbers

_ACCURACY = Quantity.of("accuracy")
_MOST = 10  # supernets that are drawn; the table has all
_BINS = 40


@dataclass(frozen=True)
class Scored:
    """What one supernet scored.

    Args:
        accuracies: (n,) finite ones, fractions.
        lost: how many architectures have none.
        found: the accuracy of what this search found; NaN if it is not among the scored ones.
        chosen: whether that is what the run chose.
    """

    repeat: object
    seed: str
    accuracies: np.ndarray
    lost: int
    found: float
    chosen: bool


def shared_scores_section(view: RunView) -> Section | None:
    """A histogram per supernet, one above the other, and a table. Nothing without a finite accuracy."""
    scored = scored_supernets(view)
    shown = [each for each in scored if each.accuracies.size][:_MOST]
    if not shown:
        return None

    def draw(canvas: Figure, narrow: bool) -> None:
        low, high = _range(shown)
        edges = np.linspace(low, high, _BINS + 1) if not narrow else np.linspace(low, high, _BINS // 2 + 1)
        for axes, each in zip(np.ravel(canvas.subplots(len(shown), 1, sharex=True)), shown, strict=True):
            _draw_row(axes, each, edges)
            if len(shown) > 1:
                axes.set_ylabel(each.seed, rotation=0, ha="right", va="center", fontsize=11)
        axes.set_xlabel("validation accuracy with shared weights (%)" if not narrow else "shared weights (%)")

    size = sum(each.accuracies.size for each in shown)
    drawing = plot(
        "shared-scores",
        draw,
        description=f"Accuracy with shared weights of {count(size, 'scored architecture')}, by search seed.",
        wide=Size(760, 90 + max(58 * len(shown), 150)),
        narrow=Size(350, 80 + max(54 * len(shown), 150)),
    )
    return Section(
        "shared-scores",
        "Scores with shared weights",
        figure(drawing, _caption(shown, len(scored))) + _table(scored, several_repeats(view.scores)),
    )


def scored_supernets(view: RunView) -> list[Scored]:
    """What each supernet scored, in order; empty for a method that scores none."""
    if "accuracy" not in view.scores or "architecture" not in view.scores:
        return []
    found = {}
    if {"trial_id", "architecture"} <= set(view.found.columns):
        for row in with_repeat(view.found).to_dict("records"):
            found[row["repeat"], row["trial_id"]] = row["architecture"]
    told = []
    for net in supernets(view, view.scores):
        accuracy = numbers(net.rows, "accuracy")
        own = accuracy[net.rows["architecture"] == found.get((net.repeat, net.rows["trial_id"].iloc[0]))].dropna()
        told.append(
            Scored(
                net.repeat,
                net.seed,
                finite_values(accuracy),
                int(accuracy.isna().sum()),
                as_float(own.iloc[0]) if len(own) else math.nan,
                net.chosen,
            )
        )
    return told


def _range(shown: list[Scored]) -> tuple[float, float]:
    """The limits of the common axis in percent."""
    values = np.concatenate([each.accuracies for each in shown]) * _ACCURACY.factor
    margin = max(0.02 * float(np.ptp(values)), 0.25)
    return float(values.min()) - margin, float(values.max()) + margin


def _draw_row(axes: Axes, each: Scored, edges: np.ndarray) -> None:
    heights, _ = np.histogram(each.accuracies * _ACCURACY.factor, edges)
    axes.stairs(heights, edges, fill=True, color=TRIAL, alpha=0.55, linewidth=0)
    if math.isfinite(each.found):
        place = each.found * _ACCURACY.factor
        axes.axvline(place, color=FOUND, linewidth=1.2, alpha=0.95 if each.chosen else 0.6, zorder=2)
        axes.plot([place], [0], "o", markersize=7, color=FOUND, markeredgecolor=SURFACE, clip_on=False, zorder=3)
    axes.set(ylim=(0, 1.05 * max(int(heights.max()), 1)), xlim=(edges[0], edges[-1]), yticks=[])
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)


def _caption(shown: list[Scored], supernets: int) -> str:
    text = "How the validation accuracies of the scored architectures spread, each with the weights of the supernet."
    if len(shown) > 1:
        text += " A row per search seed, each to its own height."
    if supernets > len(shown):
        text += f" {len(shown)} of {supernets} are drawn."
    if any(math.isfinite(each.found) for each in shown):
        text += " Blue: what the search found."
    return text


def _table(scored: list[Scored], several: bool) -> str:
    lost = any(each.lost for each in scored)
    columns = [*seed_columns(several), Column("Scored", "number")]
    columns += [Column("Without a score", "number")] if lost else []
    columns += [Column(heading, "number") for heading in ("Median (%)", "Best (%)", "Found (%)")]
    rows = [
        (
            *([each.repeat] if several else []),
            each.seed,
            whole_number(each.accuracies.size),
            *([whole_number(each.lost)] if lost else []),
            _ACCURACY.bare(np.median(each.accuracies) if each.accuracies.size else math.nan),
            _ACCURACY.bare(each.accuracies.max() if each.accuracies.size else math.nan),
            _ACCURACY.bare(each.found),
        )
        for each in scored
    ]
    marked = next((place for place, each in enumerate(scored) if each.chosen), None)
    return table(columns, rows, label="Scores with shared weights by search seed", marked=marked)
