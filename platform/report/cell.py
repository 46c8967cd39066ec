"""The found architecture, drawn: a cell's graph where decisions are edges, else the table of its decisions."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from archray.platform.report.section import Column, Section, escape, figure, table
from archray.platform.report.view import Decided, RunView

_EDGE = re.compile(r"^(\d+)<-(\d+)$")  # `3<-1`: an edge into node 3 from node 1
_ABSENT = frozenset({"none", "zero", "zeroize"})  # operations that are no connection at all
_IDENTITY = frozenset({"skip_connect", "identity", "skip"})

_RADIUS = 17.0
_ARC = 86.0  # how far the arc of an edge over one node stands off the line of nodes
_ARC_STEP = 50.0  # and each further level
_CHARACTER = 7.3  # width of a character of the monospaced labels, 12 px
_LABEL_CHARACTERS = 16  # longer operation names are cut in the drawing; the table below has them whole


@dataclass(frozen=True)
class Edge:
    """One edge of the cell: from node `start` to node `end`, computing `operation`, with a colour number."""

    start: int
    end: int
    operation: str
    colour: int | None  # None: an identity, drawn in the ink's own grey
    live: bool  # on a path from the input to the output
    level: int  # 0 straight, positive above the line of nodes, negative below


def cell_section(view: RunView) -> Section | None:
    """The cell as a graph, or the decisions as a table. Nothing if the decisions are not known."""
    if not view.decisions:
        return None
    if not all(_EDGE.match(decision.name) for decision in view.decisions):
        body = _decision_table(view.decisions)
        return Section("cell", "What was found", body)
    edges = cell_edges(view.decisions)
    nodes = 1 + max(max(edge_ends(decision.name)) for decision in view.decisions)
    absent = len(view.decisions) - len(edges)
    drawing = "".join(
        f'<div class="plot {shape}" style="max-width:{width}px">{svg}</div>'
        for shape, (svg, width) in (
            ("wide", draw_cell(edges, nodes, upright=False)),
            ("narrow", draw_cell(edges, nodes, upright=True)),
        )
    )
    caption = (
        "The found cell. Circles are feature maps, from the cell's input (node 0) to its output "
        f"(node {nodes - 1}); an arrow applies its operation, and a node sums what reaches it."
    )
    if absent:
        caption += f" {absent} of {len(view.decisions)} edges are “none” and not drawn."
    if any(not edge.live for edge in edges):
        caption += " Faint arrows lie on no path from input to output: they do not change what the cell computes."
    return Section("cell", "The cell", figure(drawing, caption) + _details(view.decisions))


def edge_ends(name: str) -> tuple[int, int]:
    """The nodes an edge joins: `"3<-1"` gives `(1, 3)`."""
    match = _EDGE.match(name)
    if match is None:
        raise ValueError(f"expected an edge's name such as '3<-1', got {name!r}")
    return int(match[2]), int(match[1])


def cell_edges(decisions: Sequence[Decided]) -> list[Edge]:
    """The edges that are there, placed: arcs over the same nodes on either side of the line, or further out."""
    present = [(*edge_ends(d.name), d) for d in decisions if d.choice not in _ABSENT]
    forwards = _reach([(start, end) for start, end, _ in present], 0)
    output = max(end for end in (edge_ends(d.name)[1] for d in decisions))
    backwards = _reach([(end, start) for start, end, _ in present], output)
    levels: dict[tuple[int, int], int] = {}
    for start, end, _ in sorted(present, key=lambda edge: (edge[1] - edge[0], edge[0])):
        levels[start, end] = 0 if end - start == 1 else _free_level(start, end, levels)
    return [
        Edge(
            start,
            end,
            d.choice,
            None if d.choice in _IDENTITY else _colour(d),
            start in forwards and end in backwards,
            levels[start, end],
        )
        for start, end, d in present
    ]


def _reach(edges: list[tuple[int, int]], source: int) -> set[int]:
    """The nodes that can be reached from `source`."""
    seen, waiting = {source}, [source]
    while waiting:
        node = waiting.pop()
        for end in (end for start, end in edges if start == node and end not in seen):
            seen.add(end)
            waiting.append(end)
    return seen


def _free_level(start: int, end: int, taken: dict[tuple[int, int], int]) -> int:
    """The level nearest to the line that no arc over the same nodes has; above before below."""
    level = 1
    while True:
        for side in (level, -level):
            if not any(l == side and s < end and start < e for (s, e), l in taken.items()):
                return side
        level += 1


def _colour(decision: Decided) -> int:
    """The number of an operation's colour: its place among the choices that have one, the same in every report."""
    coloured = [c for c in decision.choices if c not in _ABSENT and c not in _IDENTITY]
    return coloured.index(decision.choice) % 6 + 1 if decision.choice in coloured else 6


