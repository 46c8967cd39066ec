"""The pool's scatter: M against kappa of every scored architecture, the evaluated ones and the winner marked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.hnas.hnas_tables import (
    ASKED,
    VALUE,
    Objective,
    best_trial,
    names_of,
    objective_of,
    rank,
    row_of,
    usable_pool,
    values_by_architecture,
)
from archray.platform.methods.hnas.penalty_share import PenaltyScale, in_percent
from archray.platform.methods.hnas.value_colours import COLOURS, VALUES, draw_scale, quantile_scale
from archray.platform.quantities import significant
from archray.platform.report.figures import FOUND, INK, SURFACE, NothingToDraw, drawing, figure, logarithmic
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Section, captioned
from archray.platform.report.short_names import ShortNames
from archray.platform.report.table_columns import numbers
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.hnas.objective import Pool, distance

_CLOUD = "#8b96a5"  # the pool's points become an image, which cannot follow the page: a grey for light and dark
_SKEWED = 8  # where the largest M is further above the median than this, M has a logarithmic axis too
_MANY = 3000  # with more points than this, they are drawn smaller and fainter


@figure(height=400)
def hnas_pool(run: Run[Any], canvas: Figure) -> None:
    """M against kappa of every scored architecture of HNAS' pool: those that were trained, the one found, and the line
    of all (M, kappa) with its objective.
    """
    names, run = names_of(run), run.best
    pool, known = _pool(run), values_by_architecture(run.table(*ASKED))
    axes = canvas.subplots()
    draw_cloud(axes, pool)
    axes.set_xlabel(f"M: {run.config.proxy}, over the pool's largest")
    axes.set_ylabel("κ, condition number")
    winner = row_of(pool, run.architecture)
    if winner is not None and (level := _level(run, pool)) is not None:
        draw_level(axes, pool, winner, *level)
    rows = {row: value for name, value in known.items() if (row := row_of(pool, name)) is not None}
    if rows:
        at = np.array(list(rows))
        scale = quantile_scale(known)
        axes.scatter(
            pool.metric[at],
            pool.kappa[at],
            c=np.array(list(rows.values())) * VALUE.factor,
            cmap=VALUES,
            norm=scale,
            s=46,
            edgecolor=INK,
            linewidth=0.9,
            zorder=3,
        )
        draw_scale(canvas, axes, scale)
        texts = [
            f"{names.of(pool.architectures[row])}: {VALUE.label} {VALUE.show(value)}\n"
            f"M = {significant(pool.metric[row])}, κ = {significant(pool.kappa[row])}"
            for row, value in rows.items()
        ]
        tell_points(axes, pool.metric[at], pool.kappa[at], texts)
    if winner is not None:
        x, y = pool.metric[winner], pool.kappa[winner]
        axes.scatter(x, y, s=240, facecolor="none", edgecolor=SURFACE, linewidth=5, zorder=4)
        axes.scatter(x, y, s=240, facecolor="none", edgecolor=FOUND, linewidth=2.4, zorder=5)


def pool_section(run: Run[Any]) -> Section:
    """The scatter, or nothing where the pool cannot be ranked."""
    names, run = names_of(run), run.best
    pool, known = _pool(run), values_by_architecture(run.table(*ASKED))
    description = f"Scatter of M and kappa of {count(len(pool), 'architecture')}; {len(known)} were trained."
    content = drawing("pool", hnas_pool(run), description=description)
    return Section("pool", "The pool", captioned(content, _caption(run, pool, len(known), names)))


def _pool(run: Run[Any]) -> Pool:
    pool = usable_pool(run)
    if pool is None:
        raise NothingToDraw(
            f"{run.folder} has no pool of architectures with a finite {run.config.proxy} and kappa; resume it "
            "if its first stage has not ended"
        )
    return pool


def draw_cloud(axes: Axes, pool: Pool) -> None:
    """Every architecture of the pool; an image, so that the page does not grow with it."""
    many = len(pool) > _MANY
    axes.scatter(
        pool.metric,
        pool.kappa,
        s=5 if many else 13,
        color=_CLOUD,
        alpha=0.35 if many else 0.65,
        linewidth=0,
        rasterized=True,
    )
    axes.set_yscale("log")
    logarithmic(axes.yaxis)
    if pool.metric.max() > _SKEWED * np.median(pool.metric):
        axes.set_xscale("log")
        logarithmic(axes.xaxis)


def draw_level(axes: Axes, pool: Pool, winner: int, mu: float, nu: float, how: Objective) -> None:
    """The line of all (M, kappa) whose objective is the winner's; what lies below it is better."""
    limits = axes.get_xlim(), axes.get_ylim()
    value = float(rank(pool, mu, nu, how)[winner])
    low, high = limits[0]
    m = np.geomspace(low, high, 400) if axes.get_xscale() == "log" else np.linspace(1e-3, high, 400)
    kappa = (m + how.epsilon) * (value - mu * distance(m, nu, how.penalty))  # the objective, solved for kappa
    axes.plot(m, np.where(kappa > 0, kappa, np.nan), color=FOUND, linewidth=1.3, linestyle=(0, (5, 3)), zorder=2)
    axes.set(xlim=limits[0], ylim=limits[1])


def _level(run: Run[Any], pool: Pool) -> tuple[float, float, Objective] | None:
    """The (mu, nu) of the best trial, and the objective; None if that did not find what was found."""
    asked, objective = run.table(*ASKED), objective_of(run)
    best = best_trial(asked)
    if best is None or objective is None or "architecture" not in asked:
        return None
    mu, nu = float(numbers(asked, "mu")[best]), float(numbers(asked, "nu")[best])
    own = asked["architecture"][best] == run.architecture and mu > 0 and nu >= 0
    return (mu, nu, objective) if own else None


def _caption(run: Run[Any], pool: Pool, trained: int, names: ShortNames) -> str:
    text = (
        f"Each grey point is one of {count(len(pool), 'architecture')} scored without training. By the bound that "
        "HNAS rests on, a larger M (right) means faster convergence, a smaller condition number κ (down) a smaller "
        "generalisation gap."
    )
    if pool.excluded:
        verb = "is" if pool.excluded == 1 else "are"
        text += f" {count(pool.excluded, 'architecture')} without a finite score {verb} left out."
    if trained:
        text += f" Coloured points ({trained}) were trained in the search. {COLOURS}"
    winner = row_of(pool, run.architecture)
    if winner is None:
        return text
    text += f" The ring marks the one found, {names.of(run.architecture)}."
    level = _level(run, pool)
    if level is None:
        return text
    values = rank(pool, *level)
    below = int((values < values[winner]).sum())
    text += (
        f" The dashed line joins all (M, κ) with its objective at its μ and ν, where the penalty's share is "
        f"{in_percent(PenaltyScale(pool, level[2]).odds(*level[:2]))} % and √ν {significant(math.sqrt(level[1]))}: "
    )
    if below == 0:
        return text + "no architecture of the pool lies below it."
    return text + f"{count(below, 'architecture')} of the pool {'lies' if below == 1 else 'lie'} below it."
