"""The found architecture: a cell's graph where decisions are edges, else the table of its decisions.

Where the edges of the drawing lie is decided here; the page's style colours them.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from archray.platform.report.section import Column, Section, captioned, escape, folded, table
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space
from archray.trainables.spaces.feature_map import FeatureMapSpace, spelling
from archray.trainables.spaces.space import Space

_EDGE = re.compile(r"^(\d+)<-(\d+)$")  # `3<-1`: an edge into node 3 from node 1
_ABSENT = frozenset({"none", "zero", "zeroize"})  # operations that are no connection at all
_IDENTITY = frozenset({"skip_connect", "identity", "skip"})
COLOURS = 6  # that the page's style has for operations

_RADIUS = 17.0  # of a node, in CSS pixels like all lengths here
_ARC = 86.0  # how far the label of an arc over one node stands off the line of nodes
_ARC_STEP = 50.0  # and that of each further level
_CHARACTER = 7.3  # width of a character of the labels, monospaced at 12 px
_LABEL_CHARACTERS = 16  # longer names of operations are cut in the drawing; the table beside it has them whole


@dataclass(frozen=True)
class Decided:
    """One decision of the found architecture: its name, what was chosen, and what there was to choose from."""

    name: str
    choice: str
    choices: tuple[str, ...]
    bounds: tuple[float, float] | None = None  # of a constant, which has no `choices`: the range it was drawn from


def decided(space: Space, architecture: str) -> tuple[Decided, ...]:
    """The decisions of `architecture`, a string of `space`; a feature map's constant is the last of them.

    A constant that makes no difference to this map is `unused`. Raises: InvalidArchitecture.
    """
    chosen = space.decode(architecture)
    decisions = [Decided(d.name, c, d.choices) for d, c in zip(space.decisions, chosen, strict=False)]
    if isinstance(space, FeatureMapSpace):
        low, high = space.constant.low, space.constant.high
        used = len({space.canonical((*chosen[:-1], spelling(end))) for end in (low, high)}) > 1
        value, bounds = (chosen[-1], (low, high)) if used else ("unused", None)
        decisions.append(Decided(space.constant.name, value, (), bounds))
    return tuple(decisions)


def cell_section(run: Run[Any]) -> Section | None:
    """The cell as a graph, or the decisions as a table. Nothing for a run that did not find one architecture."""
    run = run.best
    if run.architecture is None:
        return None
    decisions = decided(get_space(run.space), run.architecture)
    if not is_graph(decisions):
        return Section("cell", "What was found", decision_table(decisions))
    edges, nodes = cell_edges(decisions), node_count(decisions)
    whole = folded("The cell as a table", decision_table(decisions))
    caption = (
        "The found cell. Circles are feature maps, from the cell's input (node 0) to its output "
        f"(node {nodes - 1}); an arrow applies its operation, and a node sums what reaches it."
    )
    absent = len(decisions) - len(edges)
    if absent:
        caption += f" {absent} of {len(decisions)} edges {'is' if absent == 1 else 'are'} “none” and not drawn."
    if any(not edge.live for edge in edges):
        caption += " Faint arrows lie on no path from input to output: they do not change what the cell computes."
    return Section("cell", "The cell", captioned(cell_drawing(edges, nodes), caption) + whole)


def decision_table(decisions: Sequence[Decided]) -> str:
    """Each decision with its choice and the choices it was not."""
    columns = (Column("Decision", "code"), Column("Chosen", "code"), Column("Instead of", "code"))
    rows = []
    for d in decisions:
        others = ", ".join(choice for choice in d.choices if choice != d.choice) or "nothing else"
        rows.append((d.name, d.choice, "any value from {:g} to {:g}".format(*d.bounds) if d.bounds else others))
    return table(columns, rows, label="The decisions of the found architecture")


# The graph


def cell_drawing(edges: Sequence[Edge], nodes: int) -> str:
    """The cell's graph from left to right, and from top to bottom for a narrow screen: its labels stay readable."""
    flat, upright = (draw_cell(edges, nodes, upright=upright) for upright in (False, True))
    return "".join(
        f'<div class="plot {form}" style="max-width:{width}px">{svg}</div>'
        for form, (svg, width) in (("flat", flat), ("upright", upright))
    )


@dataclass(frozen=True)
class Edge:
    """One edge that is there."""

    start: int
    end: int
    operation: str
    colour: int | None  # its number, from 1; None for an identity, drawn dashed and grey
    live: bool  # whether it lies on a path from the input to the output
    level: int  # 0 for a straight edge to the next node, positive for an arc above the nodes, negative below


def is_graph(decisions: Sequence[Decided]) -> bool:
    """Whether every decision is an edge, named like `3<-1`, that leads onwards."""
    ends = [_EDGE.match(decision.name) for decision in decisions]
    return bool(ends) and all(match is not None and int(match[1]) > int(match[2]) for match in ends)


def node_count(decisions: Sequence[Decided]) -> int:
    """How many nodes the edges join, 0 being the input and the last one the output."""
    return 1 + max(_ends(decision.name)[1] for decision in decisions)


def _ends(name: str) -> tuple[int, int]:
    """The nodes an edge joins: `"3<-1"` gives `(1, 3)`."""
    end, start = name.split("<-")
    return int(start), int(end)


