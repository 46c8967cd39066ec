"""The found architecture: a cell's graph where decisions are edges, else the table of its decisions."""

from __future__ import annotations

from typing import Any

from archray.platform.report.cell_graph import cell_drawing, cell_edges, cell_legend, is_graph, node_count
from archray.platform.report.decisions import decided, decision_table
from archray.platform.report.section import Section, captioned, folded
from archray.platform.report.short_names import short_names
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space


def cell_section(run: Run[Any]) -> Section | None:
    """The cell as a graph, or the decisions as a table. Nothing for a run that did not find one architecture."""
    names, run = short_names(run), run.best
    if run.architecture is None:
        return None
    decisions = decided(get_space(run.space), run.architecture)
    if not is_graph(decisions):
        return Section("cell", "What was found", decision_table(decisions))
    edges, nodes = cell_edges(decisions), node_count(decisions)
    whole = folded("The cell as a table", decision_table(decisions))
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
    return Section("cell", "The cell", captioned(drawn, caption) + whole)
