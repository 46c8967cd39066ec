"""Tables as spaces: rows, isomorphic spellings, neighbors, encodings."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from archray.errors import InvalidArchitecture, InvalidInput, InvalidTable
from archray.platform.config import SearchConfig
from archray.platform.methods.method import serves_networks
from archray.searchers import RandomSearch, RegularizedEvolution, drive
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import NASBench201, TableSpace, get_space
from archray.trainables.spaces.encodings import encode_rows
from archray.trainables.spaces.table_space import absolute_name

ROWS = [f"({a}, {b}, {c})" for a in range(4) for b in range(4) for c in range(3)]
ALIKE = (
    "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|",
    "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|",
)
OTHER = "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"


def write(path: Path, architectures: list[str], **columns: object) -> str:
    pd.DataFrame({"arch": architectures, **columns}).to_csv(path, index=False)
    return f"table:{path}"


@pytest.fixture
def table(tmp_path: Path) -> str:
    return write(tmp_path / "own.csv.gz", ROWS, width=[len(ROWS) - n for n in range(len(ROWS))])


def test_the_rows_are_the_architectures(table: str) -> None:
    space = get_space(table)
    assert isinstance(space, TableSpace) and space.kind == "table row"
    assert space.size == len(ROWS)
    assert [space.encode(architecture) for architecture in space.enumerate()] == ROWS
    assert all(space.encode(space.decode(name)) == name for name in ROWS)
    rng = np.random.default_rng(0)
    assert {space.encode(space.sample(rng)) for _ in range(1000)} == set(ROWS)


def test_an_unknown_architecture_raises_an_error_with_the_nearest(table: str) -> None:
    with pytest.raises(InvalidArchitecture, match=r"no architecture '\(2, 9, 1\)'; the nearest .* is '\(2, 0, 1\)'"):
        get_space(table).decode("(2, 9, 1)")
    with pytest.raises(InvalidArchitecture, match="the nearest of the 48 architectures in the table is"):
        get_space(table).decode("nothing alike")


def test_a_mutation_is_one_of_the_nearest_rows(table: str) -> None:
    space, rng = get_space(table), np.random.default_rng(0)
    children = {space.encode(space.mutate(space.decode("(1, 1, 1)"), rng)) for _ in range(300)}
    near = {name for name in ROWS if sum(a != b for a, b in zip(name, "(1, 1, 1)", strict=True)) == 1}
    assert len(near) == 8 and children == near


def test_the_encoding_determines_the_neighbors(tmp_path: Path, table: str) -> None:
    space = get_space(f"{table}?encoding=columns:width")
    assert isinstance(space, TableSpace) and space.codes.shape == (48, 1)
    assert len(space.neighbors(0)) == 47, "a column of different numbers does not define neighbors"
    same = write(tmp_path / "same.csv", ["a", "b", "c d"], group=["x", "x", "y"])
    with pytest.raises(InvalidInput, match="for the encoding tokens, got 1 in 'a' and 2 in 'c d'"):
        get_space(f"{same}?encoding=tokens")
    with pytest.raises(InvalidInput, match="has no column 'groop'; it has arch, group"):
        get_space(f"{same}?encoding=columns:groop")
    with pytest.raises(InvalidInput, match=r"no encoding 'words'\. Choose tokens, columns:a,b,c"):
        get_space(f"{same}?encoding=words")
    with pytest.raises(InvalidInput, match="the same for all 3 architectures"):
        get_space(f"{write(tmp_path / 'c.csv', ['a', 'b', 'c'], group=['x'] * 3)}?encoding=columns:group")


@pytest.mark.parametrize("query", ["", "?encoding=none"])
def test_without_an_encoding_mutations_raise_an_error(tmp_path: Path, query: str) -> None:
    name = write(tmp_path / "loose.csv", ["a", "b", "c d"]) + query
    with pytest.raises(InvalidInput, match=r"no encoding that defines near rows.*--encoding tokens"):
        RegularizedEvolution(name, budget=20, population=5)
    assert len(drive(RandomSearch(name, budget=3), lambda config: 1.0, metric="value", mode="max")) == 3


def test_every_token_has_a_code() -> None:
    assert encode_rows(["b-1.5", "a-1.5", "b-2"]).tolist() == [[1, 0], [0, 0], [1, 1]]
    assert encode_rows(["b", "a"], "none").shape == (2, 0)


def test_a_network_is_found_under_any_spelling(tmp_path: Path) -> None:
    space = get_space(write(tmp_path / "cells.csv", [OTHER, *ALIKE]))
    assert isinstance(space, TableSpace) and isinstance(space.base, NASBench201)
    assert [space.row(name) for name in (OTHER, *ALIKE)] == [0, 1, 1], "the first row represents all"
    third = "|none~0|+|nor_conv_3x3~0|none~1|+|none~0|none~1|skip_connect~2|"
    assert space.row(third) == 1
    assert space.encode(space.canonical(space.decode(third))) == ALIKE[0]
    with pytest.raises(InvalidArchitecture, match="the nearest of the 3 architectures in the table is"):
        space.decode("|none~0|+|none~0|none~1|+|nor_conv_1x1~0|none~1|none~2|")
    with pytest.raises(InvalidArchitecture, match=r"expected a cell with 6 operations.*the nearest of the 3"):
        space.decode("|nor_conv_3x3~0|")


def test_the_lowest_index_represents_a_network(tmp_path: Path) -> None:
    space = get_space(write(tmp_path / "cells.csv", [*ALIKE, OTHER], index=[7, 3, 5]))
    assert isinstance(space, TableSpace)
    assert space.architectures[space.row(ALIKE[0])] == ALIKE[1]


def test_a_mutation_with_a_base_stays_in_the_table(tmp_path: Path) -> None:
    space, rng = get_space(write(tmp_path / "cells.csv", [OTHER, *ALIKE])), np.random.default_rng(0)
    for name in (OTHER, ALIKE[0]):
        assert all(space.row(space.encode(space.mutate(space.decode(name), rng))) in (0, 1) for _ in range(20))


def test_a_copy_reads_the_file_again(table: str) -> None:
    space = get_space(table)
    state = pickle.dumps(space)
    assert len(state) < 2000 and pickle.loads(state) == space
    Path(table.removeprefix("table:")).unlink()
    write(Path(table.removeprefix("table:")), ROWS[1:])
    with pytest.raises(InvalidTable, match="expected the unchanged table"):
        pickle.loads(state)
    assert get_space(table).size == len(ROWS) - 1


def test_evolution_searches_a_table(table: str) -> None:
    searcher = RegularizedEvolution(table, budget=40, population=10, sample_size=3)
    trials = drive(searcher, lambda config: sum(map(int, config["architecture"][1::3])), metric="value", mode="max")
    assert trials["architecture"].isin(ROWS).all() and trials["value"].max() == 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("table:", "expected table:FILE"),
        ("table:absent.csv", "archray cannot read the table"),
        ("table:own.csv?where=width=99", "no row where width is '99'; it is one of 1, 10, 11"),
        ("table:own.csv?where=task=x", "no column 'task' to select by; it has arch, width"),
        ("table:own.csv?color=red", "no role 'color'. Choose one of architecture, objective"),
        ("table:own.csv?architecture=name", "no column 'name' for architecture; it has arch, width"),
        ("table:own.csv?space=nasbench201", "nasbench201: expected a cell with 6 operations"),
        ("table:own.csv?space=nasbench2", "no space 'nasbench2'; did you mean 'nasbench201'?"),
    ],
)
def test_an_invalid_table_raises_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("own.csv"), ROWS, width=range(1, len(ROWS) + 1))
    with pytest.raises(InvalidInput) as error:
        get_space(name)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.fixture(scope="module")
def some_cells(tmp_path_factory: pytest.TempPathFactory) -> TableSpace:
    """Every seventh cell of NAS-Bench-201, in a random order."""
    space, rng = NASBench201(), np.random.default_rng(0)
    names = [space.encode(cell) for cell in space.enumerate()][::7]
    rows = [names[row] for row in rng.permutation(len(names))]
    table = get_space(write(tmp_path_factory.mktemp("tables") / "cells.csv", rows))
    assert isinstance(table, TableSpace)
    return table


@cache
def _forms(table: TableSpace) -> list[tuple[str, ...]]:
    return [NASBench201().canonical(NASBench201().decode(name)) for name in table.architectures]


EVERY_CELL = st.tuples(*(st.sampled_from(decision.choices) for decision in NASBench201.decisions))


@settings(max_examples=40)
@given(cell=EVERY_CELL)
def test_all_spellings_of_a_network_have_one_row_or_none(some_cells: TableSpace, cell: tuple[str, ...]) -> None:
    """The row is that of the canonical form and the first of its form. A form without a row raises an error."""
    base = NASBench201()
    form = base.canonical(cell)
    rows = [row for row, other in enumerate(_forms(some_cells)) if other == form]
    if not rows:
        with pytest.raises(InvalidArchitecture, match=r"the nearest of the 2.233 architectures in the table is"):
            some_cells.row(base.encode(cell))
        return
    assert some_cells.row(base.encode(cell)) == some_cells.row(base.encode(form)) == rows[0]
    standing = some_cells.canonical(cell)
    assert base.canonical(standing) == form and some_cells.canonical(standing) == standing


@given(row=st.integers(0, 2232), seed=st.integers(0, 2**32 - 1))
def test_a_mutation_is_another_row_of_the_table(some_cells: TableSpace, row: int, seed: int) -> None:
    parent = some_cells.decode(some_cells.architectures[row])
    child = some_cells.mutate(parent, np.random.default_rng(seed))
    assert child != parent and some_cells.row(some_cells.encode(child)) >= 0
    assert some_cells.mutate(parent, np.random.default_rng(seed)) == child


def test_a_table_of_cells_is_a_space_of_networks(some_cells: TableSpace) -> None:
    width = NetworkSettings(channels=4, cells=1)
    cell = some_cells.architectures[5]
    networks = [
        build(space, cell, network=width, in_channels=3, num_classes=10, seed=0)
        for space in (some_cells, NASBench201())
    ]
    own, base = (network.state_dict() for network in networks)
    assert own.keys() == base.keys() and all(torch.equal(own[key], base[key]) for key in own)
    assert serves_networks(some_cells) is None


def test_architectures_that_cannot_be_trained_are_searched_by_lookups(table: str) -> None:
    assert "Search the table by lookups: 'archray bench METHOD --table FILE'" in str(serves_networks(get_space(table)))


def test_every_process_finds_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_name("table:own.csv?where=a=b") == f"table:{tmp_path}/own.csv?where=a=b"
    assert absolute_name("table:s3://bucket/own.csv") == "table:s3://bucket/own.csv"
    assert absolute_name("nasbench201") == "nasbench201"
    assert SearchConfig(method="random", space="table:own.csv").space == f"table:{tmp_path}/own.csv"
