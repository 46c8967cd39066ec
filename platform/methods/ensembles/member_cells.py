"""The members of the found ensemble beside each other: their cells as graphs, and what each of them decided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archray.platform.methods.ensembles.ensemble_tables import found_members
from archray.platform.report.cell import cell_drawing
from archray.platform.report.cell_graph import Decided, cell_edges, decided, is_graph, node_count
from archray.platform.report.quantity import count
from archray.platform.report.section import Column, Section, captioned, escape, folded, paragraphs, table
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space

_DRAWN = 5  # members whose cells are drawn; the table has all


def member_cells_section(run: Run[Any]) -> Section | None:
    """A cell per member, or the table of decisions alone. Nothing for fewer than two members."""
    space = get_space(run.best.space)
    members = [decided(space, member) for member in found_members(run.best)]
    if len(members) < 2:
        return None
    whole, text = _table(members), _sentence(members)
    if not all(map(is_graph, members)):
        return Section("members", "The members", paragraphs([text]) + whole)
    drawings = "".join(
        f"<h3>{escape(f'Member {number}')}</h3>{cell_drawing(cell_edges(decisions), node_count(decisions))}"
        for number, decisions in enumerate(members[:_DRAWN], 1)
    )
    caption = f"{text} Circles are feature maps, from the cell's input to its output; “none” is not drawn."
    if len(members) > _DRAWN:
        caption += f" The first {_DRAWN} of {len(members)} are drawn."
    return Section("members", "The members", captioned(drawings, caption) + folded("The members as a table", whole))


def common_decisions(members: Sequence[Sequence[Decided]]) -> int:
    """How many decisions are the same in all members."""
    return sum(len({decision.choice for decision in row}) == 1 for row in zip(*members, strict=True))


def _sentence(members: Sequence[Sequence[Decided]]) -> str:
    same, total = common_decisions(members), len(members[0])
    if same == total:
        return f"All {len(members)} members are one architecture."
    return f"The {len(members)} members agree in {same} of {count(total, 'decision')}."


def _table(members: Sequence[Sequence[Decided]]) -> str:
    columns = (Column("Decision", "code"), *(Column(f"Member {number}") for number in range(1, len(members) + 1)))
    rows = [(row[0].name, *(decision.choice for decision in row)) for row in zip(*members, strict=True)]
    same = frozenset(place for place, row in enumerate(rows) if len(set(row[1:])) == 1)
    return table(columns, rows, label="The decisions of each member", faint=same)
