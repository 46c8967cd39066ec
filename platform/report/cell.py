"""Drawing of the found architecture: a graph if the decisions are edges, else a table of decisions."""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from archray.platform.quantities import significant
from archray.platform.report.section import Column, Named, Section, captioned, escape, folded, short_names, table
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import DESCRIPTION, MODEL
from archray.platform.run.run import Run
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.feature_map import FeatureMapSpace, spelling
from archray.trainables.spaces.genotypes import CELLS, INPUTS, CellEdges, GenotypeSpace, cell_shape

_text = texts_of(__package__)
_EDGE = re.compile(r"^(\d+)<-(\d+)$")  # `3<-1`: an edge into node 3 from node 1
_ABSENT = frozenset({"none", "zero", "zeroize"})  # operations that mean no connection
_IDENTITY = frozenset({"skip_connect", "identity", "skip"})
COLORS = 6  # number of colors for operations in the page's style

_RADIUS = 17.0  # radius of a node, in CSS pixels like all lengths here
_ARC = 86.0  # distance from the line of nodes to the label of an arc over one node
_ARC_STEP = 50.0  # additional distance per further level
_CHARACTER = 7.3  # width of a label character, monospaced at 12 px
_LABEL_HEIGHT = 22.0
_GAP = 3.0  # gap between two labels, and between a label and a node
_SHRINK = 10 / 12  # minimum scale of a drawing, so that labels of 12 px stay readable; a narrower box scrolls
_WIDER = 1.15  # factor by which nodes move apart until their labels do not overlap
_KEY_LINE = '<path d="M1,8 H25"/>'  # line in the legend
Place = Callable[[float, float], complex]  # a (fractional) node and its distance from the line of nodes -> a point
_LABEL_CHARACTERS = 16  # maximum characters of an operation in the drawing; the table has the full name


@dataclass(frozen=True)
class Decided:
    """A decision of the found architecture: its name, its choice, and the available choices."""

    name: str
    choice: str
    choices: tuple[str, ...]
    bounds: tuple[float, float] | None = None  # range of a constant, which has no `choices`


def decided(space: Space, architecture: str) -> tuple[Decided, ...]:
    """Returns the decisions of `architecture`, a string of `space`; the constant of a feature map comes last.

    A constant that does not affect the feature map is `unused`. Raises: InvalidArchitecture.
    """
    chosen = space.decode(architecture)
    decisions = [Decided(d.name, c, d.choices) for d, c in zip(space.decisions, chosen, strict=False)]
    if isinstance(space, FeatureMapSpace):
        low, high = space.constant.low, space.constant.high
        used = len({space.canonical((*chosen[:-1], spelling(end))) for end in (low, high)}) > 1
        value, bounds = (chosen[-1], (low, high)) if used else ("unused", None)
        decisions.append(Decided(space.constant.name, value, (), bounds))
    return tuple(decisions)


def decision_table(decisions: Sequence[Decided], changes: Mapping[tuple[str, str], int] | None = None) -> str:
    """Creates a table of the decisions with their choices and the alternatives.

    Args:
        changes: (decision, alternative) -> the parameters that the alternative adds to the architecture.
    """
    heading = "Alternatives" if changes is None else "Alternatives (added parameters)"
    columns = (Column("Decision", "code"), Column("Choice", "code"), Column(heading, "code"))
    rows = []
    for d in decisions:
        alternatives = [choice for choice in d.choices if choice != d.choice]
        if changes is not None:
            alternatives = [f"{choice} ({changes[d.name, choice]:+,})" for choice in alternatives]
        others = ", ".join(alternatives) or "none"
        rows.append((d.name, d.choice, "any value from {:g} to {:g}".format(*d.bounds) if d.bounds else others))
    return table(columns, rows, label="Decisions of the found architecture")


def _is_unused(space: Space, architecture: str, number: int) -> bool:
    """Whether no choice of a decision changes the network, such as the kernel of a block that is left out."""
    found = space.decode(architecture)
    form = space.canonical(found)
    choices = space.decisions[number].choices if number < len(space.decisions) else ()  # a constant has none
    changed = [(*found[:number], choice, *found[number + 1 :]) for choice in choices if choice != found[number]]
    return bool(changed) and all(space.canonical(other) == form for other in changed)


