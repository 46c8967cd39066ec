"""The figures of the study of activations. Roberts et al. 2022."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.understanding.activations.tables import (
    ACTIVATION_ROWS,
    AGREEMENTS,
    KEYS,
    RANKINGS,
    Share,
    search_counts,
    teacher_counts,
)
from archray.platform.report.figures import (
    FOUND,
    INK,
    MUTED,
    RANDOM,
    SERIES,
    TRIAL,
    NothingToDraw,
    few_ticks,
    figure,
    panels,
    set_height,
    tell_line,
    tell_points,
)
from archray.platform.run.layout import CURVES
from archray.platform.run.run import Run

OFFSET = 0.16  # of two marks in one row
NO_SEARCH = "no search of the run has ended"
SHOWN = {"shared": "shared loss", "uniform": "uniform alpha", "initial": "initial weights"}


@figure(height=300)
def activation_conditions(run: Run[Any], canvas: Figure) -> None:
    """How often the larger alpha has the smaller shared-weights loss: where Condition 6 holds, and where it fails."""
    counts = [*teacher_counts(run.best), *search_counts(run.best)]
    if not counts:
        raise NothingToDraw("no teachers of the run have been counted")
    set_height(canvas, 110 + 34 * len(counts))
    axes = canvas.subplots()
    for sign, colour, words in ((-1, FOUND, "condition holds"), (1, RANDOM, "condition fails")):
        shares = [count.met if sign < 0 else count.unmet for count in counts]
        _interval_marks(axes, shares, sign * OFFSET, colour, words, [count.words for count in counts])
    axes.set_yticks(range(len(counts)), [count.words for count in counts])
    axes.set_ylim(len(counts) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.axvline(0.5, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("pairs whose order by alpha is that by loss")
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    canvas.legend(loc="outside upper left", ncols=2)


def _interval_marks(
    axes: Axes, shares: Sequence[Share | None], offset: float, colour: str, words: str, rows: Sequence[str]
) -> None:
    counted = [(place, share) for place, share in enumerate(shares) if share is not None]
    x = np.array([share.value for _, share in counted])
    ends = np.array([share.interval for _, share in counted]).reshape(-1, 2)
    y = np.array([place + offset for place, _ in counted])
    errors = np.abs(ends.T - x) if counted else None
    axes.errorbar(x, y, xerr=errors, fmt="o", color=colour, markersize=6, capsize=3, linewidth=1.5, label=words)
    tell_points(axes, x, y, (f"{rows[place]}\n{words}: {share.holds} of {share.number}" for place, share in counted))


@figure(height=300)
def activation_agreement(run: Run[Any], canvas: Figure) -> None:
    """Kendall's tau of rankings of activations with that by standalone training, a point per seed."""
    table = run.best.table("shared", AGREEMENTS)
    if table.empty:
        raise NothingToDraw(NO_SEARCH)
    table = table[table["reference"].eq("standalone")]
    kinds = [kind for kind in run.config.labels if kind in set(table["labels"])]
    grid = _panels(canvas, kinds)
    rankings = list(RANKINGS)
    rng = np.random.default_rng(0)  # where a point stands beside others, which means nothing
    for axes, kind in zip(grid, kinds, strict=True):
        for place, ranking in enumerate(rankings):
            rows = table[table["labels"].eq(kind) & table["ranking"].eq(ranking)].dropna(subset="kendall")
            if rows.empty:
                continue
            y = place + rng.uniform(-0.22, 0.22, len(rows))
            colour = FOUND if ranking == "alpha" else TRIAL
            axes.scatter(rows["kendall"], y, s=14, color=colour, alpha=0.55, linewidths=0)
            texts = (f"seed {n}\ntau {tau:.2f}" for n, tau in zip(rows["number"], rows["kendall"], strict=True))
            tell_points(axes, rows["kendall"], y, texts)
            axes.plot([rows["kendall"].mean()] * 2, [place - 0.34, place + 0.34], color=INK, linewidth=2)
        axes.set_title(kind)
        axes.set_yticks(range(len(rankings)), [SHOWN.get(ranking, ranking) for ranking in rankings])
        axes.set_ylim(len(rankings) - 0.5, -0.5)
        axes.set_xlim(-1.08, 1.08)
        axes.axvline(0, color=MUTED, linewidth=1)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("Kendall's tau")


