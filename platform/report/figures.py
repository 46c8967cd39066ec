"""Figures of a run, in matplotlib for a notebook and as inline SVG with the page's colors.

A figure is a public function of a run in `archray.plots`, such as `hnas_landscape(run) -> Figure`. It uses the colors
of a light page. In the SVG each color becomes a CSS variable, so that one drawing fits light and dark pages. The
functions do not change matplotlib's global state.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from textwrap import wrap
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from archray.errors import InvalidInput
from archray.platform.quantities import power_of_ten
from archray.platform.report.section import Section, captioned, escape

# Tooltips of points and lines: (k, 2) data coordinates, k = 1 for a point; the text.
Texts = list[tuple[Axes, np.ndarray, str]]

_RADIUS = 7  # radius of a point's tooltip area, in units of the drawing
_VERTICES = 60  # maximum vertices of a line's tooltip area
_TEXTS: WeakKeyDictionary[FigureBase, Texts] = WeakKeyDictionary()


def add_tooltips(axes: Axes, x: Iterable[float], y: Iterable[float], texts: Iterable[str]) -> None:
    """Adds a tooltip to each finite point; of overlapping points, the last is on top."""
    texts_of = _TEXTS.setdefault(axes.figure, [])
    for at_x, at_y, text in zip(x, y, texts, strict=True):
        if np.isfinite(at_x) and np.isfinite(at_y):
            texts_of.append((axes, np.array([[at_x, at_y]], dtype=float), text))


def add_line_tooltip(axes: Axes, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, text: str) -> None:
    """Adds a tooltip to a line with a finite point."""
    points = np.column_stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)])
    points = points[np.isfinite(points).all(axis=1)]
    if len(points):
        kept = evenly_spaced(len(points), _VERTICES)
        _TEXTS.setdefault(axes.figure, []).append((axes, points[kept], text))


def evenly_spaced(number: int, most: int) -> np.ndarray:
    """Returns the indices of at most `most` of `number` items, with the first and the last; all if there are fewer."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).round().astype(int))


def shapes(canvas: Figure) -> str:
    """Returns the tooltips of a drawn figure as SVG in its units; lines come first, so that points are on top."""
    height = 72 * canvas.get_size_inches()[1]
    texts = sorted(_TEXTS.get(canvas, []), key=lambda shape: len(shape[1]) == 1)
    parts = []
    for axes, points, text in texts:
        places = axes.transData.transform(points)  # (k, 2), origin at the lower left
        title = f"<title>{escape(text)}</title>"
        if len(places) == 1:
            x, y = places[0, 0], height - places[0, 1]
            parts.append(f'<circle class="spot" cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}">{title}</circle>')
        else:
            course = " ".join(f"{x:.0f},{height - y:.0f}" for x, y in places)
            parts.append(f'<polyline class="spot line" points="{course}">{title}</polyline>')
    return "".join(parts)


# The colors of a light page in page.css. They are distinct, and no color map contains them.
INK = "#1b1d20"
MUTED = "#62676d"
GRID = "#e9e9e5"
SURFACE = "#fdfdfc"
FOUND = "#0068a8"
RANDOM = "#c05600"
TRIAL = "#7a8087"
GREEN = "#009e73"
PINK = "#c4659a"
INDIGO = "#4a4fb0"
SERIES = (FOUND, RANDOM, GREEN, PINK, INDIGO, TRIAL, INK)  # colors of several series, in this order
DASHED: dict[str, Any] = {"color": MUTED, "linewidth": 1, "linestyle": (0, (4, 3))}  # style of a reference line
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    SURFACE: "--surface",
    FOUND: "--found",
    RANDOM: "--random",
    TRIAL: "--trial",
    GREEN: "--op-1",
    PINK: "--op-4",
    INDIGO: "--op-6",
}

_STYLE = {
    "svg.fonttype": "none",  # text stays text: selectable, and in the page's font
    "svg.hashsalt": "archray",  # makes pages reproducible
    "font.size": 12,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": 12,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 11,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 11,
    "legend.frameon": False,
    "legend.fontsize": 11,
    "legend.labelcolor": INK,
    "lines.solid_capstyle": "round",
}


WIDTH = 500  # width of a drawing; a page scales it, so that text of size 12 is 15 px, or 8 px on a phone

_SHORTEST_LINE = 8  # minimum characters per line of a broken title
ShownT = TypeVar("ShownT")  # a run, or several to compare


class NothingToDraw(InvalidInput):
    """The run does not have the data of a figure."""


Of = Literal["run", "summaries", "progress", "bench"]
FIGURES: dict[str, tuple[Of, Callable[[Any], Figure]]] = {}  # by name, in the order of import: `archray.plots`


def figure(height: int, of: Of = "run") -> Callable[[Callable[[ShownT, Figure], None]], Callable[[ShownT], Figure]]:
    """Registers `draw(run, canvas)` as a figure of `archray.plots` of the size WIDTH x height.

    The figure raises NothingToDraw if the run has no data for it.

    Args:
        height: height of the figure; `draw` may set another height.
        of: input of the figure: a run, the summaries or the progress of several runs, or a bench.
    """

    def decorate(draw: Callable[[ShownT, Figure], None]) -> Callable[[ShownT], Figure]:
        @wraps(draw, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
        def make(run: ShownT) -> Figure:
            with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # the stubs define each key as a literal
                # at 72 dots per inch, a point is a unit of the SVG
                canvas = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, layout="constrained")
                FigureCanvasSVG(canvas)
                draw(run, canvas)
            return canvas

        del make.__wrapped__  # otherwise `help` shows the signature of `draw`
        FIGURES[draw.__name__] = of, make
        return make

    return decorate


