"""The found architecture: a cell's graph where decisions are edges, else the table of its decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archray.platform.report.cell_graph import Decided, Edge, cell_edges, decided, draw_cell, is_graph, node_count
from archray.platform.report.section import Column, Section, captioned, folded, table
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space


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
    caption = _caption(edges, nodes, absent=len(decisions) - len(edges), decisions=len(decisions))
    return Section("cell", "The cell", captioned(cell_drawing(edges, nodes), caption) + whole)


def cell_drawing(edges: Sequence[Edge], nodes: int) -> str:
    """The cell's graph from left to right, and from top to bottom for a narrow screen: its labels stay readable."""
    flat, upright = (draw_cell(edges, nodes, upright=upright) for upright in (False, True))
    return "".join(
        f'<div class="plot {form}" style="max-width:{width}px">{svg}</div>'
        for form, (svg, width) in (("flat", flat), ("upright", upright))
    )


def _caption(edges: Sequence[Edge], nodes: int, *, absent: int, decisions: int) -> str:
    caption = (
        "The found cell. Circles are feature maps, from the cell's input (node 0) to its output "
        f"(node {nodes - 1}); an arrow applies its operation, and a node sums what reaches it."
    )
    if absent:
        caption += f" {absent} of {decisions} edges {'is' if absent == 1 else 'are'} “none” and not drawn."
    if any(not edge.live for edge in edges):
        caption += " Faint arrows lie on no path from input to output: they do not change what the cell computes."
    return caption


def decision_table(decisions: Sequence[Decided]) -> str:
    """Each decision with its choice and the choices it was not."""
    columns = (Column("Decision", "code"), Column("Chosen", "code"), Column("Instead of", "code"))
    rows = [(d.name, d.choice, _between(d.bounds) if d.bounds else _others(d)) for d in decisions]
    return table(columns, rows, label="The decisions of the found architecture")


def _others(decision: Decided) -> str:
    return ", ".join(choice for choice in decision.choices if choice != decision.choice) or "nothing else"


def _between(bounds: tuple[float, float]) -> str:
    return f"any value from {bounds[0]:g} to {bounds[1]:g}"
