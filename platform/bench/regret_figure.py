"""How far the best so far is from the best of the table, over what the search has spent: the figure of a bench."""

from __future__ import annotations

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.bench.bench_result import BenchResult
from archray.platform.bench.bench_tables import title_of
from archray.platform.bench.entrants import RANDOM_SEARCH
from archray.platform.quantities import significant
from archray.platform.report.figures import (
    FOUND,
    GREEN,
    INDIGO,
    PINK,
    RANDOM,
    TRIAL,
    drawing,
    figure,
    plain,
    set_height,
)
from archray.platform.report.pointed_at import tell_line
from archray.platform.report.section import Section, captioned
from archray.plurals import count

_COLOURS = (FOUND, GREEN, PINK, INDIGO)
_DASHES: tuple[Literal["-", "--", ":", "-."], ...] = ("-", "--", ":", "-.")
_HEIGHT, _LINE = 390, 17  # of the two panels, and of a line of the legend
_POINTS = 200  # of a curve over seconds
MIDDLE = (0.25, 0.75)  # the band: the middle half of the seeds


def curves(bench: BenchResult, label: str) -> tuple[np.ndarray, np.ndarray]:
    """x (k,), the evaluations or the seconds spent, and (seeds, k) the best objective so far of each seed.

    At the largest budget; NaN before the first value.
    """
    trials = bench.trials
    own = trials[(trials["method"] == label) & (trials["budget"] == bench.question.budgets[-1])]
    searches = [search for _, search in own.groupby("seed")]
    best = [(bench.sign * search["objective"]).cummax().ffill().to_numpy() for search in searches]
    if bench.question.seconds is None:
        x = np.arange(1, max(map(len, best)) + 1, dtype=float)
        at = [np.arange(1, len(values) + 1, dtype=float) for values in best]
    else:
        x = np.linspace(0, bench.question.seconds, _POINTS)
        at = [search["seconds"].cumsum().to_numpy() for search in searches]
    places = [np.searchsorted(ends, x, side="right") - 1 for ends in at]
    shown = [np.where(place >= 0, values[place], np.nan) for place, values in zip(places, best, strict=True)]
    return x, bench.sign * np.array(shown)


@figure(height=_HEIGHT)
def bench_regret(bench: BenchResult, canvas: Figure) -> None:
    """The regret of the best so far, and its rank in the table, over the budget: mean over seeds, and their middle."""
    regret, rank = canvas.subplots(2, 1, sharex=True)
    asked = [entrant.label for entrant in bench.question.entrants if entrant.asked and entrant.label != RANDOM_SEARCH]
    handles = []
    behind = [label for label in bench.labels if label not in asked and label != RANDOM_SEARCH]
    for label in [*behind, RANDOM_SEARCH, *asked]:
        place = asked.index(label) if label in asked else 0
        colour = RANDOM if label == RANDOM_SEARCH else TRIAL if label in behind else _COLOURS[place % len(_COLOURS)]
        dash = _DASHES[place // len(_COLOURS) % len(_DASHES)]
        x, best = curves(bench, label)
        thin = label in behind
        for axes, values in ((regret, bench.sign * (bench.best_objective - best)), (rank, bench.ranks(best))):
            _draw(axes, x, values, label, colour, dash, thin=thin)
        if not thin:
            handles.append(Line2D([], [], color=colour, linestyle=dash, linewidth=2, label=label))
    if behind:
        handles.append(Line2D([], [], color=TRIAL, linewidth=1, alpha=0.6, label="a column first"))
    largest = np.nanquantile(_regret_of(bench, RANDOM_SEARCH), 0.9)
    regret.set_ylim(0, largest * 1.05 if largest > 0 else None)
    regret.set_ylabel(f"regret in {bench.table.roles.objective}")
    rank.set_yscale("log")
    plain(rank.yaxis)
    rank.set_ylabel("rank in the table")
    rank.set_xlabel("evaluations" if bench.question.seconds is None else "training seconds")
    regret.xaxis.set_major_locator(MaxNLocator(6, integer=bench.question.seconds is None))
    canvas.align_ylabels([regret, rank])
    set_height(canvas, _HEIGHT + _LINE * len(handles))
    canvas.legend(handles=handles[::-1], loc="outside upper left", ncols=1)


def _regret_of(bench: BenchResult, label: str) -> np.ndarray:
    return bench.sign * (bench.best_objective - curves(bench, label)[1])


def _draw(
    axes: Axes,
    x: np.ndarray,
    values: np.ndarray,
    label: str,
    colour: str,
    dash: Literal["-", "--", ":", "-."],
    *,
    thin: bool,
) -> None:
    """values: (seeds, k)."""
    known = ~np.isnan(values).all(axis=0)
    x, values = x[known], values[:, known]
    mean = np.nanmean(values, axis=0)
    if not thin and len(values) > 2:
        low, high = np.nanquantile(values, MIDDLE, axis=0)
        axes.fill_between(x, low, high, step="post", color=colour, alpha=0.14, linewidth=0)
    width, alpha = (1.0, 0.5) if thin else (2.0, 1.0)
    axes.step(x, mean, where="post", color=colour, linestyle=dash, linewidth=width, alpha=alpha)
    if len(x):
        tell_line(axes, x.tolist(), mean.tolist(), f"{label}\nat the end {significant(mean[-1])}")


def regret_section(bench: BenchResult) -> Section:
    """The figure, and what it shows."""
    budget = title_of(bench, bench.question.budgets[-1])
    caption = (
        f"Searches of {budget}: the distance of the best objective so far from the best of the table, and its rank in "
        f"the table. Lines are means over {count(bench.question.seeds, 'seed')}, bands the middle half of them."
    )
    description = f"Regret and rank of the best so far, of {count(len(bench.labels), 'method')}."
    return Section(
        "regret", "Regret", captioned(drawing("regret", bench_regret(bench), description=description), caption)
    )
