"""Training curves by epoch: trials of the search, final training runs, and architectures for comparison.

A method family defines its stages and the marking of its result once, for the figure and the section.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from archray.platform.quantities import MISSING, quantity_of
from archray.platform.report.figures import (
    FOUND,
    RANDOM,
    TRIAL,
    NothingToDraw,
    add_line_tooltip,
    evenly_spaced,
    figure_section,
    set_height,
)
from archray.platform.report.section import NamesOf, Section, ShortNames, numbers, short_names
from archray.platform.run.layout import CURVES
from archray.platform.run.run import Run
from archray.plurals import count

# A row of panels for each available quantity; the panels name the stage of an accuracy.
_METRICS = {
    "accuracy": replace(quantity_of("validation_accuracy"), label="validation accuracy"),
    "train_loss": quantity_of("train_loss"),
}
_ROW = 190  # height of a row of panels
CURVES_HEIGHT = 60 + _ROW * len(_METRICS)
_THIN = 40  # number of curves in a panel above which the lines are lighter
_MOST = 200  # number of training runs of a stage above which only some are drawn


@dataclass(frozen=True)
class StageCurves:
    """The training runs of one stage."""

    stage: str
    name: str  # name in the heading of the panel
    words: str  # text in the caption, after the number
    word: str | None = None  # text after the number 1
    in_full: bool = True  # whether they have the final schedule, and so are in the right panel
    color: str = TRIAL  # color of the lines, except for the found architecture
    accuracy: str = "validation_accuracy"  # column to draw


SEARCH = StageCurves("search", "search", "of the search", in_full=False)
FINAL = StageCurves("final", "final", "of the found architecture (final training)", color=FOUND)
BASELINE = StageCurves("baseline", "comparison", "for comparison", color=RANDOM)
OWN_SCHEDULE = (
    "Training runs of the search use a shorter learning rate schedule than the final training. The right column does "
    "not continue the curves of the left column."
)


def of_found_architecture(run: Run[Any], curves: pd.DataFrame) -> pd.Series:
    """Returns a mask of the rows that belong to the found architecture."""
    if run.architecture is None or "architecture" not in curves:
        return pd.Series(False, index=curves.index)
    return curves["architecture"] == run.architecture


@dataclass(frozen=True)
class TrainingCurves:
    """Training curves of a method family: a row of panels per metric, a column per schedule.

    `found(run, curves)` returns a mask of the rows of all curves (`stage`, `trial_id`, `architecture`, ...) to mark as
    found.
    """

    stages: Sequence[StageCurves]  # in the order of the caption
    found: Callable[[Run[Any], pd.DataFrame], pd.Series] = of_found_architecture
    others: str = "other trials"  # name in the legend of the search's training runs that were not found
    of_search: str = ""  # sentence in the caption if training runs of the search are shown
    of_both: str = ""  # sentence in the caption if other training runs are shown as well
    names_of: NamesOf = short_names  # names of the trained architectures

    def draw(self, run: Run[Any], canvas: Figure) -> None:
        """Draws the figure. Raises: NothingToDraw if no curve has a finite value."""
        frame, names = _drawn(self._curves(run)), self.names_of(run)
        metrics = [name for name in _METRICS if numbers(frame, name).notna().any()]
        panels = [panel for in_full in (False, True) if (panel := self._shown(frame, in_full=in_full))]
        set_height(canvas, CURVES_HEIGHT - _ROW * (len(_METRICS) - len(metrics)))
        grid = canvas.subplots(len(metrics), len(panels), squeeze=False, sharey="row")
        for row, metric in zip(grid, metrics, strict=True):
            for axes, panel in zip(row, panels, strict=True):
                shown = frame[frame["stage"].isin([stage_curves.stage for stage_curves in panel])]
                axes.set_visible(bool(numbers(shown, metric).notna().any()))
                _draw_panel(
                    axes, shown, metric, {stage_curves.stage: stage_curves.name for stage_curves in panel}, names
                )
            if metric == "train_loss":
                row[0].set_ylim(bottom=0)  # for the whole row, after all its lines
            first = next(axes for axes in row if axes.get_visible())
            first.set_ylabel(_METRICS[metric].axis)
            first.tick_params(labelleft=True)
        for column, panel in zip(grid.T, panels, strict=True):
            seen = [axes for axes in column if axes.get_visible()]
            *stages, last = [stage_curves.name for stage_curves in panel]
            for axes in seen[:1]:
                axes.set_title(f"{', '.join(stages)} and {last}" if stages else last)
            for axes in seen[-1:]:
                axes.set_xlabel("epoch")
        handles = self._legend(frame)
        if len(handles) > 1:
            canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))

    def section(self, run: Run[Any], canvas: Figure) -> Section:
        """Creates the section of the figure that `draw` created."""
        frame = self._curves(run)
        description = f"Curves of {count(frame['trial_id'].nunique(), 'training run')} by epoch."
        caption = self._caption(frame)
        return figure_section("curves", "Training curves", canvas, description=description, caption=caption)

    def _curves(self, run: Run[Any]) -> pd.DataFrame:
        """Returns the curves of all stages, with `stage`, `color` and `found`."""
        run = run.best
        tables = []
        for stage_curves in self.stages:
            table, labels = (
                run.table(stage_curves.stage, CURVES),
                {"stage": stage_curves.stage, "color": stage_curves.color},
            )
            if {"epoch", "trial_id"} <= set(table.columns):
                tables.append(table.assign(accuracy=numbers(table, stage_curves.accuracy), **labels))
        frame = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
        if not any(numbers(frame, name).notna().any() for name in _METRICS):
            raise NothingToDraw("no training run has finished an epoch with a finite loss or accuracy")
        return frame.assign(found=self.found(run, frame) | (frame["color"] == FOUND))

    def _shown(self, frame: pd.DataFrame, *, in_full: bool) -> list[StageCurves]:
        """Returns the stages with curves in one panel."""
        stages = set(frame["stage"])
        return [
            stage_curves
            for stage_curves in self.stages
            if stage_curves.in_full == in_full and stage_curves.stage in stages
        ]

    def _legend(self, frame: pd.DataFrame) -> list[Line2D]:
        colors = set(frame["color"])
        handles = [Line2D([], [], color=FOUND, linewidth=2.2, label="found")]
        if TRIAL in colors:
            others = "other trials" if any(t.color == TRIAL for t in self._shown(frame, in_full=True)) else self.others
            handles.append(Line2D([], [], color=TRIAL, linewidth=1.4, label=others))
        if RANDOM in colors:
            handles.append(Line2D([], [], color=RANDOM, linewidth=1.4, label="comparison"))
        return handles

    def _caption(self, frame: pd.DataFrame) -> str:
        trials = frame.drop_duplicates(["stage", "trial_id"])["stage"].value_counts()
        counted = [
            (trials[stage_curves.stage], stage_curves) for stage_curves in self.stages if stage_curves.stage in trials
        ]
        words = [
            f"{n} {stage_curves.word if stage_curves.word and n == 1 else stage_curves.words}"
            for n, stage_curves in counted
        ]
        sentences = [f"One line per training run: {', '.join(words)}."]
        if max(trials) > _MOST:
            sentences.append(f"Drawn: at most {_MOST} of a stage, evenly spaced in their order, and the found ones.")
        if self._shown(frame, in_full=False):
            sentences.append(self.of_search)
            if self._shown(frame, in_full=True):
                sentences.append(self.of_both)
        with_loss = frame[numbers(frame, "train_loss").notna().groupby(frame["stage"]).transform("any")]
        ends = with_loss.sort_values("epoch").groupby(["stage", "trial_id"]).tail(1)
        if broken := int(numbers(ends, "train_loss").isna().sum()):
            sentences.append(f"{count(broken, 'curve')} ended with a non-finite loss.")
        return " ".join(filter(None, sentences))


def _drawn(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the curves to draw: of each stage at most _MOST, evenly spaced in their order, and the found ones."""
    kept = frame["found"].copy()
    for _, trials in frame.groupby("stage", sort=False)["trial_id"]:
        several = trials.unique()
        kept[trials.index] |= trials.isin(several[evenly_spaced(len(several), _MOST)])
    return frame[kept]


