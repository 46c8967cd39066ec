"""matplotlib drawings as inline SVG that takes its colours and its font from the page.

Matplotlib draws with placeholder colours; in the SVG each becomes a CSS variable, so one drawing is right on a light
and on a dark page. Nothing of matplotlib's global state is touched beyond the call.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from archray.platform.report.quantity import power_of_ten
from archray.platform.report.section import escape

# Placeholders, never seen: no colour map holds them, and black itself would be left out by matplotlib.
INK = "#010203"
MUTED = "#010204"
GRID = "#010205"
SURFACE = "#010206"
FOUND = "#010207"
RANDOM = "#010208"
TRIAL = "#010209"
GREEN = "#01020a"
PINK = "#01020b"
INDIGO = "#01020c"
_VARIABLES = {
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
    "svg.hashsalt": "archray",  # the same view gives the same page
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


@dataclass(frozen=True)
class Size:
    """The size of a drawing in CSS pixels."""

    width: int
    height: int


WIDE = Size(760, 380)
NARROW = Size(350, 330)


def plot(
    name: str,
    draw: Callable[[Figure, bool], None],
    *,
    description: str,
    wide: Size = WIDE,
    narrow: Size = NARROW,
) -> str:
    """Two inline SVGs of one drawing: for a wide screen and for a phone; the page's style shows one of them.

    Args:
        name: unique on the page; the ids inside the drawings start with it.
        draw: called with an empty figure, and whether it is the narrow one.
        description: what the drawing shows, for a reader who does not see it.
    """
    return "".join(
        f'<div class="plot {shape}" style="max-width:{size.width}px">'
        f"{_svg(f'{name}-{shape}', draw, size, description, shape == 'narrow')}</div>"
        for shape, size in (("wide", wide), ("narrow", narrow))
    )


def logarithmic(axis: Axis) -> None:
    """Ticks at powers of ten, written in Unicode."""
    axis.set_major_locator(LogLocator(10, numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: power_of_ten(round(np.log10(value))) if value > 0 else ""))
    axis.set_minor_formatter(NullFormatter())


def plain(axis: Axis) -> None:
    """A logarithmic axis of few decades: ticks at 1, 2 and 5 times powers of ten, written as plain numbers."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if high < 1000 * low else (1,), numticks=8))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _svg(name: str, draw: Callable[[Figure, bool], None], size: Size, description: str, narrow: bool) -> str:
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]  # the stubs know each key as a literal
        # 72 dots per inch: a point is a unit of the SVG is a CSS pixel.
        figure = Figure(figsize=(size.width / 72, size.height / 72), dpi=72, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure, narrow)
        buffer = io.StringIO()
        figure.savefig(
            buffer,
            format="svg",
            transparent=True,
            dpi=180,  # of what is rasterised inside; the SVG's units stay
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return _inline(buffer.getvalue(), name, size, description)


def _inline(svg: str, name: str, size: Size, description: str) -> str:
    """`svg` as it can stand in an HTML page beside others: no prologue, own ids, the page's colours and font."""
    body = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
    body = re.sub(r"<!--.*?-->", "", body, flags=re.S)
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.S)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.S)  # it would hold for the whole page
    body = re.sub(r"font-family: [^;\"]*;? ?", "", body)
    body = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", body)
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", body))
    body = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", body)
    body = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", body)
    body = body.replace("xlink:href", "href")
    for placeholder, variable in _VARIABLES.items():
        body = body.replace(placeholder, f"var({variable})")
    body = re.sub(r"(?<=[\d\s]) ?\n(?=[A-Zz])", " ", body)  # the breaks inside paths
    body = re.sub(r"\n\s*", "\n", body).strip()
    return f'<svg viewBox="0 0 {size.width} {size.height}" role="img" aria-label="{escape(description)}">{body}</svg>'
