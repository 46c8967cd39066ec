"""The trials of a plain search in the order in which it asked for them, and the best so far, as a figure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.plain.plain_tables import Trials, names_of
from archray.platform.report.figures import FOUND, TRIAL, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.repeat_spread import draw_spread, spread_words
from archray.platform.report.section import Section, captioned
from archray.platform.run.run import Run
from archray.plurals import count

_MANY = 300  # with more trials than this, their points are drawn smaller


@figure(height=270)
def plain_best_so_far(run: Run[Any], canvas: Figure) -> None:
    """The validation accuracy of each training of a plain search, in the order of suggestion, and the best so far."""
    names, curves = names_of(run), best_of_repeats(run)
    trials = Trials.of(run.best)
    quantity = trials.quantity
    values = trials.values * quantity.factor
    axes = canvas.subplots()
    x = np.arange(1, curves.shape[1] + 1)
    mean = curves.mean(axis=0) * quantity.factor
    if len(curves) > 1:
        draw_spread(axes, x, curves * quantity.factor, curves.std(axis=0, ddof=1) * quantity.factor, FOUND, -np.inf)
    else:
        axes.scatter(
            np.arange(1, len(values) + 1),
            values,
            s=8 if len(values) > _MANY else 22,
            color=TRIAL,
            alpha=0.75,
            linewidth=0,
        )
        texts = [
            f"{number}: {names.of(name)}\n{quantity.told(value / quantity.factor)}"
            for number, (name, value) in enumerate(zip(trials.table["architecture"], values, strict=True), start=1)
        ]
        tell_points(axes, np.arange(1, len(values) + 1), values, texts)
    axes.step(x, mean, where="post", color=FOUND, linewidth=2, zorder=3)
    axes.plot(x[-1:], mean[-1:], "o", color=FOUND, markersize=4, zorder=3)
    few_ticks(axes, 8, integer=True)
    axes.set(xlabel="trainings", ylabel=quantity.axis)


def best_of_repeats(run: Run[Any]) -> np.ndarray:
    """The best value so far after each training, of each repeat: (repeats, trainings); NaN before the first value.

    A repeat with fewer trainings keeps its last. Raises: NothingToDraw if no training has a value.
    """
    searched = [trials for one in run.repeats or [run] if not (trials := Trials.of(one)).table.empty]
    values = [trials.losses for trials in searched]
    if not any(each.notna().any() for each in values):
        raise NothingToDraw("no training of this search has ended with a validation accuracy")
    length = max(map(len, values))
    rows = [pd.Series(each.to_numpy()).cummin().ffill().reindex(range(length)).ffill() for each in values]
    return np.array(rows, dtype=float) * (1 if searched[0].mode == "min" else -1)


def best_so_far_section(run: Run[Any]) -> Section:
    """The figure, and how many trainings it took."""
    canvas, curves = plain_best_so_far(run), best_of_repeats(run)
    last = curves[:, -1]
    trials = Trials.of(run.best)
    quantity, first = trials.quantity, 1 + (trials.best or 0)
    description = (
        f"Best {quantity.label} so far over {count(curves.shape[1], 'training')}; at the end {quantity.spread(last)}."
    )
    caption = "The line is the best so far"
    if len(curves) > 1:
        caption += f", the mean of {count(len(curves), 'repeat')}; {spread_words(len(curves), 'standard deviation')}."
    else:
        caption += f"; points are the trainings, in the order in which they were asked for. Training {first} of "
        caption += f"{curves.shape[1]} is the best one."
    content = drawing("progress", canvas, description=description)
    return Section("progress", "The best so far", captioned(content, caption))