def figure_section(
    anchor: str, title: str, canvas: Figure, *, description: str, caption: str, above: str = "", below: str = ""
) -> Section:
    """Creates a section of one captioned figure, between the HTML of `above` and `below`.

    Args:
        description: description of the figure for screen readers.
        caption: plain text.
    """
    content = captioned(drawing(anchor, canvas, description=description), caption)
    return Section(anchor, title, above + content + below)


def panels(canvas: Figure, number: int, columns: int, *, row: int, head: int = 0, **options: Any) -> list[Axes]:
    """Creates axes of `number` panels in rows of `columns`, row by row.

    Args:
        row: height of a row.
        head: height above the rows, for a legend.
        options: options of `Figure.subplots`, such as `sharey`.
    """
    columns = min(columns, number)
    rows = math.ceil(number / columns)
    set_height(canvas, head + row * rows)
    axes = list(canvas.subplots(rows, columns, squeeze=False, **options).flat)
    for blank in axes[number:]:
        blank.set_visible(False)
    return axes[:number]


def drawing(name: str, canvas: Figure, *, description: str) -> str:
    """Converts a figure to inline SVG with unique ids and the page's colors and font.

    Args:
        name: name, unique on the page; the ids in the drawing start with it.
        description: description for screen readers.
    """
    text = io.StringIO()
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        _lay_out(canvas)
        canvas.savefig(
            text,
            format="svg",
            transparent=True,
            dpi=180,  # resolution of rasterized content; the units of the SVG do not change
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    width, height = (round(72 * inches) for inches in canvas.get_size_inches())
    svg = text.getvalue()
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.S)  # styles would apply to the whole page
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)  # the page sets the font
    body = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", body)
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", body))
    body = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", body)
    body = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", body)
    body = body.replace("xlink:href", "href")
    for color, variable in VARIABLES.items():
        body = body.replace(color, f"var({variable})")
    body = re.sub(r"(?<=[\d\s]) ?\n(?=[A-Zz])", " ", body)  # line breaks in paths
    body = re.sub(r"\n\s*", "\n", body).strip() + shapes(canvas)
    image = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(description)}">{body}</svg>'
    return f'<div class="plot">{image}</div>'


def _lay_out(canvas: Figure) -> None:
    """Computes the final layout of the panels, and breaks titles that are wider than their panel.

    The next panel or the edge of the drawing would otherwise cut them.
    """
    canvas.draw_without_rendering()
    broken = False
    for axes in canvas.axes:
        text, space = axes.get_title("left"), axes.get_window_extent().width
        widths = [
            child.get_window_extent().width
            for child in axes.get_children()
            if isinstance(child, Text) and child.get_text() == text
        ]
        if axes.get_visible() and text and (width := max(widths, default=0.0)) > space:
            longest = max(map(len, text.splitlines()))
            most = max(int(longest * space / width), _SHORTEST_LINE)
            axes.set_title("\n".join(part for line in text.splitlines() for part in wrap(line, most)))
            broken = True
    if broken:
        canvas.draw_without_rendering()
    canvas.set_layout_engine("none")  # otherwise `savefig` repeats the layout, which takes as long as drawing


def set_height(canvas: Figure, height: int) -> None:
    """Sets the height of a figure, in the units of `figure`, to fit the content of the run."""
    canvas.set_size_inches(WIDTH / 72, height / 72)


def few_ticks(axes: Axes, x: int, y: int = 5, *, integer: bool = False) -> None:
    """Sets approximate numbers of ticks on both axes.

    Args:
        integer: whether horizontal ticks are only at integers.
    """
    axes.xaxis.set_major_locator(MaxNLocator(x, integer=integer))
    axes.yaxis.set_major_locator(MaxNLocator(y))


def logarithmic(axis: Axis) -> None:
    """Sets ticks at powers of ten, written in Unicode."""
    axis.set_major_locator(LogLocator(10, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(round(np.log10(value))) if value > 0 else ""))
    axis.set_minor_formatter(NullFormatter())


def plain(axis: Axis) -> None:
    """Formats a logarithmic axis of few decades: ticks at 1, 2 and 5 times powers of ten, as plain numbers."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if high < 1000 * low else (1,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


BAND = 3  # minimum repeats of a band; with two, a band would only show their distance


def draw_spread(axes: Axes, x: np.ndarray, curves: np.ndarray, spread: np.ndarray, color: str, least: float) -> None:
    """Draws the spread of step curves around their mean; draws nothing for a single curve.

    Args:
        x: (k,) positions; curves are constant from one position to the next.
        curves: (repeats, k).
        spread: (k,) half the height of the band.
        least: lower limit of the band, for a logarithmic axis.
    """
    if len(curves) >= BAND:
        mean, half = curves.mean(axis=0), np.nan_to_num(spread)
        low = np.maximum(mean - half, least)
        axes.fill_between(x, low, mean + half, step="post", color=color, alpha=0.16, linewidth=0)
    elif len(curves) > 1:
        for curve in curves:
            moved = np.flatnonzero(np.diff(curve, prepend=np.nan) != 0)  # its steps, including the first value
            axes.scatter(x[moved], curve[moved], s=22, color=color, alpha=0.75, linewidth=0, zorder=3.5)


def spread_words(repeats: int, spread: str) -> str:
    """Returns the text for a caption: bands of one SPREAD, or points of the two repeats."""
    return f"bands show one {spread} on either side" if repeats >= BAND else "points show the two repeats"