def _added_parameters(run: Run[Any], space: Space, architecture: str) -> dict[tuple[str, str], int] | None:
    """Returns (decision, alternative) -> added parameters, if the space can count them without building networks."""
    model = run.folder / MODEL
    if not model.exists(DESCRIPTION):
        return None
    card, found = model.read_json(DESCRIPTION), space.decode(architecture)
    if "in_channels" not in card:  # an ensemble
        return None
    changed = {
        (decision.name, choice): (*found[:number], choice, *found[number + 1 :])
        for number, decision in enumerate(space.decisions)
        for choice in decision.choices
    }
    shape = {key: card[key] for key in ("in_channels", "num_classes")}
    counts = space.parameter_counts([found, *changed.values()], **shape)
    return None if counts is None else dict(zip(changed, (count - counts[0] for count in counts[1:]), strict=True))


def cell_drawing(edges: "Sequence[Edge]", nodes: int | Sequence[str]) -> str:
    """Draws the cell's graph from left to right, and from top to bottom for a narrow screen.

    Args:
        nodes: number of nodes (the first is the input, the last the output); or the names of the nodes.
    """
    flat, upright = (draw_cell(edges, nodes, upright=upright) for upright in (False, True))
    return "".join(
        f'<div class="plot {form}" style="--width:{width}px;--least:{width * _SHRINK:.0f}px">{svg}</div>'
        for form, (svg, width) in (("flat", flat), ("upright", upright))
    )


def cell_legend(cells: "Sequence[Sequence[Edge]]", nodes: int) -> str:
    """Creates an HTML legend of the colors and dashes of edges and nodes.

    Args:
        nodes: number of nodes per cell.
    """
    edges = [edge for cell in cells for edge in cell]
    named = {edge.operation: edge.color for edge in sorted(edges, key=lambda edge: edge.color or COLORS + 1)}
    keys = [
        (f"edge {_paint(color)}", _KEY_LINE, operation + ("" if color else ", the identity: dashed"))
        for operation, color in named.items()
    ]
    if not all(edge.live for edge in edges):
        keys.append(("edge op-any dead", _KEY_LINE, "faint: not on a path from input to output"))
    if any(idle_nodes(cell, nodes) for cell in cells):
        keys.append(("", '<circle class="node idle" cx="13" cy="8" r="6"/>', "dashed: node without edges"))
    items = "".join(
        f'<li><svg class="cell key" viewBox="0 0 26 16" aria-hidden="true"><g class="{look}">{mark}</g></svg>'
        f"{escape(text)}</li>"
        for look, mark, text in keys
    )
    return f'<ul class="legend" aria-label="Legend of the cell">{items}</ul>' if items else ""


def idle_nodes(edges: "Sequence[Edge]", nodes: int) -> set[int]:
    """Returns the nodes without edges."""
    return set(range(nodes)) - {node for edge in edges for node in (edge.start, edge.end)}


@dataclass(frozen=True)
class Edge:
    """An edge that connects two nodes."""

    start: int
    end: int
    operation: str
    color: int | None  # number of its color, from 1; None for an identity, drawn dashed and gray
    live: bool  # whether it is on a path from the input to the output
    level: int  # 0 for a straight edge to the next node, positive for an arc above the nodes, negative below


def is_graph(decisions: Sequence[Decided]) -> bool:
    """Returns whether every decision is a forward edge, named like `3<-1`."""
    ends = [_EDGE.match(decision.name) for decision in decisions]
    return bool(ends) and all(match is not None and int(match[1]) > int(match[2]) for match in ends)


def node_count(decisions: Sequence[Decided]) -> int:
    """Returns the number of nodes; node 0 is the input and the last node the output."""
    return 1 + max(_ends(decision.name)[1] for decision in decisions)


def _ends(name: str) -> tuple[int, int]:
    """Returns the nodes of an edge: `"3<-1"` gives `(1, 3)`."""
    end, start = name.split("<-")
    return int(start), int(end)


def cell_edges(decisions: Sequence[Decided]) -> list[Edge]:
    """Returns the connecting edges, placed so that no two arcs over the same nodes share a level."""
    present = [(*_ends(d.name), d) for d in decisions if d.choice not in _ABSENT]
    from_input = _reach([(start, end) for start, end, _ in present], 0)
    to_output = _reach([(end, start) for start, end, _ in present], node_count(decisions) - 1)
    return [
        Edge(start, end, d.choice, _color(d), start in from_input and end in to_output, level)
        for (start, end, d), level in zip(present, _levels(present), strict=True)
    ]


