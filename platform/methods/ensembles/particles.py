"""What delta does: SVGD-RD on a mixture of two Gaussians in the plane. Shu 2022, Figure 5.2."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.sampled_table import chosen_delta
from archray.platform.report.plot import FOUND, MUTED, SURFACE, TRIAL, Size, plot
from archray.platform.report.quantity import signed
from archray.platform.report.section import Column, Section, figure, paragraphs, table
from archray.platform.report.view import RunView, numbers
from archray.searchers.nesbs.svgd_rd import FloatArray, svgd_rd

MEANS, VARIANCES = np.array([[-1.0, 0.0], [0.0, 1.0]]), np.array([0.25, 0.5])  # (2, 2) and (2,), of Figure 5.2
PARTICLES = 15
DELTAS = (-1.0, 0.0, 1.0)
_NEAR = 0.05  # a delta of the run this near to one that is drawn has its panel
_SIDES = ((-2.9, 1.9), (-2.2, 3.2))  # of a panel
_LEVELS = (0.05, 0.2, 0.4, 0.6, 0.8, 0.95)  # contours, of the highest density


def particles_section(view: RunView) -> Section | None:
    """A panel per delta, the run's own in blue. Nothing for a run that sampled at no delta."""
    if not numbers(view.ensembles, "delta").notna().any():
        return None
    own = chosen_delta(view)
    deltas = shown_deltas(own)
    ends = np.stack([particles(delta) for delta in deltas])  # (deltas, n, 2)

    def draw(canvas: Figure, narrow: bool) -> None:
        columns = 2 if narrow else len(deltas)
        grid = canvas.subplots(-(-len(deltas) // columns), columns, squeeze=False, sharex=True, sharey=True)
        for place, axes in enumerate(grid.flat):
            if place >= len(deltas):
                axes.set_visible(False)
                continue
            _draw_panel(axes, ends[place], deltas[place], chosen=_is_own(deltas[place], own))

    words = ", ".join(f"{_words(delta)}: {apart:.2f}" for delta, apart in zip(deltas, spread(ends), strict=True))
    drawing = plot(
        "particles",
        draw,
        description=f"Particles on a density with two peaks; mean distance of two by delta {words}.",
        wide=Size(760, 250 if len(deltas) > 3 else 310),
        narrow=Size(350, 420),
    )
    return Section("particles", "What delta does", figure(drawing, _caption(own)) + _table(deltas, ends, own))


def two_gaussians(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Figure 5.2's density. (..., 2) -> log p up to a constant, (...), and its gradient, (..., 2)."""
    away = x[..., None, :] - MEANS  # (..., 2, 2)
    exponents = -(away**2 / VARIANCES).sum(-1) / 2
    top = exponents.max(-1, keepdims=True)  # far away both exponentials are 0
    weights = np.exp(exponents - top)
    total = weights.sum(-1, keepdims=True)
    return (np.log(total) + top)[..., 0], -((weights / total)[..., None] * away / VARIANCES).sum(-2)


def particles(delta: float, n: int = PARTICLES, seed: int = 0) -> FloatArray:
    """Where n particles end after 1000 iterations of Algorithm 5.3 on that density, from a standard normal start.

    The step is 0.1, without momentum, and the bandwidth is the median, as the figure's caption has it.

    Returns: (n, 2)
    """
    start = np.random.default_rng(seed).standard_normal((n, 2))
    return svgd_rd(start, lambda x: two_gaussians(x)[1], delta, momentum=0.0)


def spread(ends: FloatArray) -> FloatArray:
    """The mean distance of two particles. (..., n, 2) -> (...)"""
    rows, columns = np.triu_indices(ends.shape[-2], 1)
    return np.linalg.norm(ends[..., rows, :] - ends[..., columns, :], axis=-1).mean(-1)


def lowest_density(ends: FloatArray) -> FloatArray:
    """The density at the particle where it is lowest, as a fraction of its highest. (..., n, 2) -> (...)"""
    return np.exp(two_gaussians(ends)[0].min(-1) - _peak())


def shown_deltas(own: float | None) -> list[float]:
    """The deltas that are drawn, ascending, with the run's own among them."""
    near = own is None or any(abs(delta - own) < _NEAR for delta in DELTAS)
    return list(DELTAS) if near or own is None else sorted((*DELTAS, own))


def _is_own(delta: float, own: float | None) -> bool:
    return own is not None and abs(delta - own) < _NEAR


def _grid() -> tuple[FloatArray, FloatArray, FloatArray]:
    """x, y and log p on a grid over a panel, (rows, columns) each."""
    x, y = np.meshgrid(np.linspace(*_SIDES[0], 73), np.linspace(*_SIDES[1], 81))
    return x, y, two_gaussians(np.stack([x, y], -1))[0]


def _peak() -> float:
    """log p at its highest: where a single particle ends, which has nothing to keep away from."""
    return float(two_gaussians(svgd_rd(MEANS[:1], lambda x: two_gaussians(x)[1], 0.0))[0].max())


def _draw_panel(axes: Axes, ends: FloatArray, delta: float, *, chosen: bool) -> None:
    x, y, height = _grid()
    axes.contour(x, y, np.exp(height - height.max()), levels=_LEVELS, colors=MUTED, linewidths=0.8, alpha=0.6)
    axes.scatter(
        ends[:, 0],
        ends[:, 1],
        s=30,
        color=FOUND if chosen else TRIAL,
        edgecolor=SURFACE,
        linewidth=0.7,
        zorder=3,
        clip_on=True,
    )
    axes.set_title(f"δ = {_words(delta)}" + (", the run's" if chosen else ""))
    axes.set(xlim=_SIDES[0], ylim=_SIDES[1], aspect="equal", xticks=(), yticks=())
    axes.spines[:].set_visible(False)


def _words(delta: float) -> str:
    return signed(f"{delta:.3g}")


def _caption(own: float | None) -> str:
    text = (
        f"{PARTICLES} particles that SVGD-RD moved for 1000 iterations from one random start, on a density drawn as "
        "contours: not the run's posterior, which has too many dimensions to draw, but the mixture of two Gaussians "
        "of Figure 5.2 in Shu 2022. At δ = 0 it is SVGD. A higher δ drives particles apart, and they stay where the "
        "density is high; at −1 nothing drives them apart, and below it they attract each other."
    )
    return text + (" Blue: the δ at which the chosen ensemble was sampled." if own is not None else "")


def _table(deltas: list[float], ends: FloatArray, own: float | None) -> str:
    columns = (Column("δ", "number"), Column("Mean distance", "number"), Column("Lowest density (% of peak)", "number"))
    rows = [
        (_words(delta), f"{apart:.2f}", f"{100 * low:.0f}")
        for delta, apart, low in zip(deltas, spread(ends), lowest_density(ends), strict=True)
    ]
    marked = next((place for place, delta in enumerate(deltas) if _is_own(delta, own)), None)
    told = "What the particles keep: the distance of two of them, and the density where the worst placed one ends."
    return paragraphs([told]) + table(columns, rows, label="Particles by delta", marked=marked)
