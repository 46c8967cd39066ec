"""The colours of the trials' values in HNAS' figures: by quantile, so that one outlier does not take up the scale."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import FuncNorm, Normalize
from matplotlib.figure import Figure

from archray.platform.methods.hnas.hnas_tables import VALUE

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
