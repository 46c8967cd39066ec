"""The trainings of the search as a path over (mu, nu), as it is drawn on the landscape."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from archray.platform.methods.hnas.hnas_tables import VALUE
from archray.platform.methods.hnas.pool_scatter import VALUES
from archray.platform.report.figures import FOUND, INK, MUTED, SURFACE

_SAME = 0.012  # points nearer than this share of the axes are one point of the path


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
    drawn: list[list[int]] = []
    for i in range(len(trained)):
        near = next((group for group in drawn if np.abs(places[group[0]] - places[i]).max() < _SAME), None)
        if near is None:
            drawn.append([i])
        else:
            near.append(i)
    for group in drawn:
        rows = trained.iloc[group]
        _draw_mark(axes, (x[group[0]], y[group[0]]), rows, best is not None and best in rows.index, norm)


def _draw_mark(axes: Axes, at: tuple[float, float], rows: pd.DataFrame, best: bool, norm: Normalize | None) -> None:
    """The mark of the trainings at one place."""
    order, value = spans(rows["number"].astype(int).tolist()), rows["value"].to_numpy()[0]
    failed = bool(rows["failed"].all())
    known = norm is not None and not failed and np.isfinite(value)
    layer = 5 if best else 4
    axes.scatter(
        *at,
        s=340,
        facecolor=colormaps[VALUES](float(norm(value * VALUE.factor))) if known and norm is not None else SURFACE,
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
