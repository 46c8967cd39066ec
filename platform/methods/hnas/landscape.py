"""The path of the Bayesian optimiser over (mu, nu), on the plane of what each point selects. Shu 2022, Alg. 7.1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_hex
from matplotlib.figure import Figure

from archray.platform.methods.hnas.hnas_tables import (
    ASKED,
    VALUE,
    Objective,
    Plane,
    best_trial,
    objective_of,
    plane,
    trial_numbers,
    usable_pool,
    values_by_architecture,
)
from archray.platform.methods.hnas.value_colours import COLOURS, VALUES, draw_scale, quantile_scale
from archray.platform.number_words import significant
from archray.platform.report.figures import FOUND, INK, MUTED, SURFACE, NothingToDraw, drawing, figure, logarithmic
from archray.platform.report.section import Section, captioned
from archray.platform.report.table_columns import failures, flags, numbers
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.hnas.scored_pool import Pool

_UNTRAINED = (0.55, 0.58, 0.62, 0.22)  # a veil of grey, on a light and on a dark page
_UNTRAINED_ODD = (0.55, 0.58, 0.62, 0.34)  # the neighbour's, so that regions can be told apart
_SAME = 0.012  # points of the path nearer than this share of the axes are one
_SCALE = 5  # pixels of the image per point of the plane: borders stay thin


@dataclass(frozen=True)
class _Landscape:
    """What is drawn and told."""

    pool: Pool
    objective: Objective
    path: pd.DataFrame  # a row per question, see `asked_points`
    best: int | None  # the label of the best one
    known: dict[str, float]  # the value of each architecture that was trained

    @classmethod
    def of(cls, run: Run[Any]) -> _Landscape:
        run = run.best
        asked, objective, pool = run.table(*ASKED), objective_of(run), usable_pool(run)
        path = asked_points(asked)
        if objective is None or pool is None or path.empty:
            raise NothingToDraw(
                f"{run.folder} has no question about (mu, nu) with a pool to answer it; resume it if its search has "
                "not ended"
            )
        return cls(pool, objective, path, best_trial(asked), values_by_architecture(asked))


@figure(height=430)
def hnas_landscape(run: Run[Any], canvas: Figure) -> None:
    """The path of HNAS' Bayesian optimiser over (mu, nu), on the plane of the architectures that each point selects."""
    landscape = _Landscape.of(run)
    axes = canvas.subplots()
    norm = quantile_scale(landscape.known) if landscape.known else None
    draw_plane(axes, plane(landscape.pool, landscape.objective), landscape.pool, landscape.known, norm)
    draw_path(axes, landscape.path, landscape.best, norm)
    logarithmic(axes.yaxis)
    if axes.get_xscale() == "log":
        logarithmic(axes.xaxis)
    axes.set_xlabel("√ν: where the objective wants M to be (M over the pool's largest)")
    axes.set_ylabel("μ: how much that counts")
    if norm is not None:
        draw_scale(canvas, axes, norm)


def landscape_section(run: Run[Any]) -> Section:
    """The path on the landscape. Nothing without trials that asked for a (mu, nu), or without a pool to rank."""
    landscape = _Landscape.of(run)
    points = count(len(landscape.path), "point")
    description = f"The {points} asked for, numbered, over the plane of mu and the root of nu."
    content = drawing("landscape", hnas_landscape(run), description=description)
    return Section("landscape", "The search for μ and ν", captioned(content, _caption(landscape)))


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
    axes.set_ylim(ground.mu[0], ground.mu[-1])
    under = axes.inset_axes((0.0, 0.0, 1.0, 1.0), zorder=-1)
    under.imshow(large, origin="lower", aspect="auto", interpolation="none", extent=(0, 1, 0, 1))
    under.set_axis_off()
    axes.patch.set_visible(False)
    axes.grid(False)


def draw_path(axes: Axes, path: pd.DataFrame, best: int | None, norm: Normalize | None) -> None:
    """Trainings numbered in their order, their ring in the colour of their value; free questions are dots."""
    free = path[path["repeat"]]
    axes.scatter(
        np.sqrt(free["nu"]), free["mu"], s=16, color=SURFACE, edgecolor=INK, linewidth=0.8, zorder=3, clip_on=False
    )
    trained = path[~path["repeat"]]
    x, y = np.sqrt(trained["nu"].to_numpy()), trained["mu"].to_numpy()
    axes.plot(x, y, color=SURFACE, linewidth=3.2, alpha=0.65, zorder=3, clip_on=False)
    axes.plot(x, y, color=INK, linewidth=1.0, alpha=0.75, zorder=3, clip_on=False)
    places = axes.transAxes.inverted().transform(axes.transData.transform(np.column_stack([x, y])))  # (n, 2) shares
    marks: dict[int, list[int]] = {}  # the trainings of each, by the first of them
    for i in range(len(trained)):
        first = next((j for j in marks if np.abs(places[j] - places[i]).max() < _SAME), i)
        marks.setdefault(first, []).append(i)
    for first, group in marks.items():
        rows = trained.iloc[group]
        _draw_mark(axes, (x[first], y[first]), rows, best in rows.index, norm)


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


def _caption(landscape: _Landscape) -> str:
    pool, path, best = landscape.pool, landscape.path, landscape.best
    ground = plane(pool, landscape.objective)
    rows = np.unique(ground.selected)
    trained = sum(pool.architectures[row] in landscape.known for row in rows)
    penalty = "(M² − ν)²" if landscape.objective.penalty == "square" else "|M² − ν|"
    text = f"Each point (μ, ν) selects the architecture with the lowest κ/M + μ {penalty}. "
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
        number, mu, nu = path.loc[best, ["number", "mu", "nu"]].to_numpy(dtype=float)
        text += (
            f" The best one, filled, is number {int(number)}: μ = {significant(mu)}, √ν = {significant(np.sqrt(nu))}."
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
    row = np.abs(np.log(ground.mu)[:, None] - np.log(path["mu"].to_numpy())).argmin(0)
    near = [
        {pool.architectures[int(k)] for k in ground.selected[max(i - 1, 0) : i + 2, max(j - 1, 0) : j + 2].flat}
        for i, j in zip(row, column, strict=True)
    ]
    return sum(name not in names for name, names in zip(path["architecture"], near, strict=True))
