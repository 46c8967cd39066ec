"""The members of the found ensemble beside each other: their cells as graphs, and what each of them decided."""

from __future__ import annotations

from collections.abc import Sequence

from archray.platform.report.cell_graph import cell_edges, draw_cell, is_graph, node_count
from archray.platform.report.quantity import count
from archray.platform.report.section import Column, Section, escape, figure, paragraphs, table
from archray.platform.report.view import Decided, RunView

_DRAWN = 5  # members whose cells are drawn; the table has all


def member_cells_section(view: RunView) -> Section | None:
    """A cell per member, or the table of decisions alone. Nothing for fewer than two members."""
    members = view.member_decisions
    if len(members) < 2:
        return None
    whole, text = _table(members), _sentence(members)
    if not all(map(is_graph, members)):
        return Section("members", "The members", paragraphs([text]) + whole)
    drawings = "".join(_drawing(number, decisions) for number, decisions in enumerate(members[:_DRAWN], 1))
    caption = f"{text} Circles are feature maps, from the cell's input to its output; “none” is not drawn."
    if len(members) > _DRAWN:
        caption += f" The first {_DRAWN} of {len(members)} are drawn."
    folded = f"<details><summary>The members as a table</summary>{whole}</details>"
    return Section("members", "The members", figure(drawings, caption) + folded)


def common_decisions(members: Sequence[Sequence[Decided]]) -> int:
    """How many decisions are the same in all members."""
    return sum(len({decision.choice for decision in row}) == 1 for row in zip(*members, strict=True))


def _drawing(number: int, decisions: Sequence[Decided]) -> str:
    edges, nodes = cell_edges(decisions), node_count(decisions)
    shapes = "".join(
        f'<div class="plot {shape}" style="max-width:{width}px">{svg}</div>'
        for shape, (svg, width) in (
            ("wide", draw_cell(edges, nodes, upright=False)),
            ("narrow", draw_cell(edges, nodes, upright=True)),
        )
    )
    return f"<h3>{escape(f'Member {number}')}</h3>{shapes}"


def _sentence(members: Sequence[Sequence[Decided]]) -> str:
    same, total = common_decisions(members), len(members[0])
    if same == total:
        return f"All {len(members)} members are one architecture."
    return f"The {len(members)} members agree in {same} of {count(total, 'decision')}."


def _table(members: Sequence[Sequence[Decided]]) -> str:
    columns = (
        Column("Decision", "code"),
        *(Column(f"Member {number}", "text") for number in range(1, len(members) + 1)),
    )
    rows = [(row[0].name, *(decision.choice for decision in row)) for row in zip(*members, strict=True)]
    same = frozenset(place for place, row in enumerate(rows) if len(set(row[1:])) == 1)
    return table(columns, rows, label="The decisions of each member", faint=same)
