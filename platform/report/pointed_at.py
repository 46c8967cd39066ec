"""What a reader sees who points at a figure on the page: a text for each point or line, beside matplotlib's drawing.

A figure is drawn as always; its texts are kept beside it, and `drawing` lays them over the SVG as shapes that are not
seen, each with its `<title>`, which browsers show by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase

from archray.platform.report.section import escape

Texts = list[tuple[Axes, np.ndarray, str]]  # where, as (k, 2) data coordinates, one for a point; what

_RADIUS = 7  # of a point, as a finger or a pointer meets it, in units of the drawing
_VERTICES = 60  # of a line: its course, as far as a pointer can tell
_TEXTS: WeakKeyDictionary[FigureBase, Texts] = WeakKeyDictionary()


def tell_points(axes: Axes, x: Iterable[float], y: Iterable[float], texts: Iterable[str]) -> None:
    """A text for each point, in lines; a point that is not finite has none. The last of several is on top."""
    texts_of = _TEXTS.setdefault(axes.figure, [])
    for at_x, at_y, text in zip(x, y, texts, strict=True):
        if np.isfinite(at_x) and np.isfinite(at_y):
            texts_of.append((axes, np.array([[at_x, at_y]], dtype=float), text))


def tell_line(axes: Axes, x: Sequence[float], y: Sequence[float], text: str) -> None:
    """A text for a line; without a finite point it has none."""
    points = np.column_stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)])
    points = points[np.isfinite(points).all(axis=1)]
    if len(points):
        kept = np.unique(np.linspace(0, len(points) - 1, min(len(points), _VERTICES)).round().astype(int))
        _TEXTS.setdefault(axes.figure, []).append((axes, points[kept], text))


def shapes(canvas: Figure) -> str:
    """The texts of a figure that has been drawn, as SVG in its units; lines first, so that points are on top."""
    height = 72 * canvas.get_size_inches()[1]
    texts = sorted(_TEXTS.get(canvas, []), key=lambda shape: len(shape[1]) == 1)
    return "".join(_shape(axes.transData.transform(points), height, text) for axes, points, text in texts)


def _shape(places: np.ndarray, height: float, text: str) -> str:
    """places: (k, 2) from the lower left."""
    title = f"<title>{escape(text)}</title>"
    if len(places) == 1:
        x, y = places[0, 0], height - places[0, 1]
        return f'<circle class="spot" cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}">{title}</circle>'
    course = " ".join(f"{x:.0f},{height - y:.0f}" for x, y in places)
    return f'<polyline class="spot line" points="{course}">{title}</polyline>'
