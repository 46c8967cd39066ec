"""The architectures that were scored with shared weights: how their accuracies spread, and where the found one is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from archray.platform.methods.supernets.search_seeds import FOUND_CELLS, SCORES, supernets
from archray.platform.quantities import as_float, quantity_of, whole_number
from archray.platform.report.figures import FOUND, SURFACE, TRIAL, NothingToDraw, drawing, figure, set_height
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Section, captioned, numeric, table
from archray.platform.report.table_columns import finite_values, numbers
from archray.platform.run.run import Run
from archray.plurals import count

_ACCURACY = quantity_of("shared_accuracy")
_MOST = 10  # supernets that are drawn; the table has all
_BINS = 40
_AXIS, _ROW = 85, 56  # heights, of the axis below and of a supernet's row


@dataclass(frozen=True)
class Scored:
    """What one supernet scored."""

    seed: str
    accuracies: np.ndarray  # (n,) finite ones, fractions
    lost: int  # how many architectures have none
    found: float  # the accuracy of what this search found; NaN if it is not among the scored ones
    chosen: bool  # whether that is what the run chose


def shared_scores_section(run: Run[Any]) -> Section:
    """A histogram per supernet, one above the other, and a table."""
    scored = scored_supernets(run)
    shown = _drawn(scored)
    size = sum(supernet.accuracies.size for supernet in shown)
    histograms = drawing(
        "shared-scores",
        supernet_shared_scores(run),
        description=f"Accuracy with shared weights of {count(size, 'scored architecture')}, by search seed.",
    )
    body = captioned(histograms, _caption(shown, len(scored))) + _table(scored)
    return Section("shared-scores", "Scores with shared weights", body)


@figure(height=_AXIS + 150)
def supernet_shared_scores(run: Run[Any], canvas: Figure) -> None:
    """How the accuracies of the architectures scored with shared weights spread, a histogram per supernet."""
    shown = _drawn(scored_supernets(run))
    set_height(canvas, _AXIS + max(_ROW * len(shown), 150))
    values = np.concatenate([supernet.accuracies for supernet in shown]) * _ACCURACY.factor  # in percent
    margin = max(0.02 * float(np.ptp(values)), 0.25)
    edges = np.linspace(float(values.min()) - margin, float(values.max()) + margin, _BINS + 1)
    rows = np.ravel(canvas.subplots(len(shown), 1, sharex=True))
    for axes, supernet in zip(rows, shown, strict=True):
        heights, _ = np.histogram(supernet.accuracies * _ACCURACY.factor, edges)
        axes.stairs(heights, edges, fill=True, color=TRIAL, alpha=0.55, linewidth=0)
        if math.isfinite(supernet.found):
            place = supernet.found * _ACCURACY.factor
            axes.axvline(place, color=FOUND, linewidth=1.2, alpha=0.95 if supernet.chosen else 0.6, zorder=2)
            axes.plot([place], [0], "o", markersize=7, color=FOUND, markeredgecolor=SURFACE, clip_on=False, zorder=3)
            tell_points(axes, [place], [0], [f"found by seed {supernet.seed}\n{_ACCURACY.label} {place:.2f} %"])
        axes.set(ylim=(0, 1.05 * max(int(heights.max()), 1)), xlim=(edges[0], edges[-1]), yticks=[])
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(False)
        if len(shown) > 1:
            axes.set_ylabel(supernet.seed, rotation=0, ha="right", va="center", fontsize=11)
    rows[-1].set_xlabel(_ACCURACY.axis)


def scored_supernets(run: Run[Any]) -> list[Scored]:
    """What each supernet scored, in order; empty for a method that scores none."""
    run = run.best
    scores, cells = run.table("search", SCORES), run.table("search", FOUND_CELLS)
    if scores.empty:
        return []
    firsts = cells.drop_duplicates("trial_id")  # of several candidates of one supernet the best
    found = dict(zip(firsts["trial_id"], firsts["architecture"], strict=True))
    scored = []
    for net in supernets(run, scores):
        accuracy = numbers(net.rows, "shared_accuracy")
        own = accuracy[net.rows["architecture"] == found.get(net.rows["trial_id"].iloc[0])].dropna()
        scored.append(
            Scored(
                net.seed,
                finite_values(accuracy),
                int(accuracy.isna().sum()),
                as_float(own.iloc[0]) if len(own) else math.nan,
                net.chosen,
            )
        )
    return scored


def _drawn(scored: Sequence[Scored]) -> list[Scored]:
    """Raises: NothingToDraw without a finite accuracy."""
    drawn = [supernet for supernet in scored if supernet.accuracies.size][:_MOST]
    if not drawn:
        raise NothingToDraw("the run has scored no architectures with shared weights; it needs a search by rs-ws")
    return drawn


def _caption(shown: Sequence[Scored], number: int) -> str:
    text = "How the validation accuracies of the scored architectures spread, each with the weights of the supernet."
    if len(shown) > 1:
        text += " A row per search seed, each to its own height."
    if number > len(shown):
        text += f" {len(shown)} of {number} are drawn."
    if any(math.isfinite(supernet.found) for supernet in shown):
        text += " Blue: what the search found."
    return text


def _table(scored: Sequence[Scored]) -> str:
    lost = any(supernet.lost for supernet in scored)
    headings = ("Seed", "Scored", *(["Without a score"] if lost else []), "Median (%)", "Best (%)", "Found (%)")
    rows = [
        (
            supernet.seed,
            whole_number(supernet.accuracies.size),
            *([whole_number(supernet.lost)] if lost else []),
            _ACCURACY.bare(np.median(supernet.accuracies) if supernet.accuracies.size else math.nan),
            _ACCURACY.bare(supernet.accuracies.max() if supernet.accuracies.size else math.nan),
            _ACCURACY.bare(supernet.found),
        )
        for supernet in scored
    ]
    marked = next((place for place, supernet in enumerate(scored) if supernet.chosen), None)
    return table(numeric(*headings), rows, label="Scores with shared weights by search seed", marked=marked)
