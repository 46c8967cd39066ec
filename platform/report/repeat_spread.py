"""How far repeats spread around their mean curve: a band, or the repeats themselves as points where there are two."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

BAND = 3  # repeats that a band needs: from two it is no more than their distance, and looks like more


def draw_spread(axes: Axes, x: np.ndarray, each: np.ndarray, spread: np.ndarray, colour: str, least: float) -> None:
    """The spread of step curves around their mean; nothing for a single one.

    Args:
        x: (k,) from each to the next the curves are constant.
        each: (repeats, k) the curves.
        spread: (k,) half the height of the band.
        least: the band does not go below; for a logarithmic axis.
    """
    if len(each) >= BAND:
        mean, half = each.mean(axis=0), np.nan_to_num(spread)
        low = np.maximum(mean - half, least)
        axes.fill_between(x, low, mean + half, step="post", color=colour, alpha=0.16, linewidth=0)
    elif len(each) > 1:
        for curve in each:
            moved = np.flatnonzero(np.diff(curve, prepend=np.nan) != 0)  # its steps, the first value too
            axes.scatter(x[moved], curve[moved], s=22, color=colour, alpha=0.75, linewidth=0, zorder=3.5)


def spread_words(repeats: int, spread: str) -> str:
    """What a caption says of it: `bands one SPREAD on either side`, or that the points are the repeats."""
    return f"bands one {spread} on either side" if repeats >= BAND else "points are the two repeats"
