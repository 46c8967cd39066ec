"""The found architecture: a cell's graph where decisions are edges, else the table of its decisions."""

from __future__ import annotations

from collections.abc import Sequence

from archray.platform.report.cell_graph import cell_edges, draw_cell, is_graph, node_count
from archray.platform.report.section import Column, Section, figure, table
from archray.platform.report.view import Decided, RunView


def cell_section(view: RunView) -> Section | None:
    """The cell as a graph, or the decisions as a table. Nothing if the decisions are not known."""
    if not view.decisions:
        return None
    if not is_graph(view.decisions):
        return Section("cell", "What was found", decision_table(view.decisions))
    edges, nodes = cell_edges(view.decisions), node_count(view.decisions)
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
    absent = len(view.decisions) - len(edges)
    if absent:
        verb = "is" if absent == 1 else "are"
        caption += f" {absent} of {len(view.decisions)} edges {verb} “none” and not drawn."
    if any(not edge.live for edge in edges):
        caption += " Faint arrows lie on no path from input to output: they do not change what the cell computes."
    whole = f"<details><summary>The cell as a table</summary>{decision_table(view.decisions)}</details>"
    return Section("cell", "The cell", figure(drawing, caption) + whole)


def decision_table(decisions: Sequence[Decided]) -> str:
    """Each decision with its choice and the choices it was not."""
    columns = (Column("Decision", "code"), Column("Chosen", "code"), Column("Instead of", "code"))
    rows = [(d.name, d.choice, _between(d.bounds) if d.bounds else _others(d)) for d in decisions]
    return table(columns, rows, label="The decisions of the found architecture")


def _others(decision: Decided) -> str:
    return ", ".join(choice for choice in decision.choices if choice != decision.choice) or "nothing else"


def _between(bounds: tuple[float, float]) -> str:
    return f"any value from {bounds[0]:g} to {bounds[1]:g}"
