"""NAS-Bench-1Shot1's tables, in which only the first row of each adjacency is left: the cells by the order of the rows.

Zela et al. 2020, whose program lists the matrices of a space recursively from the output, and for each of them the
operations; note G6.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from archray.errors import InvalidTable
from archray.plurals import count
from archray.trainables.spaces import NASBench1Shot1
from archray.trainables.spaces.nasbench1shot1 import OPERATIONS, PADDED, PADDING

if TYPE_CHECKING:
    import pandas as pd

MATRIX = "adj_matrix"
NODES = tuple(f"node{node}" for node in range(1, PADDED - 1))
COLUMNS = (*NODES, MATRIX)
VALUES = ("val1", "val2", "val3", "test1", "test2", "test3")

Matrix = NDArray[np.int64]


def has_cut_matrices(columns: Sequence[str]) -> bool:
    """Whether a table has the columns of these tables."""
    return set(COLUMNS) <= set(columns)


def cells_by_order(frame: pd.DataFrame, space: NASBench1Shot1, location: str) -> list[str]:
    """The string of each row's cell, of a table whose rows are in the order in which the authors' program lists them.

    The order is not believed but checked: the operations of every row, and the edges from the input, must be those of
    the cell; and where the table has the six errors of each cell, isomorphic cells, which NAS-Bench-101 trained as one,
    must have equal ones, and other cells others. Raises: InvalidTable if they have not.
    """
    cells = [(matrix, operations) for matrix in matrices(space) for operations in _operations(matrix)]
    told = [(*row[:-1], row[-1].split()) for row in frame[list(COLUMNS)].itertuples(index=False, name=None)]
    expected = [(*operations, _first_row(matrix).split()) for matrix, operations in cells]
    wrong = next((row for row, (a, b) in enumerate(itertools.zip_longest(told, expected)) if a != b), None)
    if wrong is not None:
        raise InvalidTable(
            f"{location}: row {wrong} (from 0) is not what the order of the {count(len(expected), 'cell')} of "
            f"{space.name} says, so that a matrix's first row does not tell which cell it is of; take the rows as a "
            "space of their own (--architecture row)"
        )
    named = [space.encode(space.canonical(_architecture(space, *cell))) for cell in cells]
    if set(VALUES) <= set(frame.columns):
        pairs = set(zip(named, frame[list(VALUES)].itertuples(index=False, name=None), strict=True))
        if not len(pairs) == len(set(named)) == len({values for _, values in pairs}):
            raise InvalidTable(
                f"{location}: isomorphic cells have different errors, or different cells the same, so that the rows "
                "are not in the order of the cells; take them as a space of their own (--architecture row)"
            )
    return named


def matrices(space: NASBench1Shot1) -> list[Matrix]:
    """The (n + 2, n + 2) matrices of the space without loose ends, once each, in the order of the authors' program."""
    output = len(space.parents)
    parents = (0, *space.parents)
    listed: dict[bytes, Matrix] = {}

    def complete(matrix: Matrix) -> bool:
        used = [node for node in range(1, output) if matrix[node].any()]
        return all(matrix[:, node].sum() == parents[node] for node in (*used, output))

    def grow(matrix: Matrix, node: int) -> Iterator[Matrix]:
        if complete(matrix):
            yield matrix
            return
        missing = parents[node] - int(matrix[:, node].sum())
        for chosen in itertools.combinations(range(node), missing):
            grown = matrix.copy()
            for parent in chosen:  # one after the other: what hangs on the first is listed without the second
                grown[parent, node] = 1
                yield from grow(grown, parent)

    for matrix in grow(np.zeros((output + 1, output + 1), dtype=np.int64), output):
        listed.setdefault(matrix.tobytes(), matrix)
    return list(listed.values())


def _operations(matrix: Matrix) -> Iterator[tuple[str, ...]]:
    """The operations of the five nodes in the table's order: the first live node's varies fastest."""
    live = [node for node in range(1, len(matrix) - 1) if matrix[node].any()]
    for chosen in itertools.product(OPERATIONS, repeat=len(live)):
        of_node = dict(zip(reversed(live), chosen, strict=True))
        yield tuple(of_node.get(node, PADDING) for node in range(1, PADDED - 1))


def _first_row(matrix: Matrix) -> str:
    """As the tables print it: the edges from the input to nodes 1 to 5 and the output."""
    padded = [*matrix[0][:-1], *[0] * (PADDED - len(matrix)), matrix[0][-1]]
    return f"[{' '.join(f'{edge}.' for edge in padded)}]"


def _architecture(space: NASBench1Shot1, matrix: Matrix, operations: Sequence[str]) -> tuple[str, ...]:
    """A loose end, which has no parents in the matrix, gets its first ones."""
    parents = [
        [int(parent) for parent in np.flatnonzero(matrix[:, node])] or list(range(number))
        for node, number in enumerate(space.parents, 1)
    ]
    return space.architecture(operations[: len(space.nodes)], parents)
