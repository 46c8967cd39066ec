"""The found architecture: a cell's graph where decisions are edges, else the table of its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archray.platform.quantities import significant
from archray.platform.report.cell_graph import (
    cell_drawing,
    cell_edges,
    cell_legend,
    genotype_edges,
    is_graph,
    node_count,
)
from archray.platform.report.decisions import Decided, decided, decision_table
from archray.platform.report.section import Section, captioned, escape, folded
from archray.platform.report.short_names import ShortNames, short_names
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space
from archray.trainables.spaces.cell_shape import cell_shape
from archray.trainables.spaces.genotypes import CELLS, GenotypeSpace


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
    caption = (
        f"The found cell, {names.of(run.architecture)}. Circles are feature maps, from the cell's input (node 0) to "
        f"its output (node {nodes - 1}); an arrow applies its operation, and a node sums what reaches it. An operation "
        "has its colour in every report of its space."
    )
    absent = len(decisions) - len(edges)
    if absent:
        caption += f" {absent} of {len(decisions)} edges {'is' if absent == 1 else 'are'} “none” and not drawn."
    if any(not edge.live for edge in edges):
        caption += " Faint arrows lie on no path from input to output: they do not change what the cell computes."
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
    caption = (
        f"The two cells of {names.of(architecture)}. Circles are feature maps: the outputs of the cells before, and "
        f"the nodes, each the sum of two arrows' operations; {space.outputs_rule}. The width "
        "counts a node as far as its inputs are the cell's own, the depth the longest path to the output."
    )
    return captioned(drawn + cell_legend(cells, len(nodes)), caption)


def _whole(decisions: Sequence[Decided]) -> str:
    return folded("The cell as a table", decision_table(decisions))