def draw_cell(edges: Sequence[Edge], nodes: int, *, upright: bool) -> tuple[str, int]:
    """The cell as SVG, and its width in CSS pixels; `upright` draws it from top to bottom, for a narrow screen."""
    above = max([e.level for e in edges if e.level > 0], default=0)
    below = -min([e.level for e in edges if e.level < 0], default=0)
    apart, stretch = (104.0, 1.0) if upright else (206.0, 0.9)
    label = _LABEL_CHARACTERS * _CHARACTER / 2 if upright else 14.0
    widest = max([_label_width(e.operation) / 2 for e in edges], default=0.0)
    label = widest + 4 if upright else 18.0

    def room(level: int) -> float:
        return max(_offset(level) * stretch + label, _RADIUS + 8, label)

    along = apart * (nodes - 1) + 2 * (_RADIUS + 10)
    across = room(above) + room(below)

    def place(along_it: float, off: float) -> tuple[float, float]:
        t = along_it + _RADIUS + 10
        return (room(below) + off * stretch, t) if upright else (t, room(above) - off)

    width, height = (across, along) if upright else (along, across)
    parts = [_draw_edge(edge, apart, place) for edge in sorted(edges, key=lambda e: (e.live, abs(e.level)))]
    joined = {end for e in edges for end in (e.start, e.end)}
    for node in range(nodes):
        x, y = place(node * apart, 0.0)
        name = "in" if node == 0 else "out" if node == nodes - 1 else str(node)
        look = "node" if node in joined else "node idle"
        parts.append(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}"/>')
        parts.append(f'<text class="name" x="{x:.1f}" y="{y:.1f}" dy=".35em">{name}</text>')
    spoken = "; ".join(f"{e.start} to {e.end}: {e.operation}" for e in edges) or "no edges"
    svg = (
        f'<svg class="cell" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(f"The cell as a graph. {spoken}.")}">{"".join(parts)}</svg>'
    )
    return svg, round(width)


def _offset(level: int) -> float:
    """How far the label of an arc of `level` stands off the line of nodes, unsigned."""
    return 0.0 if level == 0 else (_ARC + _ARC_STEP * (abs(level) - 1))


def _label_width(operation: str) -> float:
    return min(len(operation), _LABEL_CHARACTERS) * _CHARACTER + 14


def _draw_edge(edge: Edge, apart: float, place) -> str:  # type: ignore[no-untyped-def]
    off = math.copysign(_offset(edge.level), edge.level) if edge.level else 0.0
    middle = (edge.start + edge.end) / 2 * apart
    # A cubic with both handles at height h passes its middle at 3/4 h.
    reach = (edge.end - edge.start) * apart * 0.24
    points = [
        place(edge.start * apart, 0.0),
        place(edge.start * apart + reach, off * 4 / 3),
        place(edge.end * apart - reach, off * 4 / 3),
        place(edge.end * apart, 0.0),
    ]
    start = _towards(points[0], points[1], _RADIUS)
    tip = _towards(points[3], points[2], _RADIUS + 2)
    end = _towards(points[3], points[2], _RADIUS + 9)
    (x1, y1), (x2, y2) = points[1], points[2]
    style = "" if edge.live else " dead"
    paint = "op-identity" if edge.colour is None else f"op-{edge.colour}"
    label_x, label_y = place(middle, off)
    shown = edge.operation
    if len(shown) > _LABEL_CHARACTERS:
        shown = shown[: _LABEL_CHARACTERS - 1] + "…"
    wide = _label_width(edge.operation)
    return (
        f'<g class="edge {paint}{style}">'
        f'<path d="M{start[0]:.1f},{start[1]:.1f} C{x1:.1f},{y1:.1f} {x2:.1f},{y2:.1f} {end[0]:.1f},{end[1]:.1f}"/>'
        f'<polygon points="{_arrow(end, tip)}"/>'
        f'<rect x="{label_x - wide / 2:.1f}" y="{label_y - 11:.1f}" width="{wide:.1f}" height="22" rx="11"/>'
        f'<text x="{label_x:.1f}" y="{label_y:.1f}" dy=".34em">{escape(shown)}</text></g>'
    )


def _towards(origin: tuple[float, float], target: tuple[float, float], distance: float) -> tuple[float, float]:
    """The point `distance` from `origin` on the way to `target`."""
    dx, dy = target[0] - origin[0], target[1] - origin[1]
    length = math.hypot(dx, dy) or 1.0
    return origin[0] + dx / length * distance, origin[1] + dy / length * distance


def _arrow(base: tuple[float, float], tip: tuple[float, float]) -> str:
    dx, dy = tip[0] - base[0], tip[1] - base[1]
    length = math.hypot(dx, dy) or 1.0
    nx, ny = -dy / length * 5.0, dx / length * 5.0
    corners = ((tip[0], tip[1]), (base[0] + nx, base[1] + ny), (base[0] - nx, base[1] - ny))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _decision_table(decisions: Sequence[Decided]) -> str:
    columns = (Column("Decision", "code"), Column("Chosen", "code"), Column("Instead of", "code"))
    rows = [
        (d.name, d.choice, ", ".join(choice for choice in d.choices if choice != d.choice) or "nothing else")
        for d in decisions
    ]
    return table(columns, rows, label="The decisions of the found architecture")


def _details(decisions: Sequence[Decided]) -> str:
    return f"<details><summary>The cell as a table</summary>{_decision_table(decisions)}</details>"