def _draw_panel(axes: Axes, frame: pd.DataFrame, metric: str, stages: Mapping[str, str], names: ShortNames) -> None:
    """Draws one panel.

    Args:
        stages: display names of the stages.
    """
    quantity = _METRICS[metric]
    frame = frame.dropna(subset=["stage", "trial_id"])
    number = frame.groupby(["stage", "trial_id"], sort=False).ngroup().to_numpy()
    order = np.lexsort((numbers(frame, "epoch"), number))
    curves = np.split(order, np.flatnonzero(np.diff(number[order])) + 1)  # the rows of each curve, by epoch
    # Arrays, since the columns of a data frame are slow to read curve by curve.
    stage, color, is_found = (frame[name].to_numpy() for name in ("stage", "color", "found"))
    architecture = frame.get("architecture", pd.Series(MISSING, index=frame.index)).to_numpy()
    epoch, value = numbers(frame, "epoch").to_numpy(), numbers(frame, metric).to_numpy()
    for rows in sorted((rows for rows in curves if len(rows)), key=lambda rows: bool(is_found[rows[0]])):
        finite = rows[np.isfinite(value[rows])]
        if not len(finite):
            continue
        first, last = rows[0], finite[-1]
        found = bool(is_found[first]) and color[first] != RANDOM
        axes.plot(
            epoch[rows],
            value[rows] * quantity.factor,
            color=FOUND if found else color[first],
            linewidth=2.2 if found else 1.2,
            marker="o" if len(finite) == 1 else None,
            markersize=4,
            alpha=0.95 if found else 0.3 if len(curves) > _THIN else 0.75,
        )
        name = names.of(architecture[first])
        text = f"{stages[stage[first]]}{'' if name == MISSING else f', {name}'}"
        text += f"\n{quantity.label} {quantity.show(value[last])} in epoch {epoch[last]:.0f}"
        add_line_tooltip(axes, epoch[rows], value[rows] * quantity.factor, text)
    epochs = numbers(frame, "epoch").dropna().unique().tolist()
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True) if len(epochs) > 1 else FixedLocator(epochs))
    axes.yaxis.set_major_locator(MaxNLocator(5))
