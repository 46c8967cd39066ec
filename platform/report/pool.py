"""The pool's scatter: M against kappa of every scored architecture, the evaluated ones and the winner marked."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from archray.platform.report.plot import FOUND, INK, SURFACE, Size, plot
from archray.platform.report.quantity import Quantity, count, power_of_ten
from archray.platform.report.scored import Scored, scored, values_by_architecture
from archray.platform.report.section import Section, figure
from archray.platform.report.view import RunView

VALUES = "viridis"  # of the metric's values, here and in the landscape: even to the eye, also to a colour-blind one
_CLOUD = "#8b96a5"  # the pool's points become an image, which cannot follow the page: a grey for light and dark
_FADED = 3000  # with more points than this, they are drawn smaller and fainter


def pool_section(view: RunView) -> Section | None:
    """The scatter, or nothing where the pool cannot be ranked."""
    pool = scored(view)
    if pool is None:
        return None
    known = values_by_architecture(view)
    metric = Quantity.of(view.metric)

    def draw(canvas: Figure, narrow: bool) -> None:
        axes = canvas.subplots()
        many = pool.m.size > _FADED
        axes.scatter(
            pool.m, pool.kappa, s=4 if many else 12, color=_CLOUD, alpha=0.35 if many else 0.6, linewidth=0, rasterized=True
        )
        axes.set_yscale("log")
        logarithmic(axes.yaxis)
        axes.set_xlabel(f"M: {view.proxy}, over the pool's largest" if not narrow else f"M ({view.proxy}, scaled)")
        axes.set_ylabel("κ, condition number")
        trained = [(row, value) for name, value in known.items() if (row := pool.row(name)) is not None]
        if trained:
            rows, values = map(np.array, zip(*trained, strict=True))
            points = axes.scatter(
                pool.m[rows], pool.kappa[rows], c=values * metric.factor, cmap=VALUES, norm=value_range(known, metric),
                s=46, edgecolor=INK, linewidth=0.9, zorder=3,
            )
            canvas.colorbar(
                points, ax=axes, label=metric.axis, location="top" if narrow else "right", aspect=30, pad=0.02
            ).outline.set_visible(False)
        winner = pool.row(view.architecture)
        if winner is not None:
            draw_winner(axes, float(pool.m[winner]), float(pool.kappa[winner]))

    drawing = plot(
        "pool",
        draw,
        description=f"Scatter of M and kappa of {count(pool.m.size, 'architecture')}; {len(known)} were trained.",
        wide=Size(760, 440),
        narrow=Size(350, 400),
    )
    return Section("pool", "The pool", figure(drawing, _caption(view, pool, known)))


def value_range(known: dict[str, float], metric: Quantity) -> Normalize:
    """The range of colours: from the lowest to the highest value known."""
    values = np.array(list(known.values())) * metric.factor
    low, high = float(values.min()), float(values.max())
    return Normalize(low, high if high > low else low + 1e-9)


def logarithmic(axis) -> None:  # type: ignore[no-untyped-def]  # matplotlib's Axis has no stubs for these
    """Ticks at powers of ten, written in Unicode."""
    axis.set_major_locator(LogLocator(10, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(round(np.log10(value))) if value > 0 else ""))
    axis.set_minor_formatter(NullFormatter())


def draw_winner(axes, x: float, y: float) -> None:  # type: ignore[no-untyped-def]
    """The found architecture: a ring around its point."""
    axes.scatter([x], [y], s=260, facecolor="none", edgecolor=SURFACE, linewidth=5, zorder=4)
    axes.scatter([x], [y], s=260, facecolor="none", edgecolor=FOUND, linewidth=2.4, zorder=5)


def _caption(view: RunView, pool: Scored, known: dict[str, float]) -> str:
    text = (
        f"Each grey point is one of {count(pool.m.size, 'architecture')} scored without training: to the right the "
        "metric M is larger (faster convergence), further down the condition number κ is smaller (a smaller "
        "generalisation gap); both axes show all of them."
    )
    if pool.excluded:
        text += f" {count(pool.excluded, 'row')} of the pool without a finite score are left out."
    if known:
        text += f" Coloured points were trained in the search ({len(known)})"
        text += "; the ring marks the one found." if pool.row(view.architecture) is not None else "."
    return text