def genotype_edges(edges: CellEdges, operations: Sequence[str]) -> list[Edge]:
    """Returns the edges of a genotype's cell, in which every node leads to the output; placed as in `cell_edges`.

    Args:
        edges: pairs (operation, source), two per node.
        operations: all operations of the space, for the colors.
    """
    present = [
        (source, INPUTS + number // 2, Decided("", operation, tuple(operations)))
        for number, (operation, source) in enumerate(edges)
    ]
    return [
        Edge(start, end, d.choice, _color(d), True, level)
        for (start, end, d), level in zip(present, _levels(present), strict=True)
    ]


def _levels(present: Sequence[tuple[int, int, Decided]]) -> list[int]:
    """Returns a level for each edge: the nearest to the line that no arc over the same nodes has."""
    taken: dict[int, tuple[int, int, int]] = {}  # ends and level of an edge, by its index
    for at, (start, end, _) in sorted(enumerate(present), key=lambda edge: (edge[1][1] - edge[1][0], edge[1][0])):
        level = 0
        if end - start > 1 or (start, end, 0) in taken.values():  # else straight; above the line before below
            over = {level for s, e, level in taken.values() if s < end and start < e}
            sides = (side for level in itertools.count(1) for side in (level, -level))
            level = next(side for side in sides if side not in over)
        taken[at] = (start, end, level)
    return [taken[at][2] for at in range(len(present))]


def _reach(edges: list[tuple[int, int]], source: int) -> set[int]:
    """Returns the nodes that can be reached from `source`."""
    seen, waiting = {source}, [source]
    while waiting:
        node = waiting.pop()
        for end in (end for start, end in edges if start == node and end not in seen):
            seen.add(end)
            waiting.append(end)
    return seen


def _color(decision: Decided) -> int | None:
    """Returns the number of an operation's color: its index among the colored choices, the same in all reports."""
    if decision.choice in _IDENTITY:
        return None
    colored = [choice for choice in decision.choices if choice not in _ABSENT | _IDENTITY]
    place = colored.index(decision.choice) if decision.choice in colored else 0
    return place % COLORS + 1


def draw_cell(edges: Sequence[Edge], nodes: int | Sequence[str], *, upright: bool) -> tuple[str, int]:
    """Draws the cell as SVG; returns the SVG and its width in CSS pixels.

    Labels move along their edges, and the nodes move apart, until no labels overlap.

    Args:
        nodes: as in `cell_drawing`.
        upright: whether to draw from top to bottom, for a narrow screen.
    """
    if isinstance(nodes, int):
        nodes = ["in", *map(str, range(1, nodes - 1)), "out"]
    widest = max([_label_width(edge) for edge in edges], default=2 * _RADIUS)
    apart = 104.0 if upright else widest + 2 * _RADIUS + 34  # a straight edge shows its ends next to its label
    for _ in range(8):
        svg, width, overlap = _draw(edges, nodes, apart, widest / 2 + 4, upright=upright)
        if overlap == 0:
            break
        apart *= _WIDER
    return svg, width


def _draw(
    edges: Sequence[Edge], nodes: Sequence[str], apart: float, widest: float, *, upright: bool
) -> tuple[str, int, float]:
    """Returns the SVG, its width, and the overlap area of labels.

    Args:
        apart: distance between two nodes.
        widest: half the width of the widest label.
    """
    stretch, margin = (0.7, widest) if upright else (0.9, 18.0)
    levels = [edge.level for edge in edges]
    above, below = (
        max(_offset(level) * stretch + margin, _RADIUS + 8) for level in (max([0, *levels]), min([0, *levels]))
    )
    along, across = apart * (len(nodes) - 1) + 2 * (_RADIUS + 10), above + below
    width, height = (across, along) if upright else (along, across)

    def place(node: float, off: float) -> complex:
        """Returns the point at the (fractional) `node`, at the distance `off` from the line of nodes."""
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
    """Returns the center of each label, as close as possible to the middle of its edge, and the overlap area."""
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
        assert best is not None  # there is at least one share
        shared, places[edge] = shared + best[0], best[1]
    return places, shared


def _covered(at: complex, half: complex, other: complex, other_half: complex) -> float:
    """Returns the overlap area of two boxes with a gap between them.

    Args:
        half, other_half: half the sizes of the boxes.
    """
    apart = at - other
    x, y = (
        _GAP + a + b - abs(c) for a, b, c in zip(*((z.real, z.imag) for z in (half, other_half, apart)), strict=True)
    )
    return max(x, 0.0) * max(y, 0.0)


def _offset(level: int) -> float:
    """Returns the unsigned distance from the line of nodes to the label of an arc of `level`."""
    return 0.0 if level == 0 else _ARC + _ARC_STEP * (abs(level) - 1)


def _label_width(edge: Edge) -> float:
    return min(len(edge.operation), _LABEL_CHARACTERS) * _CHARACTER + 14


def _look(edge: Edge) -> str:
    return f"edge {_paint(edge.color)}" if edge.live else f"edge {_paint(edge.color)} dead"


def _paint(color: int | None) -> str:
    return "op-identity" if color is None else f"op-{color}"


def _curve(edge: Edge, place: Place) -> tuple[complex, complex, complex, complex]:
    """Returns the ends of the arc, which are nodes, and the two handles between them."""
    # The middle of a cubic with handles at distance h is at distance 3/4 h.
    handle = math.copysign(_offset(edge.level), edge.level) * 4 / 3
    reach = (edge.end - edge.start) * 0.24
    first, last = place(edge.start, 0.0), place(edge.end, 0.0)
    return first, place(edge.start + reach, handle), place(edge.end - reach, handle), last


def _at(curve: tuple[complex, complex, complex, complex], share: float) -> complex:
    """Returns the point of a cubic at the parameter `share`."""
    first, near, far, last = curve
    rest = 1 - share
    return rest**3 * first + 3 * rest**2 * share * near + 3 * rest * share**2 * far + share**3 * last


def _line(edge: Edge, place: Place) -> str:
    """Draws the arc or line, with its head."""
    first, near, far, last = _curve(edge, place)
    out, back = (near - first) / abs(near - first), (far - last) / abs(far - last)
    base, tip = last + back * (_RADIUS + 9), last + back * (_RADIUS + 2)
    across = (base - tip) * -5j / 7  # half width of the head, which is 7 long
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
    """Creates the section of the result: graphs of its cells, or a table of decisions; None without an architecture."""
    names, run = short_names(run), run.best
    result = run.result or {}
    if (string := result.get("architecture")) is None:
        return None
    space, (architecture, _) = get_space(run.space), run.config.parts(string)
    decisions = decided(space, architecture)
    if isinstance(space, GenotypeSpace):
        drawn = _genotype(space, architecture, names.of(string))
        return Section("cell", "Cells", drawn + _whole(decisions))
    if not is_graph(decisions):
        shown = [
            replace(d, choice="unused", choices=()) if _is_unused(space, architecture, number) else d
            for number, d in enumerate(decisions)
        ]
        title = "Architecture of the result" if "found" in result else "Found architecture"
        return Section("cell", title, decision_table(shown, _added_parameters(run, space, architecture)))
    edges, nodes = cell_edges(decisions), node_count(decisions)
    caption = _text(
        "cell",
        name=names.of(string),
        found="found" not in result,
        output=nodes - 1,
        absent=len(decisions) - len(edges),
        edges=len(decisions),
        faint=any(not edge.live for edge in edges),
    )
    drawn = cell_drawing(edges, nodes) + cell_legend([edges], nodes)
    return Section("cell", "Cell", captioned(drawn, caption) + _whole(decisions))


def _genotype(space: GenotypeSpace, architecture: str, shown: Named | str) -> str:
    """Draws the two cells, with their width and depth. shown: name of the architecture."""
    genotype = space.genotype(space.decode(architecture))
    cells = [genotype_edges(edges, space.operations) for edges in genotype]
    nodes = ["in 0", "in 1", *map(str, space.nodes)]
    drawn = ""
    for name, edges, placed in zip(CELLS, genotype, cells, strict=True):
        shape = cell_shape(edges)
        heading = f"{name}: {significant(shape.width)} nodes wide, {shape.depth} deep"
        drawn += f"<h3>{escape(heading)}</h3>{cell_drawing(placed, nodes)}"
    caption = _text("cells", name=shown, outputs_rule=space.outputs_rule)
    return captioned(drawn + cell_legend(cells, len(nodes)), caption)


def _whole(decisions: Sequence[Decided]) -> str:
    return folded("Table of decisions", decision_table(decisions))
