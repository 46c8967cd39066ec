"""The spread of repeats around their mean: a band from three repeats, and points for fewer."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import FillBetweenPolyCollection, PathCollection
from matplotlib.figure import Figure

from archray.platform.report.figures import draw_spread

CURVES = np.array([[5.0, 5.0, 3.0, 3.0], [6.0, 4.0, 4.0, 2.0], [7.0, 6.0, 5.0, 4.0]])


def spread_of(repeats: int) -> Axes:
    axes = Figure().subplots()
    draw_spread(axes, np.arange(4.0), CURVES[:repeats], np.full(4, 0.5), "#0068a8", -np.inf)
    return axes


def test_two_repeats_are_points_and_three_have_a_band() -> None:
    assert not spread_of(1).collections
    points = spread_of(2).collections
    assert all(type(drawn) is PathCollection for drawn in points)
    assert [drawn.get_offsets().tolist() for drawn in points] == [
        [[0, 5], [2, 3]],  # where a curve steps, not where it is constant
        [[0, 6], [1, 4], [3, 2]],
    ]
    (band,) = spread_of(3).collections
    assert isinstance(band, FillBetweenPolyCollection)
