"""Figures of HNAS and their sections: the search over (mu, nu), and the pool. Shu 2022, Alg. 7.1, Eq. 7.7."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import FuncNorm, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from archray.platform.methods.hnas import tables
from archray.platform.methods.hnas.tables import ODDS, SUGGESTIONS, VALUE, names_of
from archray.platform.quantities import as_float, significant
from archray.platform.report import figures
from archray.platform.report.figures import FOUND, INK, MUTED, SURFACE, NothingToDraw, figure, figure_section
from archray.platform.report.section import Section, ShortNames, numbers
from archray.platform.report.texts import texts_of
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.hnas.objective import Pool, distance

_text = texts_of(__package__)
VALUES = "viridis"  # perceptually uniform, also for color-blind readers
_MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)  # quantiles with a tick on the color bar
_TICKS = (1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)  # shares with a tick on the axis


def quantile_scale(values_of: Mapping[str, float]) -> Normalize:
    """A color scale by quantile, linear between two values, so that an outlier does not dominate it.

    values_of: architecture -> value, a fraction; the scale has `VALUE`'s unit.
    """
    values = np.unique(np.array(list(values_of.values())) * VALUE.factor)
    if values.size == 1:
        return Normalize(values[0] - 0.5, values[0] + 0.5)
    shares = np.linspace(0.0, 1.0, values.size)
    return FuncNorm(
        (lambda value: np.interp(value, values, shares), lambda share: np.interp(share, shares, values)),
        values[0],
        values[-1],
    )


def draw_scale(canvas: Figure, axes: Axes, scale: Normalize) -> None:
    """Draws the color bar above the axes, with ticks at minimum, quartiles and maximum."""
    bar = canvas.colorbar(ScalarMappable(scale, VALUES), ax=axes, label=VALUE.axis, location="top", aspect=30, pad=0.02)
    bar.outline.set_visible(False)
    marks = [float(scale.inverse(share)) for share in (_MARKS if isinstance(scale, FuncNorm) else (0.5,))]
    bar.set_ticks(marks, labels=[f"{mark:.1f}" for mark in marks])
    bar.minorticks_off()


def mark_shares(axis: Axis) -> None:
    """Sets ticks at shares on a logarithmic axis of odds."""
    low, high = axis.get_view_interval()
    odds = [share / (1 - share) for share in _TICKS]
    axis.set_major_locator(FixedLocator([value for value in odds if low <= value * 1.001 and value <= high * 1.001]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{tables.in_percent(value)} %"))


# The path of the Bayesian optimizer over (mu, nu). Shu 2022, Alg. 7.1.

_SAME = 0.012  # points closer than this share of the axes are drawn as one


def draw_path(axes: Axes, path: pd.DataFrame, best: int | None, norm: Normalize | None, names: ShortNames) -> None:
    """Draws the training runs, numbered in order, with rings colored by value; repeated suggestions are dots."""
    free = path[path["repeat"]]
    axes.scatter(
        np.sqrt(free["nu"]), free["odds"], s=16, color=SURFACE, edgecolor=INK, linewidth=0.8, zorder=3, clip_on=False
    )
    trained = path[~path["repeat"]]
    x, y = np.sqrt(trained["nu"].to_numpy()), trained["odds"].to_numpy()
    axes.plot(x, y, color=SURFACE, linewidth=3.2, alpha=0.65, zorder=3, clip_on=False)
    axes.plot(x, y, color=INK, linewidth=1.0, alpha=0.75, zorder=3, clip_on=False)
    texts = []
    for row in path.to_dict("records"):
        what = "evaluated before, not trained again" if row["repeat"] else f"training run {row['number']:.0f}"
        what += ", failed" if row["failed"] else ""
        share, mu, nu = tables.in_percent(row["odds"]), significant(row["mu"]), significant(row["nu"])
        texts.append(
            f"{names.of(row['architecture'])}: {what}\n{VALUE.label} {VALUE.show(row['value'])}\n"
            f"μ = {mu}, {share} % of the objective; ν = {nu}"
        )
    figures.add_tooltips(axes, np.sqrt(path["nu"]), path["odds"], texts)
    places = axes.transAxes.inverted().transform(axes.transData.transform(np.column_stack([x, y])))  # (n, 2) shares
    marks: dict[int, list[int]] = {}  # first training run at a place -> all training runs there
    for i in range(len(trained)):
        first = next((j for j in marks if np.abs(places[j] - places[i]).max() < _SAME), i)
        marks.setdefault(first, []).append(i)
    for first, group in marks.items():
        rows = trained.iloc[group]
        _draw_mark(axes, (x[first], y[first]), rows, best in rows.index, norm)


def _draw_mark(axes: Axes, at: tuple[float, float], rows: pd.DataFrame, best: bool, norm: Normalize | None) -> None:
    """Draws the mark of the training runs at one place."""
    order, value = spans(rows["number"].astype(int).tolist()), rows["value"].to_numpy()[0]
    failed = bool(rows["failed"].all())
    ring = SURFACE
    if norm is not None and not failed and np.isfinite(value):
        ring = to_hex(colormaps[VALUES](float(norm(value * VALUE.factor))))
    layer = 5 if best else 4
    axes.scatter(
        *at,
        s=340,
        facecolor=ring,
        edgecolor=MUTED if failed else INK,
        linewidth=0.9,
        linestyle=(0, (2, 1.5)) if failed else "solid",
        zorder=layer,
        clip_on=False,
    )
    axes.scatter(*at, s=200, facecolor=FOUND if best else SURFACE, linewidth=0, zorder=layer + 0.1, clip_on=False)
    axes.annotate(
        order[0],
        at,
        ha="center",
        va="center_baseline",
        fontsize=11,
        color=SURFACE if best else INK,
        zorder=layer + 0.2,
        annotation_clip=False,
    )
    if len(order) > 1:
        axes.annotate(
            "+" + ", ".join(order[1:]),
            at,
            xytext=(10, 9),
            textcoords="offset points",
            fontsize=11,
            color=INK,
            zorder=7,
            annotation_clip=False,
            bbox={"facecolor": SURFACE, "edgecolor": "none", "pad": 1.2, "alpha": 0.85},
        )


def spans(order: list[int]) -> list[str]:
    """The first number, then the others with consecutive numbers joined: `[3, 5, 6, 7, 9]` gives `3`, `5–7`, `9`."""
    joined: list[list[int]] = []
    for number in order[1:]:
        if joined and joined[-1][1] == number - 1:
            joined[-1][1] = number
        else:
            joined.append([number, number])
    return [str(order[0])] + [str(a) if a == b else f"{a}–{b}" for a, b in joined]


# The path on the plane of the architectures that each point selects.

_UNTRAINED = (0.55, 0.58, 0.62, 0.22)  # transparent gray, for light and dark pages
_UNTRAINED_ODD = (0.55, 0.58, 0.62, 0.34)  # every other region, so that neighbors can be distinguished
_SCALE = 5  # pixels of the image per point of the plane: borders stay thin


@dataclass(frozen=True)
class _Landscape:
    pool: Pool
    objective: tables.Objective
    path: pd.DataFrame  # a row per suggestion, see `question_points`
    best: int | None  # the index label of the best trial
    values: dict[str, float]  # trained architecture -> value
    names: ShortNames

    @classmethod
    def of(cls, run: Run[Any]) -> "_Landscape":
        names, run = names_of(run), run.best
        questions, objective, pool = run.table(*SUGGESTIONS), tables.objective_of(run), tables.usable_pool(run)
        path = tables.question_points(questions)
        if objective is None or pool is None or path.empty:
            raise NothingToDraw(
                f"expected suggestions of (mu, nu) and a scored pool in {run.folder}, got none. Resume the run if its "
                "search has not finished"
            )
        scale = tables.PenaltyScale(pool, objective)
        path = path.assign(odds=[scale.odds(*pair) for pair in zip(path["mu"], path["nu"], strict=True)])
        best, values = tables.best_trial(questions), tables.values_by_architecture(questions)
        return cls(pool, objective, path, best, values, names)

    @cached_property
    def plane(self) -> tables.Plane:
        """The plane; it contains all points of the path."""
        odds = self.path["odds"]
        return tables.plane(self.pool, self.objective, (min(ODDS[0], odds.min()), max(ODDS[1], odds.max())))


@figure(height=430)
def hnas_landscape(run: Run[Any], canvas: Figure) -> None:
    """The path of the Bayesian optimizer of HNAS over (mu, nu), on the plane of the selected architectures."""
    landscape = _Landscape.of(run)
    axes = canvas.subplots()
    norm = quantile_scale(landscape.values) if landscape.values else None
    draw_plane(axes, landscape.plane, landscape.pool, landscape.values, norm)
    draw_path(axes, landscape.path, landscape.best, norm, landscape.names)
    mark_shares(axes.yaxis)
    if axes.get_xscale() == "log":
        figures.logarithmic(axes.xaxis)
    axes.set_xlabel("√ν: target of M, relative to the pool's maximum")
    axes.set_ylabel("μ: penalty share of the objective")
    if norm is not None:
        draw_scale(canvas, axes, norm)


def landscape_section(run: Run[Any]) -> Section:
    """The path on the landscape. None without trials with (mu, nu), or without a pool."""
    landscape = _Landscape.of(run)
    pool, path, ground = landscape.pool, landscape.path, landscape.plane
    rows = np.unique(ground.selected)
    best = next(iter(path[path.index == landscape.best].to_dict("records")), None)
    caption = _text(
        "landscape",
        penalty=landscape.objective.penalty,
        regions=rows.size,
        trained=sum(pool.architectures[row] in landscape.values for row in rows),
        value=VALUE.label,
        with_values=bool(landscape.values),
        repeats=int(path["repeat"].sum()),
        best=best is not None
        and {
            "number": int(best["number"]),
            "name": landscape.names.of(best["architecture"]),
            "share": tables.in_percent(as_float(best["odds"])),
            "root_nu": significant(np.sqrt(best["nu"])),
        },
        elsewhere=_elsewhere(path[~path["repeat"]], ground, pool),
        failures=bool(path["failed"].any()),
    )
    description = f"{count(len(path), 'numbered suggestion')} on the plane of mu and the square root of nu."
    title = "Search over μ and ν"
    return figure_section("landscape", title, hnas_landscape(run), description=description, caption=caption)


def draw_plane(axes: Axes, ground: tables.Plane, pool: Pool, values: dict[str, float], norm: Normalize | None) -> None:
    """Draws a region per selected architecture, colored by its value if it was trained, gray otherwise."""
    colors = colormaps[VALUES]
    image = np.empty((*ground.selected.shape, 4))
    for place, row in enumerate(np.unique(ground.selected)):
        value = values.get(pool.architectures[row])
        gray = _UNTRAINED_ODD if place % 2 else _UNTRAINED
        image[ground.selected == row] = (
            gray if value is None or norm is None else colors(float(norm(value * VALUE.factor)))
        )
    large = image.repeat(_SCALE, 0).repeat(_SCALE, 1)
    selected = ground.selected.repeat(_SCALE, 0).repeat(_SCALE, 1)
    border = np.zeros(selected.shape, dtype=bool)
    border[:, 1:] |= selected[:, 1:] != selected[:, :-1]
    border[1:, :] |= selected[1:, :] != selected[:-1, :]
    large[border] = (1.0, 1.0, 1.0, 0.55)
    # The image has evenly spaced pixels, so it has its own axes below the logarithmic ones.
    low, high = ground.root_nu[0], ground.root_nu[-1]
    axes.set_xscale("log" if low > 0 else "linear")
    axes.set_xlim(low, high)
    axes.set_yscale("log")
    axes.set_ylim(ground.odds[0], ground.odds[-1])
    under = axes.inset_axes((0.0, 0.0, 1.0, 1.0), zorder=-1)
    under.imshow(large, origin="lower", aspect="auto", interpolation="none", extent=(0, 1, 0, 1))
    under.set_axis_off()
    axes.patch.set_visible(False)
    axes.grid(False)


def _elsewhere(path: pd.DataFrame, ground: tables.Plane, pool: Pool) -> int:
    """The number of trials that trained an architecture other than the one that their point selects."""
    column = np.abs(ground.root_nu[:, None] - np.sqrt(path["nu"].to_numpy())).argmin(0)
    row = np.abs(np.log(ground.odds)[:, None] - np.log(path["odds"].to_numpy())).argmin(0)
    near = [
        {pool.architectures[int(k)] for k in ground.selected[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].flat}
        for i, j in zip(row, column, strict=True)
    ]
    return sum(name not in names for name, names in zip(path["architecture"], near, strict=True))


# The scatter plot of the pool: M and kappa of all scored architectures, with the trained ones marked.

_CLOUD = "#8b96a5"  # the points are an image, which does not follow the page's theme: a gray for light and dark
_SKEWED = 8  # ratio of the largest M to the median above which the axis of M is logarithmic
_MANY = 3000  # number of points above which they are drawn smaller and fainter


@figure(height=400)
def hnas_pool(run: Run[Any], canvas: Figure) -> None:
    """M and kappa of all scored architectures of HNAS, with the trained ones, the selected one, and its level line."""
    names, run = names_of(run), run.best
    pool, values = _pool(run), tables.values_by_architecture(run.table(*SUGGESTIONS))
    axes = canvas.subplots()
    draw_cloud(axes, pool)
    axes.set_xlabel(f"M: {run.config.proxy}, relative to the pool's maximum")
    axes.set_ylabel("κ, condition number")
    winner = tables.row_of(pool, run.architecture)
    if winner is not None and (level := _level(run, pool)) is not None:
        draw_level(axes, pool, winner, *level)
    rows = {row: value for name, value in values.items() if (row := tables.row_of(pool, name)) is not None}
    if rows:
        at = np.array(list(rows))
        scale = quantile_scale(values)
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
        figures.add_tooltips(axes, pool.metric[at], pool.kappa[at], texts)
    if winner is not None:
        x, y = pool.metric[winner], pool.kappa[winner]
        axes.scatter(x, y, s=240, facecolor="none", edgecolor=SURFACE, linewidth=5, zorder=4)
        axes.scatter(x, y, s=240, facecolor="none", edgecolor=FOUND, linewidth=2.4, zorder=5)


def pool_section(run: Run[Any]) -> Section:
    """The scatter plot of the pool. None if the pool has no objective."""
    names, best = names_of(run), run.best
    pool, trained = _pool(best), len(tables.values_by_architecture(best.table(*SUGGESTIONS)))
    winner, level = tables.row_of(pool, best.architecture), _level(best, pool)
    line = None
    if winner is not None and level is not None:
        values = tables.rank(pool, *level)
        mu, nu, objective = level
        line = {
            "share": tables.in_percent(tables.PenaltyScale(pool, objective).odds(mu, nu)),
            "root_nu": significant(math.sqrt(nu)),
            "below": int((values < values[winner]).sum()),
        }
    name = None if winner is None else names.of(best.architecture)
    caption = _text("pool", size=len(pool), excluded=pool.excluded, trained=trained, name=name, line=line)
    description = f"M and kappa of {count(len(pool), 'architecture')}, of which {trained} were trained."
    return figure_section(
        "pool", "Pool of scored architectures", hnas_pool(run), description=description, caption=caption
    )


def _pool(run: Run[Any]) -> Pool:
    pool = tables.usable_pool(run)
    if pool is None:
        raise NothingToDraw(
            f"expected a pool with finite {run.config.proxy} and kappa in {run.folder}, got none. Resume the run if "
            "its first stage has not finished"
        )
    return pool


def draw_cloud(axes: Axes, pool: Pool) -> None:
    """Draws all architectures of the pool, as an image, so that the size of the page does not depend on the pool."""
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
    figures.logarithmic(axes.yaxis)
    if pool.metric.max() > _SKEWED * np.median(pool.metric):
        axes.set_xscale("log")
        figures.logarithmic(axes.xaxis)


def draw_level(axes: Axes, pool: Pool, winner: int, mu: float, nu: float, how: tables.Objective) -> None:
    """Draws the line of all (M, kappa) with the objective of the selected architecture; points below are better."""
    limits = axes.get_xlim(), axes.get_ylim()
    value = float(tables.rank(pool, mu, nu, how)[winner])
    low, high = limits[0]
    m = np.geomspace(low, high, 400) if axes.get_xscale() == "log" else np.linspace(1e-3, high, 400)
    kappa = (m + how.epsilon) * (value - mu * distance(m, nu, how.penalty))  # the objective, solved for kappa
    axes.plot(m, np.where(kappa > 0, kappa, np.nan), color=FOUND, linewidth=1.3, linestyle=(0, (5, 3)), zorder=2)
    axes.set(xlim=limits[0], ylim=limits[1])


def _level(run: Run[Any], pool: Pool) -> tuple[float, float, tables.Objective] | None:
    """The (mu, nu) of the best trial, and the objective; None if another trial selected the architecture."""
    questions, objective = run.table(*SUGGESTIONS), tables.objective_of(run)
    best = tables.best_trial(questions)
    if best is None or objective is None or "architecture" not in questions:
        return None
    mu, nu = float(numbers(questions, "mu")[best]), float(numbers(questions, "nu")[best])
    same = questions["architecture"][best] == run.architecture and mu > 0 and nu >= 0
    return (mu, nu, objective) if same else None
