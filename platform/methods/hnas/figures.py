"""The colours of the trials' values in HNAS' figures: by quantile, so that one outlier does not take up the scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
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
from numpy.typing import NDArray

from archray.platform.methods.hnas.tables import (
    ASKED,
    VALUE,
    Objective,
    best_trial,
    names_of,
    objective_of,
    rank,
    row_of,
    trial_numbers,
    usable_pool,
    values_by_architecture,
)
from archray.platform.quantities import MISSING, significant
from archray.platform.report.figures import (
    FOUND,
    INK,
    MUTED,
    SURFACE,
    NothingToDraw,
    drawing,
    figure,
    logarithmic,
    tell_points,
)
from archray.platform.report.section import Section, ShortNames, captioned, failures, flags, numbers
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.hnas.objective import Pool, PoolCoordinates, distance, objective

VALUES = "viridis"  # even to the eye, also to a colour-blind one
_MARKS = (0.0, 0.25, 0.5, 0.75, 1.0)  # quantiles that the scale is marked at
COLOURS = "Colours go by rank: the scale is marked at the least value, the quartiles and the highest."


def quantile_scale(known: Mapping[str, float]) -> Normalize:
    """The share of the values known, in `VALUE`'s unit, that lie below one, from 0 to 1; between two it is linear."""
    values = np.unique(np.array(list(known.values())) * VALUE.factor)
    if values.size == 1:
        return Normalize(values[0] - 0.5, values[0] + 0.5)
    shares = np.linspace(0.0, 1.0, values.size)
    scale = FuncNorm(
        (lambda value: np.interp(value, values, shares), lambda share: np.interp(share, shares, values)),
        values[0],
        values[-1],
    )
    return scale


def draw_scale(canvas: Figure, axes: Axes, scale: Normalize) -> None:
    """The colour bar above the axes, marked at the least value, the quartiles and the highest."""
    bar = canvas.colorbar(ScalarMappable(scale, VALUES), ax=axes, label=VALUE.axis, location="top", aspect=30, pad=0.02)
    bar.outline.set_visible(False)
    marks = [float(scale.inverse(share)) for share in (_MARKS if isinstance(scale, FuncNorm) else (0.5,))]
    bar.set_ticks(marks, labels=[f"{mark:.1f}" for mark in marks])
    bar.minorticks_off()


# mu on a scale that means something: the share that its term has of the objective. Shu 2022, Eq. 7.7 (note H1).


_TICKS = (1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)  # shares that an axis is marked at
MEANING = (
    "μ is told as the penalty's share: what its term makes of the objective where both terms are at their medians over "
    "the pool. At 50 % they count alike, near 0 % κ/M decides alone, near 100 % the distance of M² from ν."
)


