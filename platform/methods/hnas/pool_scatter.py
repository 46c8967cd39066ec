"""The pool's scatter: M against kappa of every scored architecture, the evaluated ones and the winner marked."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from archray.platform.methods.hnas.ranked_pool import rank, row_of, scored, values_by_architecture
from archray.platform.report.plot import FOUND, INK, SURFACE, Size, logarithmic, plot
from archray.platform.report.quantity import Quantity, count, significant
from archray.platform.report.section import Section, figure
from archray.platform.report.view import RunView, numbers
from archray.searchers.hnas.scored_pool import Pool

VALUES = "viridis"  # of the metric's values, here and in the landscape: even to the eye, also to a colour-blind one
_CLOUD = "#8b96a5"  # the pool's points become an image, which cannot follow the page: a grey for light and dark
_SKEWED = 8  # where the largest M is further above the median than this, M has a logarithmic axis too
_MANY = 3000  # with more points than this, they are drawn smaller and fainter


def pool_section(view: RunView) -> Section | None:
    """The scatter, or nothing where the pool cannot be ranked."""
    pool = scored(view)
    if pool is None:
        return None
    known = values_by_architecture(view)
    metric = Quantity.of(view.metric)
    winner = row_of(pool, view.architecture)
    point = _point(view)

    def draw(canvas: Figure, narrow: bool) -> None:
        axes = canvas.subplots()
        draw_cloud(axes, pool)
        axes.set_xlabel(f"M: {view.proxy}, over the pool's largest" if not narrow else f"M ({view.proxy}, scaled)")
        axes.set_ylabel("κ, condition number")
        rows = {row: value for name, value in known.items() if (row := row_of(pool, name)) is not None}
        if winner is not None and point is not None:
            draw_level(axes, view, pool, winner, *point)
        if rows:
            at = np.array(list(rows))
            points = axes.scatter(
                pool.metric[at],
                pool.kappa[at],
                c=np.array(list(rows.values())) * metric.factor,
                cmap=VALUES,
                norm=value_range(known, metric),
                s=46,
                edgecolor=INK,
                linewidth=0.9,
                zorder=3,
            )
            canvas.colorbar(
                points, ax=axes, label=metric.axis, location="top" if narrow else "right", aspect=30, pad=0.02
            ).outline.set_visible(False)
        if winner is not None:
            x, y = pool.metric[winner], pool.kappa[winner]
            axes.scatter(x, y, s=240, facecolor="none", edgecolor=SURFACE, linewidth=5, zorder=4)
            axes.scatter(x, y, s=240, facecolor="none", edgecolor=FOUND, linewidth=2.4, zorder=5)

    drawing = plot(
        "pool",
        draw,
        description=f"Scatter of M and kappa of {count(len(pool), 'architecture')}; {len(known)} were trained.",
        wide=Size(760, 440),
        narrow=Size(350, 400),
    )
    return Section("pool", "The pool", figure(drawing, _caption(view, pool, known, winner)))


def value_range(known: dict[str, float], metric: Quantity) -> Normalize:
    """The range of colours: from the lowest to the highest value known."""
    values = np.array(list(known.values())) * metric.factor
    low, high = float(values.min()), float(values.max())
    return Normalize(low, high) if high > low else Normalize(low - 0.5, high + 0.5)


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


def draw_level(axes: Axes, view: RunView, pool: Pool, winner: int, mu: float, nu: float) -> None:
    """The line of all (M, kappa) whose objective at (mu, nu) is the winner's; what lies below it is better."""
    assert view.objective is not None  # or there is no point
    limits = axes.get_xlim(), axes.get_ylim()
    value = float(rank(pool, mu, nu, view.objective)[winner])
    low, high = limits[0]
    m = np.geomspace(low, high, 400) if axes.get_xscale() == "log" else np.linspace(1e-3, high, 400)
    distance = m**2 - nu
    penalty = mu * (np.abs(distance) if view.objective.penalty == "absolute" else distance**2)
    kappa = (m + view.objective.epsilon) * (value - penalty)  # the objective, solved for kappa
    axes.plot(m, np.where(kappa > 0, kappa, np.nan), color=FOUND, linewidth=1.3, linestyle=(0, (5, 3)), zorder=2)
    axes.set(xlim=limits[0], ylim=limits[1])


def _point(view: RunView) -> tuple[float, float] | None:
    """The (mu, nu) of the best trial, if it is the found architecture's."""
    best = view.best_trial()
    if best is None or view.objective is None or "architecture" not in view.evaluated:
        return None
    mu, nu = numbers(view.evaluated, "mu")[best], numbers(view.evaluated, "nu")[best]
    known = view.evaluated["architecture"][best] == view.architecture and mu > 0 and nu >= 0
    return (float(mu), float(nu)) if known else None


def _caption(view: RunView, pool: Pool, known: dict[str, float], winner: int | None) -> str:
    text = (
        f"Each grey point is one of {count(len(pool), 'architecture')} scored without training. By the bound that "
        "HNAS rests on, a larger M (right) means faster convergence, a smaller condition number κ (down) a smaller "
        "generalisation gap."
    )
    if pool.excluded:
        verb = "is" if pool.excluded == 1 else "are"
        text += f" {count(pool.excluded, 'architecture')} without a finite score {verb} left out."
    if known:
        text += f" Coloured points ({len(known)}) were trained in the search."
    point = _point(view)
    if winner is None:
        return text
    text += " The ring marks the one found."
    if point is None or view.objective is None:
        return text
    values = rank(pool, *point, view.objective)
    below = int((values < values[winner]).sum())
    mu, nu = point
    text += f" The dashed line joins all (M, κ) with its objective at μ = {significant(mu)}, ν = {significant(nu)}: "
    if below == 0:
        return text + "no architecture of the pool lies below it."
    return text + f"{count(below, 'architecture')} of the pool {'lies' if below == 1 else 'lie'} below it."