def cell_edges(decisions: Sequence[Decided]) -> list[Edge]:
    """The edges that are there, placed so that no two arcs over the same nodes share a level."""
    present = [(*_ends(d.name), d) for d in decisions if d.choice not in _ABSENT]
    from_input = _reach([(start, end) for start, end, _ in present], 0)
    to_output = _reach([(end, start) for start, end, _ in present], node_count(decisions) - 1)
    levels: dict[tuple[int, int], int] = {}
    for start, end, _ in sorted(present, key=lambda edge: (edge[1] - edge[0], edge[0])):
        levels[start, end] = 0 if end - start == 1 else _free_level(start, end, levels)
    return [
        Edge(start, end, d.choice, _colour(d), start in from_input and end in to_output, levels[start, end])
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
    sides = (side for level in itertools.count(1) for side in (level, -level))
    over = {level for (s, e), level in taken.items() if s < end and start < e}
    return next(side for side in sides if side not in over)


def _colour(decision: Decided) -> int | None:
    """The number of an operation's colour: its place among the choices that have one, the same in every report."""
    if decision.choice in _IDENTITY:
        return None
    coloured = [choice for choice in decision.choices if choice not in _ABSENT | _IDENTITY]
    place = coloured.index(decision.choice) if decision.choice in coloured else 0
    return place % COLOURS + 1


def draw_cell(edges: Sequence[Edge], nodes: int, *, upright: bool) -> tuple[str, int]:
    """The cell as SVG, and its width in CSS pixels; `upright` draws it from top to bottom, for a narrow screen."""
    apart, stretch = (104.0, 1.0) if upright else (206.0, 0.9)
    beside = max([_label_width(edge) / 2 for edge in edges], default=_RADIUS) + 4 if upright else 18.0
    levels = [edge.level for edge in edges]
    above, below = (
        max(_offset(level) * stretch + beside, _RADIUS + 8) for level in (max([0, *levels]), min([0, *levels]))
    )
    along, across = apart * (nodes - 1) + 2 * (_RADIUS + 10), above + below
    width, height = (across, along) if upright else (along, across)

    def place(node: float, off: float) -> complex:
        """The point at `node`, which may lie between two, and `off` the line of nodes."""
        t = node * apart + _RADIUS + 10
        return complex(below + off * stretch, t) if upright else complex(t, above - off * stretch)

    ordered = sorted(edges, key=lambda edge: (edge.live, -abs(edge.level)))
    parts = [_line(edge, place) for edge in ordered] + [_label(edge, place) for edge in ordered]
    joined = {node for edge in edges for node in (edge.start, edge.end)}
    for node in range(nodes):
        at = place(node, 0.0)
        name = "in" if node == 0 else "out" if node == nodes - 1 else str(node)
        look = "node" if node in joined else "node idle"
        parts.append(f'<circle class="{look}" cx="{at.real:.1f}" cy="{at.imag:.1f}" r="{_RADIUS}"/>')
        parts.append(f'<text class="name" x="{at.real:.1f}" y="{at.imag:.1f}" dy=".35em">{name}</text>')
    spoken = "; ".join(f"{edge.start} to {edge.end}: {edge.operation}" for edge in edges) or "no edges"
    svg = (
        f'<svg class="cell" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(f"The cell as a graph. {spoken}.")}">{"".join(parts)}</svg>'
    )
    return svg, round(width)


def _offset(level: int) -> float:
    """How far the label of an arc of `level` stands off the line of nodes, unsigned."""
    return 0.0 if level == 0 else _ARC + _ARC_STEP * (abs(level) - 1)


def _label_width(edge: Edge) -> float:
    return min(len(edge.operation), _LABEL_CHARACTERS) * _CHARACTER + 14


def _look(edge: Edge) -> str:
    paint = "op-identity" if edge.colour is None else f"op-{edge.colour}"
    return f"edge {paint}" if edge.live else f"edge {paint} dead"


def _line(edge: Edge, place: Callable[[float, float], complex]) -> str:
    """The arc or line, with its head."""
    # A cubic whose handles stand off by h passes its middle at 3/4 h.
    handle = math.copysign(_offset(edge.level), edge.level) * 4 / 3
    reach = (edge.end - edge.start) * 0.24
    first, last = place(edge.start, 0.0), place(edge.end, 0.0)
    near, far = place(edge.start + reach, handle), place(edge.end - reach, handle)
    out, back = (near - first) / abs(near - first), (far - last) / abs(far - last)
    base, tip = last + back * (_RADIUS + 9), last + back * (_RADIUS + 2)
    across = (base - tip) * -5j / 7  # of the head, which is 7 long
    path, head = (
        [f"{point.real:.1f},{point.imag:.1f}" for point in points]
        for points in ((first + out * _RADIUS, near, far, base), (tip, base + across, base - across))
    )
    return (
        f'<g class="{_look(edge)}"><path d="M{path[0]} C{" ".join(path[1:])}"/><polygon points="{" ".join(head)}"/></g>'
    )


def _label(edge: Edge, place: Callable[[float, float], complex]) -> str:
    at = place((edge.start + edge.end) / 2, math.copysign(_offset(edge.level), edge.level))
    x, y = at.real, at.imag
    shown = edge.operation
    if len(shown) > _LABEL_CHARACTERS:
        shown = shown[: _LABEL_CHARACTERS - 1] + "…"
    width = _label_width(edge)
    return (
        f'<g class="{_look(edge)}">'
        f'<rect x="{x - width / 2:.1f}" y="{y - 11:.1f}" width="{width:.1f}" height="22" rx="11"/>'
        f'<text x="{x:.1f}" y="{y:.1f}" dy=".34em">{escape(shown)}</text></g>'
    )