class PenaltyScale:
    """Between mu and odds, what the penalty has for each part of kappa/M, over one pool."""

    def __init__(self, pool: Pool, how: Objective) -> None:
        self._coordinates = PoolCoordinates(pool, how.penalty, (-2.0, 2.0))

    def unit(self, nu: float) -> float:
        """The mu at which both terms count alike."""
        return float(10 ** self._coordinates.log10_unit(math.sqrt(nu)))

    def odds(self, mu: float, nu: float) -> float:
        """NaN without a mu and a nu."""
        return mu / self.unit(nu) if mu > 0 and nu >= 0 else math.nan

    def all_odds(self, mu: NDArray[np.float64], nu: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([self.odds(*pair) for pair in zip(mu, nu, strict=True)])


def in_percent(odds: float) -> str:
    """The share of the odds, in percent without its sign: `83`, `0.4`, `99.7`; a dash of NaN."""
    if math.isnan(odds):
        return MISSING
    share, rest = 100 * odds / (1 + odds), 100 / (1 + odds)
    if 1 <= share <= 99:
        return f"{share:.0f}"
    one_digit = Decimal(f"{min(share, rest):.1g}")  # of the smaller side: `99.997`, not `100`
    return format(one_digit if share < 1 else 100 - one_digit, "f")


def mark_shares(axis: Axis) -> None:
    """Ticks at shares on a logarithmic axis of odds."""
    low, high = axis.get_view_interval()
    odds = [share / (1 - share) for share in _TICKS]
    axis.set_major_locator(FixedLocator([value for value in odds if low <= value * 1.001 and value <= high * 1.001]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{in_percent(value)} %"))


# Which architecture of the pool each (mu, nu) selects. Shu 2022, Eq. 7.7.


ODDS = (0.01, 100.0)  # of the penalty, that a plane has at least: a share from 1 % to 99 %, the default of the search
_GRID = 144  # points of the plane on either axis: finer than a region that can be seen


@dataclass(frozen=True)
class Plane:
    """Which architecture each (mu, nu) selects."""

    root_nu: NDArray[np.float64]  # (w,) evenly spaced, in its logarithm if it does not begin at 0
    odds: NDArray[np.float64]  # (h,) of the penalty, evenly spaced in their logarithm; see `PenaltyScale`
    mu: NDArray[np.float64]  # (h, w) that have these odds at each nu
    selected: NDArray[np.int64]  # (h, w) rows of the pool


def plane(pool: Pool, how: Objective, odds: tuple[float, float] = ODDS) -> Plane:
    """The plane of (odds, sqrt(nu)) over the bounds of both, by the objective that the search itself used."""
    root_nu = (np.geomspace if how.root_nu_bounds[0] > 0 else np.linspace)(*how.root_nu_bounds, _GRID)
    scale, rising = PenaltyScale(pool, how), np.geomspace(*odds, _GRID)
    mu = rising[:, None] * np.array([scale.unit(root**2) for root in root_nu.tolist()])  # (h, w)
    selected = np.empty(mu.shape, dtype=np.int64)
    quotient = pool.kappa / (pool.metric + how.epsilon)
    rising_quotient = np.argsort(quotient, kind="stable")
    for j, root in enumerate(root_nu.tolist()):
        far = distance(pool.metric[rising_quotient], root**2, how.penalty)
        nearest = np.minimum.accumulate(np.concatenate([[np.inf], far[:-1]]))
        rows = rising_quotient[far < nearest]  # no other row has both a smaller kappa/M and a smaller penalty
        weights: Any = mu[:, j, None]
        values = objective(pool.kappa[rows], pool.metric[rows], weights, root**2, how.penalty, how.epsilon)  # (h, rows)
        selected[:, j] = rows[values.argmin(1)]
    return Plane(root_nu, rising, mu, selected)


# The path of HNAS' Bayesian optimiser: what it asked, and its marks over the plane. Shu 2022, Alg. 7.1.


_SAME = 0.012  # points of the path nearer than this share of the axes are one


def asked_points(asked: pd.DataFrame) -> pd.DataFrame:
    """The questions: `number` of the training, `mu`, `nu`, `repeat`, ...; the index is that of the trials."""
    path = pd.DataFrame(
        {
            "number": trial_numbers(asked),
            "mu": numbers(asked, "mu"),
            "nu": numbers(asked, "nu"),
            "failed": failures(asked).notna(),
            "repeat": flags(asked, "repeat"),
            "value": numbers(asked, "value"),
            "architecture": asked.get("architecture"),
        }
    )
    return path[(path["mu"] > 0) & (path["nu"] >= 0) & (path["number"].notna() | path["repeat"])]


def draw_path(axes: Axes, path: pd.DataFrame, best: int | None, norm: Normalize | None, names: ShortNames) -> None:
    """Trainings numbered in their order, their ring in the colour of their value; free questions are dots."""
    free = path[path["repeat"]]
    axes.scatter(
        np.sqrt(free["nu"]), free["odds"], s=16, color=SURFACE, edgecolor=INK, linewidth=0.8, zorder=3, clip_on=False
    )
    trained = path[~path["repeat"]]
    x, y = np.sqrt(trained["nu"].to_numpy()), trained["odds"].to_numpy()
    axes.plot(x, y, color=SURFACE, linewidth=3.2, alpha=0.65, zorder=3, clip_on=False)
    axes.plot(x, y, color=INK, linewidth=1.0, alpha=0.75, zorder=3, clip_on=False)
    tell_points(axes, np.sqrt(path["nu"]), path["odds"], [_told(row, names) for row in path.to_dict("records")])
    places = axes.transAxes.inverted().transform(axes.transData.transform(np.column_stack([x, y])))  # (n, 2) shares
    marks: dict[int, list[int]] = {}  # the trainings of each, by the first of them
    for i in range(len(trained)):
        first = next((j for j in marks if np.abs(places[j] - places[i]).max() < _SAME), i)
        marks.setdefault(first, []).append(i)
    for first, group in marks.items():
        rows = trained.iloc[group]
        _draw_mark(axes, (x[first], y[first]), rows, best in rows.index, norm)


def _told(row: dict[Any, Any], names: ShortNames) -> str:
    """What a point of the path says of itself."""
    what = "known already, not trained again" if row["repeat"] else f"training {row['number']:.0f}"
    what += ", failed" if row["failed"] else ""
    where = f"μ = {significant(row['mu'])}, {in_percent(row['odds'])} % of the objective; ν = {significant(row['nu'])}"
    return f"{names.of(row['architecture'])}: {what}\n{VALUE.label} {VALUE.show(row['value'])}\n{where}"


def _draw_mark(axes: Axes, at: tuple[float, float], rows: pd.DataFrame, best: bool, norm: Normalize | None) -> None:
    """The mark of the trainings at one place."""
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
    """The first number, then the others with consecutive ones joined: `[3, 5, 6, 7, 9]` gives `3`, `5–7`, `9`."""
    joined: list[list[int]] = []
    for number in order[1:]:
        if joined and joined[-1][1] == number - 1:
            joined[-1][1] = number
        else:
            joined.append([number, number])
    return [str(order[0])] + [str(a) if a == b else f"{a}–{b}" for a, b in joined]


# The path of the Bayesian optimiser over (mu, nu), on the plane of what each point selects. Shu 2022, Alg. 7.1.


_UNTRAINED = (0.55, 0.58, 0.62, 0.22)  # a veil of grey, on a light and on a dark page
_UNTRAINED_ODD = (0.55, 0.58, 0.62, 0.34)  # the neighbour's, so that regions can be told apart
_SCALE = 5  # pixels of the image per point of the plane: borders stay thin


@dataclass(frozen=True)
class _Landscape:
    """What is drawn and told."""

    pool: Pool
    objective: Objective
    path: pd.DataFrame  # a row per question, see `asked_points`
    best: int | None  # the label of the best one
    known: dict[str, float]  # the value of each architecture that was trained
    names: ShortNames

    @classmethod
    def of(cls, run: Run[Any]) -> _Landscape:
        names, run = names_of(run), run.best
        asked, objective, pool = run.table(*ASKED), objective_of(run), usable_pool(run)
        path = asked_points(asked)
        if objective is None or pool is None or path.empty:
            raise NothingToDraw(
                f"{run.folder} has no question about (mu, nu) with a pool to answer it; resume it if its search has "
                "not ended"
            )
        odds = PenaltyScale(pool, objective).all_odds(path["mu"].to_numpy(), path["nu"].to_numpy())
        return cls(pool, objective, path.assign(odds=odds), best_trial(asked), values_by_architecture(asked), names)

    @cached_property
    def plane(self) -> Plane:
        """It holds all points of the path."""
        odds = self.path["odds"]
        return plane(self.pool, self.objective, (min(ODDS[0], odds.min()), max(ODDS[1], odds.max())))


@figure(height=430)
def hnas_landscape(run: Run[Any], canvas: Figure) -> None:
    """The path of HNAS' Bayesian optimiser over (mu, nu), on the plane of the architectures that each point selects."""
    landscape = _Landscape.of(run)
    axes = canvas.subplots()
    norm = quantile_scale(landscape.known) if landscape.known else None
    draw_plane(axes, landscape.plane, landscape.pool, landscape.known, norm)
    draw_path(axes, landscape.path, landscape.best, norm, landscape.names)
    mark_shares(axes.yaxis)
    if axes.get_xscale() == "log":
        logarithmic(axes.xaxis)
    axes.set_xlabel("√ν: where the objective wants M to be (M over the pool's largest)")
    axes.set_ylabel("μ: its term's share of the objective")
    if norm is not None:
        draw_scale(canvas, axes, norm)


def landscape_section(run: Run[Any]) -> Section:
    """The path on the landscape. Nothing without trials that asked for a (mu, nu), or without a pool to rank."""
    landscape = _Landscape.of(run)
    points = count(len(landscape.path), "point")
    description = f"The {points} asked for, numbered, over the plane of mu and the root of nu."
    content = drawing("landscape", hnas_landscape(run), description=description)
    return Section("landscape", "The search for μ and ν", captioned(content, _landscape_caption(landscape)))


def draw_plane(axes: Axes, ground: Plane, pool: Pool, known: dict[str, float], norm: Normalize | None) -> None:
    """A region per selected architecture: coloured by its value if it was trained, grey if not."""
    colours = colormaps[VALUES]
    image = np.empty((*ground.selected.shape, 4))
    for place, row in enumerate(np.unique(ground.selected)):
        value = known.get(pool.architectures[row])
        grey = _UNTRAINED_ODD if place % 2 else _UNTRAINED
        image[ground.selected == row] = (
            grey if value is None or norm is None else colours(float(norm(value * VALUE.factor)))
        )
    large = image.repeat(_SCALE, 0).repeat(_SCALE, 1)
    selected = ground.selected.repeat(_SCALE, 0).repeat(_SCALE, 1)
    border = np.zeros(selected.shape, dtype=bool)
    border[:, 1:] |= selected[:, 1:] != selected[:, :-1]
    border[1:, :] |= selected[1:, :] != selected[:-1, :]
    large[border] = (1.0, 1.0, 1.0, 0.55)
    # Drawn over logarithms, in a coordinate system of its own: an image has even pixels.
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


def _landscape_caption(landscape: _Landscape) -> str:
    pool, path, best = landscape.pool, landscape.path, landscape.best
    ground = landscape.plane
    rows = np.unique(ground.selected)
    trained = sum(pool.architectures[row] in landscape.known for row in rows)
    penalty = "(M² − ν)²" if landscape.objective.penalty == "square" else "|M² − ν|"
    text = f"Each point (μ, ν) selects the architecture with the lowest κ/M + μ {penalty}. "
    text += f"{MEANING} "
    text += (
        f"The plane falls into {count(rows.size, 'region')}, one per architecture selected; the {trained} that were "
        f"trained have the colour of their {VALUE.label}, grey was never trained."
        if rows.size > 1
        else "Here every point selects one and the same: within these bounds κ/M alone decides."
    )
    text += " The numbers are the trainings in their order, joined by a line; the ring of each has the colour of the "
    text += f"{VALUE.label} it reached."
    text += f" {COLOURS}" if landscape.known else ""
    if path["repeat"].any():
        text += (
            f" Small dots are {count(int(path['repeat'].sum()), 'further question')} of the Bayesian optimiser that "
            "selected an architecture known already, and were answered without a training."
        )
    if best is not None and best in path.index:
        number, odds, nu = (float(path[name][best]) for name in ("number", "odds", "nu"))
        text += (
            f" The best one, filled, is number {int(number)}, {landscape.names.of(path['architecture'][best])}: a "
            f"share of {in_percent(odds)} %, √ν = {significant(np.sqrt(nu))}."
        )
    elsewhere = _elsewhere(path[~path["repeat"]], ground, pool)
    if elsewhere:
        text += (
            f" {count(elsewhere, 'training')} took another architecture than the one the point selects: "
            "that one was known already, and the objective's next best took its place."
        )
    if path["failed"].any():
        text += " A dashed ring is a training that failed."
    return text


def _elsewhere(path: pd.DataFrame, ground: Plane, pool: Pool) -> int:
    """How many trials trained another architecture than the plane has at their point."""
    column = np.abs(ground.root_nu[:, None] - np.sqrt(path["nu"].to_numpy())).argmin(0)
    row = np.abs(np.log(ground.odds)[:, None] - np.log(path["odds"].to_numpy())).argmin(0)
    near = [
        {pool.architectures[int(k)] for k in ground.selected[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].flat}
        for i, j in zip(row, column, strict=True)
    ]
    return sum(name not in names for name, names in zip(path["architecture"], near, strict=True))


# The pool's scatter: M against kappa of every scored architecture, the evaluated ones and the winner marked.


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
    return Section("pool", "The pool", captioned(content, _scatter_caption(run, pool, len(known), names)))


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


def _scatter_caption(run: Run[Any], pool: Pool, trained: int, names: ShortNames) -> str:
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
