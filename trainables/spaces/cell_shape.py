"""Width and depth of a cell. Shu 2022 (thesis), section 4.2.2."""

from __future__ import annotations

from typing import NamedTuple

from archray.trainables.spaces.genotypes import INPUTS, CellEdges, cell_nodes


class CellShape(NamedTuple):
    """The shape of a cell, by its connections alone.

    Attributes:
        width: in c, the width of a node: the sum over intermediate nodes of the share of their connections that come
            from the cell's inputs. At most n, the number of intermediate nodes.
        depth: connections on the longest path from an input to the output; from 2 to n + 1.
    """

    width: float
    depth: int


def cell_shape(edges: CellEdges) -> CellShape:
    """edges: pairs (operation, source), as a `Genotype` has them. DARTS' own normal cell: 3.5 and 3."""
    reached = dict.fromkeys(range(INPUTS), 0)  # connections on the longest path to a node
    width = 0.0
    for number, node in enumerate(cell_nodes(edges)):
        sources = [source for _, source in edges[2 * number : 2 * number + 2]]
        width += sum(source < INPUTS for source in sources) / len(sources)
        reached[node] = 1 + max(reached[source] for source in sources)
    return CellShape(width, 1 + max(reached.values()))
