"""The path of HNAS' Bayesian optimiser: what it asked, and its marks over the plane. Shu 2022, Alg. 7.1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_hex

from archray.platform.methods.hnas.hnas_tables import VALUE, trial_numbers
from archray.platform.methods.hnas.penalty_share import in_percent
from archray.platform.methods.hnas.value_colours import VALUES
from archray.platform.quantities import significant
from archray.platform.report.figures import FOUND, INK, MUTED, SURFACE
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.short_names import ShortNames
from archray.platform.report.table_columns import failures, flags, numbers

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
