"""The tables of NAS-Bench-1Shot1, whose row order determines the cells."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from archray.errors import InvalidTable
from archray.platform.bench.table_import import MATRIX, NODES, VALUES, import_table, matrices
from archray.trainables.spaces import NASBench1Shot1Space1

SPACE = NASBench1Shot1Space1()
OPERATIONS = ("conv1x1-bn-relu", "conv3x3-bn-relu", "maxpool3x3")


@pytest.fixture(scope="module")
def published_table() -> pd.DataFrame:
    """A table as the authors' program writes it: one matrix after another, only their first rows, with an error per
    cell.
    """
    rows: list[dict[str, Any]] = []
    for matrix in matrices(SPACE):
        live = [node for node in range(1, 5) if matrix[node].any()]
        for number in range(3 ** len(live)):
            operations = dict.fromkeys(range(1, 6), OPERATIONS[0])
            operations |= {node: OPERATIONS[number // 3**place % 3] for place, node in enumerate(live)}
            parents = [list(np.flatnonzero(matrix[:, n])) or list(range((1, 2, 2, 2, 2)[n - 1])) for n in range(1, 6)]
            cell = SPACE.architecture([operations[node] for node in range(1, 5)], parents)
            code = zlib.crc32(str(SPACE.canonical(cell)).encode())
            first = [*matrix[0][:5], 0, matrix[0][5]]
            rows.append(
                {
                    **{f"node{n}": operations[n] for n in operations},
                    MATRIX: "[" + " ".join(f"{e}." for e in first) + "]",
                }
                | {value: code / 2**32 + place for place, value in enumerate(VALUES)}
            )
    return pd.DataFrame(rows)


def imported(folder: Path, frame: pd.DataFrame) -> Any:
    frame.to_csv(folder / "ss1.csv", index=False)
    return import_table(folder / "ss1.csv", folder / "ss1.parquet", space=SPACE.name, objective="val1", mode="min")


@pytest.mark.slow
@pytest.mark.ci
def test_the_row_order_determines_the_cells(tmp_path: Path, published_table: pd.DataFrame) -> None:
    table = imported(tmp_path, published_table)
    assert len(published_table) == 2487 and len(table) == 2127, "isomorphic cells are one"
    rng = np.random.default_rng(0)
    cell = SPACE.sample(rng)
    while cell not in {SPACE.decode(name) for name in table.architectures}:
        cell = SPACE.canonical(SPACE.sample(rng))
    value = zlib.crc32(str(cell).encode()) / 2**32
    assert table.objective[table.row(SPACE.encode(cell))] == pytest.approx(value)
    assert set(NODES) <= set(table.frame.columns)


def test_rows_in_another_order_raise_an_error(tmp_path: Path, published_table: pd.DataFrame) -> None:
    with pytest.raises(InvalidTable, match=r"another cell in row 0 \(from 0\).*\(--architecture row\)"):
        imported(tmp_path, published_table.iloc[::-1])
    with pytest.raises(InvalidTable, match="row 2400"):
        imported(tmp_path, published_table.iloc[:2400])


@pytest.mark.slow
@pytest.mark.ci
def test_isomorphic_cells_with_different_errors_raise_an_error(tmp_path: Path, published_table: pd.DataFrame) -> None:
    with pytest.raises(
        InvalidTable, match="isomorphic cells with different errors, or different cells with equal errors"
    ):
        imported(tmp_path, published_table.assign(val2=published_table["val2"].to_numpy()[::-1]))
