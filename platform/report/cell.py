"""The found architecture: a cell's graph where decisions are edges, else the table of its decisions."""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archray.platform.quantities import significant
from archray.platform.report.section import Column, Section, ShortNames, captioned, escape, folded, short_names, table
from archray.platform.report.texts import texts_of
from archray.platform.run.run import Run
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.feature_map import FeatureMapSpace, spelling
from archray.trainables.spaces.genotypes import CELLS, INPUTS, CellEdges, GenotypeSpace, cell_shape

_text = texts_of(__package__)
_EDGE = re.compile(r"^(\d+)<-(\d+)$")  # `3<-1`: an edge into node 3 from node 1
_ABSENT = frozenset({"none", "zero", "zeroize"})  # operations that are no connection at all
_IDENTITY = frozenset({"skip_connect", "identity", "skip"})
COLOURS = 6  # that the page's style has for operations

_RADIUS = 17.0  # of a node, in CSS pixels like all lengths here
_ARC = 86.0  # how far the label of an arc over one node stands off the line of nodes
_ARC_STEP = 50.0  # and that of each further level
_CHARACTER = 7.3  # width of a character of the labels, monospaced at 12 px
_LABEL_HEIGHT = 22.0
_GAP = 3.0  # between two labels, and between a label and a node
_SHRINK = 10 / 12  # of a drawing at most, in a narrow box: labels of 12 px stay readable; a narrower box scrolls
_WIDER = 1.15  # the step by which nodes move apart until their labels do not overlap
_KEY_LINE = '<path d="M1,8 H25"/>'  # of the legend
Place = Callable[[float, float], complex]  # a node, which may lie between two, and how far off their line -> a point
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


def decision_table(decisions: Sequence[Decided]) -> str:
    """Each decision with its choice and the choices it was not."""
    columns = (Column("Decision", "code"), Column("Chosen", "code"), Column("Instead of", "code"))
    rows = []
    for d in decisions:
        others = ", ".join(choice for choice in d.choices if choice != d.choice) or "nothing else"
        rows.append((d.name, d.choice, "any value from {:g} to {:g}".format(*d.bounds) if d.bounds else others))
    return table(columns, rows, label="The decisions of the found architecture")


def cell_drawing(edges: "Sequence[Edge]", nodes: int | Sequence[str]) -> str:
    """The cell's graph from left to right, and from top to bottom for a narrow screen: its labels stay readable.

    nodes: how many, the first being the input and the last the output; or the name of each.
    """
    flat, upright = (draw_cell(edges, nodes, upright=upright) for upright in (False, True))
    return "".join(
        f'<div class="plot {form}" style="--width:{width}px;--least:{width * _SHRINK:.0f}px">{svg}</div>'
        for form, (svg, width) in (("flat", flat), ("upright", upright))
    )


def cell_legend(cells: "Sequence[Sequence[Edge]]", nodes: int) -> str:
    """What the colours and dashes of the cells' edges and nodes are; HTML. nodes: of each."""
    edges = [edge for cell in cells for edge in cell]
    named = {edge.operation: edge.colour for edge in sorted(edges, key=lambda edge: edge.colour or COLOURS + 1)}
    keys = [
        (f"edge {_paint(colour)}", _KEY_LINE, operation + ("" if colour else ", the identity: dashed"))
        for operation, colour in named.items()
    ]
    if not all(edge.live for edge in edges):
        keys.append(("edge op-any dead", _KEY_LINE, "faint: on no path from input to output"))
    if any(idle_nodes(cell, nodes) for cell in cells):
        keys.append(("", '<circle class="node idle" cx="13" cy="8" r="6"/>', "dashed: no edge meets this node"))
    items = "".join(
        f'<li><svg class="cell key" viewBox="0 0 26 16" aria-hidden="true"><g class="{look}">{mark}</g></svg>'
        f"{escape(text)}</li>"
        for look, mark, text in keys
    )
    return f'<ul class="legend" aria-label="What the cell\'s colours and dashes mean">{items}</ul>' if items else ""


def idle_nodes(edges: "Sequence[Edge]", nodes: int) -> set[int]:
    """The nodes that no edge meets."""
    return set(range(nodes)) - {node for edge in edges for node in (edge.start, edge.end)}


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
    return [
        Edge(start, end, d.choice, _colour(d), start in from_input and end in to_output, level)
        for (start, end, d), level in zip(present, _levels(present), strict=True)
    ]