@figure(height=300)
def activation_ranks(run: Run[Any], canvas: Figure) -> None:
    """The rank of each activation by alpha against that by its loss with the shared weights, over all seeds."""
    rows = run.best.table("shared", ACTIVATION_ROWS)
    if rows.empty:
        raise NothingToDraw(NO_SEARCH)
    groups = rows.groupby(KEYS)
    ranks = pd.DataFrame(
        {
            "labels": rows["labels"],
            "alpha": groups["alpha"].rank(ascending=False, method="first").astype(int),
            "shared": groups["shared"].rank(method="first").astype(int),
        }
    )
    kinds = [kind for kind in run.config.labels if kind in set(ranks["labels"])]
    h, seeds = len(run.config.problem.activations), groups.ngroups / len(kinds)
    for axes, kind in zip(_panels(canvas, kinds), kinds, strict=True):
        times = ranks[ranks["labels"].eq(kind)].groupby(["shared", "alpha"]).size().reset_index(name="times")
        axes.plot([0.6, h + 0.4], [0.6, h + 0.4], color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        axes.scatter(times["shared"], times["alpha"], s=700 / h * times["times"] / seeds, color=FOUND, linewidths=0)
        texts = (f"{n} of {seeds:.0f} seeds\nloss rank {a}, alpha rank {b}" for a, b, n in times.to_numpy())
        tell_points(axes, times["shared"], times["alpha"], texts)
        axes.set_title(kind)
        axes.set_xlabel("rank by shared loss")
        axes.set_xticks(range(1, h + 1))
        axes.set_yticks(range(1, h + 1))
        axes.set_xlim(0.5, h + 0.5)
        axes.set_ylim(h + 0.5, 0.5)
    canvas.axes[0].set_ylabel("rank by alpha")


@figure(height=280)
def activation_alpha(run: Run[Any], canvas: Figure) -> None:
    """The architecture parameters over the steps of the first seed's search, a panel per kind of labels."""
    curves = run.best.table("shared", CURVES)
    if curves.empty:
        raise NothingToDraw(NO_SEARCH)
    curves = curves[curves["phase"].eq("search") & curves["number"].eq(0)].sort_values("search_steps")
    kinds = [kind for kind in run.config.labels if kind in set(curves["labels"])]
    names = run.config.problem.activations
    for axes, kind in zip(_panels(canvas, kinds), kinds, strict=True):
        rows = curves[curves["labels"].eq(kind)]
        steps = [0, *rows["search_steps"]]
        for place, name in enumerate(names):
            style = "-" if place < len(SERIES) else "--"
            values = [1 / len(names), *rows[f"alpha_{name}"]]
            axes.plot(steps, values, style, color=SERIES[place % len(SERIES)], linewidth=1.8, label=name)
            tell_line(axes, steps, values, f"{name}\n{values[-1]:.3f} in the end")
        axes.set_title(kind)
        axes.set_ylim(0, 1)
        axes.set_xlabel("step")
        few_ticks(axes, 3, integer=True)
    canvas.axes[0].set_ylabel("alpha")
    handles, labels = canvas.axes[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper left", ncols=min(5, len(names)))


def _panels(canvas: Figure, kinds: Sequence[str]) -> list[Axes]:
    """A panel per kind of labels: three side by side at most, four in two rows."""
    number = len(kinds)
    return panels(canvas, number, number if number <= 3 else 2, row=190, head=30, sharey=True)
