"""The path of the Bayesian optimiser over (mu, nu), on the plane of what each point selects. Shu 2022, Alg. 7.1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from archray.platform.methods.hnas.hnas_tables import (
    ASKED,
    VALUE,
    Objective,
    best_trial,
    names_of,
    objective_of,
    usable_pool,
    values_by_architecture,
)
from archray.platform.methods.hnas.mu_nu_path import asked_points, draw_path
from archray.platform.methods.hnas.mu_nu_plane import ODDS, Plane, plane
from archray.platform.methods.hnas.penalty_share import MEANING, PenaltyScale, in_percent, mark_shares
from archray.platform.methods.hnas.value_colours import COLOURS, VALUES, draw_scale, quantile_scale
from archray.platform.quantities import significant
from archray.platform.report.figures import NothingToDraw, drawing, figure, logarithmic
from archray.platform.report.section import Section, captioned
from archray.platform.report.short_names import ShortNames
from archray.platform.run.run import Run
from archray.plurals import count
from archray.searchers.hnas.objective import Pool

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
    return Section("landscape", "The search for μ and ν", captioned(content, _caption(landscape)))


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


def _caption(landscape: _Landscape) -> str:
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
