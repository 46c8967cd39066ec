"""The drawing of a cell: its edges, their positions, and the edges that count."""

from __future__ import annotations

import itertools
import re

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from archray.platform.report.cell import Decided, cell_edges, decided, draw_cell, genotype_edges, is_graph, node_count
from archray.trainables.spaces import get_space
from archray.trainables.spaces.genotypes import GenotypeSpace

SPACE = get_space("nasbench201")
LABEL = re.compile(r'<rect x="([-\d.]+)" y="([-\d.]+)" width="([\d.]+)" height="([\d.]+)"')
NODE = re.compile(r'<circle class="node[^"]*" cx="([-\d.]+)" cy="([-\d.]+)" r="([\d.]+)"')
CELLS = st.tuples(*(st.sampled_from(decision.choices) for decision in SPACE.decisions))


def edges_of(*operations: str):
    return cell_edges(decided(SPACE, SPACE.encode(operations)))


def test_none_edges_are_not_drawn() -> None:
    edges = edges_of("nor_conv_3x3", "none", "skip_connect", "none", "none", "avg_pool_3x3")
    assert [(e.start, e.end, e.operation) for e in edges] == [
        (0, 1, "nor_conv_3x3"),
        (1, 2, "skip_connect"),
        (2, 3, "avg_pool_3x3"),
    ]


def test_edges_on_no_path_are_dead() -> None:
    edges = edges_of("nor_conv_3x3", "none", "none", "skip_connect", "none", "nor_conv_1x1")
    assert {(e.start, e.end): e.live for e in edges} == {(0, 1): False, (0, 3): True, (2, 3): False}


@given(CELLS)
@settings(max_examples=60)
def test_no_two_edges_cover_each_other(cell: tuple[str, ...]) -> None:
    edges = edges_of(*cell)
    assert len(edges) == sum(operation != "none" for operation in cell)
    for one, other in itertools.combinations(edges, 2):
        if one.level == other.level:
            assert one.end <= other.start or other.end <= one.start


@given(st.sampled_from(["nasbench201", "darts"]), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_no_two_labels_overlap(name: str, seed: int, upright: bool) -> None:
    space = get_space(name)
    architecture = space.sample(np.random.default_rng(seed))
    cells = [(edges_of(*architecture), 4)] if name == "nasbench201" else []
    if isinstance(space, GenotypeSpace):
        genotype = space.genotype(architecture)
        cells = [(genotype_edges(edges, space.operations), 2 + len(space.nodes)) for edges in genotype]
    for edges, nodes in cells:
        svg, _ = draw_cell(edges, nodes, upright=upright)
        boxes = [tuple(map(float, box)) for box in LABEL.findall(svg)]
        assert len(boxes) == len(edges)
        for (x, y, w, h), (u, v, m, n) in itertools.combinations(boxes, 2):
            assert x + w <= u or u + m <= x or y + h <= v or v + n <= y
        for x, y, w, h in boxes:
            for at_x, at_y, radius in (map(float, circle) for circle in NODE.findall(svg)):
                assert x + w <= at_x - radius or at_x + radius <= x or y + h <= at_y - radius or at_y + radius <= y


@given(CELLS, st.booleans())
@settings(max_examples=60)
def test_the_whole_drawing_is_inside_its_box(cell: tuple[str, ...], upright: bool) -> None:
    edges = edges_of(*cell)
    svg, width = draw_cell(edges, 4, upright=upright)
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg)
    assert box is not None and int(box[1]) == width
    assert not upright or width <= 350  # a phone's screen
    for x, y, w, h in LABEL.findall(svg):
        assert float(x) >= 0 and float(x) + float(w) <= width + 1
        assert float(y) >= 0 and float(y) + float(h) <= int(box[2]) + 1
    assert svg.count("<circle") == 4
    assert svg.count("<path") == len(edges)


def test_a_graph_needs_edges_to_later_nodes() -> None:
    def labels(*names: str) -> list[Decided]:
        return [Decided(name, "a", ("a", "b")) for name in names]

    assert is_graph(labels("1<-0", "2<-0")) and node_count(labels("1<-0", "12<-3")) == 13
    assert not is_graph(labels("depth")) and not is_graph(labels("1<-0", "depth"))
    assert not is_graph(labels("0<-1")) and not is_graph([])
