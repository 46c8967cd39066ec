"""The trials of a plain search in the order in which it asked for them, and the best so far, as a figure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.plain.plain_tables import ASKED, VALUE, names_of, values_of
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
    trials = run.best.table(*ASKED)
    values = values_of(trials) * VALUE.factor
    axes = canvas.subplots()
    x = np.arange(1, curves.shape[1] + 1)
    mean = curves.mean(axis=0) * VALUE.factor
    if len(curves) > 1:
        draw_spread(axes, x, curves * VALUE.factor, curves.std(axis=0, ddof=1) * VALUE.factor, FOUND, -np.inf)
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
            f"{number}: {names.of(name)}\n{VALUE.label} {value:.2f} %"
            for number, (name, value) in enumerate(zip(trials["architecture"], values, strict=True), start=1)
        ]
        tell_points(axes, np.arange(1, len(values) + 1), values, texts)
    axes.step(x, mean, where="post", color=FOUND, linewidth=2, zorder=3)
    axes.plot(x[-1:], mean[-1:], "o", color=FOUND, markersize=4, zorder=3)
    few_ticks(axes, 8, integer=True)
    axes.set(xlabel="trainings", ylabel=VALUE.axis)


def best_of_repeats(run: Run[Any]) -> np.ndarray:
    """The best value so far after each training, of each repeat: (repeats, trainings); NaN before the first value.

    A repeat with fewer trainings keeps its last. Raises: NothingToDraw if no training has a value.
    """
    tables = [table for one in run.repeats or [run] if not (table := one.table(*ASKED)).empty]
    values = [values_of(table) for table in tables]
    if not any(each.notna().any() for each in values):
        raise NothingToDraw("no training of this search has ended with a validation accuracy")
    length = max(map(len, values))
    rows = [pd.Series(each.to_numpy()).cummax().ffill().reindex(range(length)).ffill() for each in values]
    return np.array(rows, dtype=float)


def best_so_far_section(run: Run[Any]) -> Section:
    """The figure, and how many trainings it took."""
    canvas, curves = plain_best_so_far(run), best_of_repeats(run)
    last = curves[:, -1]
    first = int(np.nanargmax(best_of_repeats(run.best)[0])) + 1
    description = (
        f"Best {VALUE.label} so far over {count(curves.shape[1], 'training')}; at the end {VALUE.spread(last)}."
    )
    caption = "The line is the best so far"
    if len(curves) > 1:
        caption += f", the mean of {count(len(curves), 'repeat')}; {spread_words(len(curves), 'standard deviation')}."
    else:
        caption += f"; points are the trainings, in the order in which they were asked for. Training {first} of "
        caption += f"{curves.shape[1]} is the best one."
    content = drawing("progress", canvas, description=description)
    return Section("progress", "The best so far", captioned(content, caption))