def genotype_edges(edges: CellEdges, operations: Sequence[str]) -> list[Edge]:
    """The edges of a cell of a genotype, every node of which leads to its output; placed as `cell_edges` does.

    edges: pairs (operation, source), two per node. operations: all there are, for the colours.
    """
    present = [
        (source, INPUTS + number // 2, Decided("", operation, tuple(operations)))
        for number, (operation, source) in enumerate(edges)
    ]
    return [
        Edge(start, end, d.choice, _colour(d), True, level)
        for (start, end, d), level in zip(present, _levels(present), strict=True)
    ]


def _levels(present: Sequence[tuple[int, int, Decided]]) -> list[int]:
    """A level for each edge: the one nearest to the line that no arc over the same nodes has."""
    taken: dict[int, tuple[int, int, int]] = {}  # of an edge, by its place: its ends and its level
    for at, (start, end, _) in sorted(enumerate(present), key=lambda edge: (edge[1][1] - edge[1][0], edge[1][0])):
        level = 0
        if end - start > 1 or (start, end, 0) in taken.values():  # else straight; above the line before below
            over = {level for s, e, level in taken.values() if s < end and start < e}
            sides = (side for level in itertools.count(1) for side in (level, -level))
            level = next(side for side in sides if side not in over)
        taken[at] = (start, end, level)
    return [taken[at][2] for at in range(len(present))]


def _reach(edges: list[tuple[int, int]], source: int) -> set[int]:
    """The nodes that can be reached from `source`."""
    seen, waiting = {source}, [source]
    while waiting:
        node = waiting.pop()
        for end in (end for start, end in edges if start == node and end not in seen):
            seen.add(end)
            waiting.append(end)
    return seen


def _colour(decision: Decided) -> int | None:
    """The number of an operation's colour: its place among the choices that have one, the same in every report."""
    if decision.choice in _IDENTITY:
        return None
    coloured = [choice for choice in decision.choices if choice not in _ABSENT | _IDENTITY]
    place = coloured.index(decision.choice) if decision.choice in coloured else 0
    return place % COLOURS + 1


def draw_cell(edges: Sequence[Edge], nodes: int | Sequence[str], *, upright: bool) -> tuple[str, int]:
    """The cell as SVG, and its width in CSS pixels; `upright` draws it from top to bottom, for a narrow screen.

    Its labels lie beside each other: each slides along its edge, and the nodes move apart until all have a place.

    nodes: as of `cell_drawing`.
    """
    if isinstance(nodes, int):
        nodes = ["in", *map(str, range(1, nodes - 1)), "out"]
    widest = max([_label_width(edge) for edge in edges], default=2 * _RADIUS)
    apart = 104.0 if upright else widest + 2 * _RADIUS + 34  # a straight edge shows its ends beside its label
    for _ in range(8):
        svg, width, overlap = _draw(edges, nodes, apart, widest / 2 + 4, upright=upright)
        if overlap == 0:
            break
        apart *= _WIDER
    return svg, width


def _draw(
    edges: Sequence[Edge], nodes: Sequence[str], apart: float, widest: float, *, upright: bool
) -> tuple[str, int, float]:
    """The SVG, its width, and the area in which labels overlap. apart: between two nodes. widest: half a label."""
    stretch, beside = (0.7, widest) if upright else (0.9, 18.0)
    levels = [edge.level for edge in edges]
    above, below = (
        max(_offset(level) * stretch + beside, _RADIUS + 8) for level in (max([0, *levels]), min([0, *levels]))
    )
    along, across = apart * (len(nodes) - 1) + 2 * (_RADIUS + 10), above + below
    width, height = (across, along) if upright else (along, across)

    def place(node: float, off: float) -> complex:
        """The point at `node`, which may lie between two, and `off` the line of nodes."""
        t = node * apart + _RADIUS + 10
        return complex(below + off * stretch, t) if upright else complex(t, above - off * stretch)

    ordered = sorted(edges, key=lambda edge: (edge.live, -abs(edge.level)))
    circles = [place(node, 0.0) for node in range(len(nodes))]
    labels, overlap = _label_places(edges, place, circles, complex(width, height))
    parts = [_line(edge, place) for edge in ordered] + [_label(edge, labels[edge]) for edge in ordered]
    idle = idle_nodes(edges, len(nodes))
    for node, (name, at) in enumerate(zip(nodes, circles, strict=True)):
        look = "node idle" if node in idle else "node"
        parts.append(f'<circle class="{look}" cx="{at.real:.1f}" cy="{at.imag:.1f}" r="{_RADIUS}"/>')
        parts.append(f'<text class="name" x="{at.real:.1f}" y="{at.imag:.1f}" dy=".35em">{name}</text>')
    spoken = "; ".join(f"{edge.start} to {edge.end}: {edge.operation}" for edge in edges) or "no edges"
    svg = (
        f'<svg class="cell" viewBox="0 0 {width:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(f"The cell as a graph. {spoken}.")}">{"".join(parts)}</svg>'
    )
    return svg, round(width), overlap


def _label_places(
    edges: Sequence[Edge], place: Place, circles: Sequence[complex], size: complex
) -> tuple[dict[Edge, complex], float]:
    """The middle of each edge's label, as near to the middle of the edge as others let it; and the area they share."""
    places: dict[Edge, complex] = {}
    shared = 0.0
    for edge in sorted(edges, key=lambda edge: (edge.level != 0, edge.end - edge.start, abs(edge.level))):
        half = complex(_label_width(edge), _LABEL_HEIGHT) / 2
        best: tuple[float, complex] | None = None
        for share in sorted(np.linspace(0.14, 0.86, 37), key=lambda share: abs(share - 0.5)):
            at = _at(_curve(edge, place), float(share))
            covered = sum(_covered(at, half, circle, complex(_RADIUS, _RADIUS)) for circle in circles)
            for other, middle in places.items():
                covered += _covered(at, half, middle, complex(_label_width(other), _LABEL_HEIGHT) / 2)
            low, high = at - half, at + half
            covered += 1e3 * sum(
                max(out, 0.0) for out in (-low.real, -low.imag, (high - size).real, (high - size).imag)
            )
            if best is None or covered < best[0]:
                best = covered, at
            if covered == 0:
                break
        assert best is not None  # there are shares
        shared, places[edge] = shared + best[0], best[1]
    return places, shared


def _covered(at: complex, half: complex, other: complex, other_half: complex) -> float:
    """The area that two boxes with a gap between them share. half: of their sizes."""
    apart = at - other
    x, y = (
        _GAP + a + b - abs(c) for a, b, c in zip(*((z.real, z.imag) for z in (half, other_half, apart)), strict=True)
    )
    return max(x, 0.0) * max(y, 0.0)


def _offset(level: int) -> float:
    """How far the label of an arc of `level` stands off the line of nodes, unsigned."""
    return 0.0 if level == 0 else _ARC + _ARC_STEP * (abs(level) - 1)


def _label_width(edge: Edge) -> float:
    return min(len(edge.operation), _LABEL_CHARACTERS) * _CHARACTER + 14


def _look(edge: Edge) -> str:
    return f"edge {_paint(edge.colour)}" if edge.live else f"edge {_paint(edge.colour)} dead"


def _paint(colour: int | None) -> str:
    return "op-identity" if colour is None else f"op-{colour}"


def _curve(edge: Edge, place: Place) -> tuple[complex, complex, complex, complex]:
    """The ends of the arc, which are nodes, and its handles between them."""
    # A cubic whose handles stand off by h passes its middle at 3/4 h.
    handle = math.copysign(_offset(edge.level), edge.level) * 4 / 3
    reach = (edge.end - edge.start) * 0.24
    first, last = place(edge.start, 0.0), place(edge.end, 0.0)
    return first, place(edge.start + reach, handle), place(edge.end - reach, handle), last


def _at(curve: tuple[complex, complex, complex, complex], share: float) -> complex:
    """The point of a cubic at `share` of its course."""
    first, near, far, last = curve
    rest = 1 - share
    return rest**3 * first + 3 * rest**2 * share * near + 3 * rest * share**2 * far + share**3 * last


def _line(edge: Edge, place: Place) -> str:
    """The arc or line, with its head."""
    first, near, far, last = _curve(edge, place)
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


def _label(edge: Edge, at: complex) -> str:
    x, y = at.real, at.imag
    shown = edge.operation
    if len(shown) > _LABEL_CHARACTERS:
        shown = shown[: _LABEL_CHARACTERS - 1] + "…"
    width = _label_width(edge)
    return (
        f'<g class="{_look(edge)}">'
        f'<rect x="{x - width / 2:.1f}" y="{y - 11:.1f}" width="{width:.1f}" height="{_LABEL_HEIGHT:.0f}" rx="11"/>'
        f'<text x="{x:.1f}" y="{y:.1f}" dy=".34em">{escape(shown)}</text></g>'
    )


def cell_section(run: Run[Any]) -> Section | None:
    """The cell as a graph (of a genotype both), or a table of decisions. Nothing without one architecture."""
    names, run = short_names(run), run.best
    if run.architecture is None:
        return None
    space = get_space(run.space)
    decisions = decided(space, run.architecture)
    if isinstance(space, GenotypeSpace):
        return Section("cell", "The cells", _genotype(space, run.architecture, names) + _whole(decisions))
    if not is_graph(decisions):
        return Section("cell", "What was found", decision_table(decisions))
    edges, nodes = cell_edges(decisions), node_count(decisions)
    caption = _text(
        "cell",
        name=names.of(run.architecture),
        output=nodes - 1,
        absent=len(decisions) - len(edges),
        edges=len(decisions),
        faint=any(not edge.live for edge in edges),
    )
    drawn = cell_drawing(edges, nodes) + cell_legend([edges], nodes)
    return Section("cell", "The cell", captioned(drawn, caption) + _whole(decisions))


def _genotype(space: GenotypeSpace, architecture: str, names: ShortNames) -> str:
    """The two cells, and their width and depth."""
    genotype = space.genotype(space.decode(architecture))
    cells = [genotype_edges(edges, space.operations) for edges in genotype]
    nodes = ["in 0", "in 1", *map(str, space.nodes)]
    drawn = ""
    for name, edges, placed in zip(CELLS, genotype, cells, strict=True):
        shape = cell_shape(edges)
        heading = f"{name}: {significant(shape.width)} nodes wide, {shape.depth} deep"
        drawn += f"<h3>{escape(heading)}</h3>{cell_drawing(placed, nodes)}"
    caption = _text("cells", name=names.of(architecture), outputs_rule=space.outputs_rule)
    return captioned(drawn + cell_legend(cells, len(nodes)), caption)


def _whole(decisions: Sequence[Decided]) -> str:
    return folded("The cell as a table", decision_table(decisions))
