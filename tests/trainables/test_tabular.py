"""Tables of results: roles of columns, values, lookups, and invalid tables."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from archray.errors import InvalidArchitecture, InvalidInput, InvalidTable
from archray.trainables.tabular import OBJECTIVE, read_table
from archray.trainables.tabular.table_file import is_size

ALIKE = (
    "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|",
    "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|",
)
OTHER = "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"


def write(folder: Path, **columns: Any) -> Path:
    """Writes a table of three architectures, a, b and c, with these columns in addition to the usual ones or in their
    place.
    """
    usual: dict[str, Any] = {"arch": ["a", "b", "c"], "val_accuracy": [70.0, 80.0, 75.0], "test_accuracy": [69, 79, 76]}
    usual |= {"snip": [1.0, 2.0, 3.0], "params": [5, 6, 7]}
    path = folder / "own.csv"
    pd.DataFrame({name: value for name, value in {**usual, **columns}.items() if value is not None}).to_csv(
        path, index=False
    )
    return path


def test_costs_that_are_sizes() -> None:
    sizes = ["params", "n_parameters", "FLOPs (M)", "flop", "macs", "edge_params_mb", "multiply_adds"]
    assert all(map(is_size, sizes)) and not any(map(is_size, ["latency", "edgegpu_energy"]))


def test_columns_are_detected_by_their_names(tmp_path: Path) -> None:
    path = write(tmp_path, seconds=[9, 8, 7], pixel3_latency_ms=[1, 2, 3], zen=[2, 2, 2], note=["x", "y", "z"])
    table = read_table(path)
    assert list(table.objective) == [70, 80, 75] and list(table.result) == [69, 79, 76] and table.mode == "max"
    assert list(table.metrics) == ["snip"], "zen is the same in every row"
    assert set(table.costs) == {"params", "pixel3_latency_ms"}
    assert table.seconds is not None and list(table.seconds) == [9, 8, 7]


def test_columns_can_be_set_by_the_user(tmp_path: Path) -> None:
    path = write(tmp_path, error_5=[3.0, 2.0, 1.0], error_10=[2.0, 1.5, 0.5])
    table = read_table(
        path, objective="error_10", result="error_5", mode="min", metrics="params", costs=(), epochs={5: "error_5"}
    )
    assert list(table.objective) == [2.0, 1.5, 0.5] and table.mode == "min", "values keep their sign"
    assert list(table.metrics) == ["params"] and not table.costs and list(table.epochs) == [5]


def test_a_lookup_returns_the_results_of_a_training_run(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, seconds=[9, 8, 7]))
    result = table.oracle()({"architecture": "b", "seed": 3})
    assert result == {OBJECTIVE: 80.0, "row": 1, "seconds": 8.0, "params": 6.0}, "and not its result"
    with pytest.raises(InvalidArchitecture, match="no architecture 'd'; the nearest of the 3 architectures"):
        table.oracle()({"architecture": "d"})


def test_a_trial_selects_a_training_run_by_its_seed(tmp_path: Path) -> None:
    path = write(tmp_path, val_accuracy_seed0=[69.0, 79, 75], val_accuracy_seed1=[71.0, 81, None])
    table = read_table(path)
    assert table.trainings["val_accuracy"].shape == (3, 2)
    drawn = table.oracle("drawn")
    assert {drawn({"architecture": "a", "seed": seed})[OBJECTIVE] for seed in range(20)} == {69.0, 71.0}
    assert {drawn({"architecture": "c", "seed": seed})[OBJECTIVE] for seed in range(20)} == {75.0}
    assert drawn({"architecture": "a", "seed": 5}) == drawn({"architecture": "a", "seed": 5})
    assert table.oracle("mean")({"architecture": "a", "seed": 5})[OBJECTIVE] == 70.0
    with pytest.raises(InvalidTable, match=r"training runs of val_accuracy.*--seeds val_accuracy="):
        read_table(path, seeds={}).oracle("drawn")
    with pytest.raises(InvalidInput, match="expected mean or drawn, got 'best'"):
        table.oracle("best")  # type: ignore[arg-type]


def test_one_row_represents_all_spellings(tmp_path: Path) -> None:
    path = write(tmp_path, arch=[ALIKE[0], OTHER, ALIKE[1]], snip=[None, 2.0, 3.0])
    table = read_table(path)
    assert list(table.rows) == [0, 1] and table.row(ALIKE[1]) == 0
    assert table.oracle()({"architecture": ALIKE[1]})[OBJECTIVE] == 70.0
    assert list(table.metrics["snip"]) == [3.0, 2.0, 3.0], "a missing metric is taken from another spelling"


def test_a_copy_is_the_same_table(tmp_path: Path) -> None:
    path = write(tmp_path, task=["x", "x", "y"])
    table = read_table(path, {"task": "x"}, objective="test_accuracy")
    state = pickle.dumps(table.oracle())
    again = pickle.loads(state).table
    assert len(state) < 3000 and again.space == table.space and np.array_equal(again.objective, table.objective)


@pytest.mark.parametrize(
    ("columns", "roles", "message"),
    [
        ({"val_accuracy": None}, {}, "expected a column with the objective"),
        ({}, {"objective": "valid"}, "no column 'valid' for objective; it has arch, val_accuracy"),
        ({}, {"metrics": "synflow"}, "no column 'synflow' for metrics"),
        (
            {"arch": ["a", "b", "a"]},
            {},
            "1 architecture with different values: 'a' has 70.0 and 75.0 in",
        ),
        ({"arch": ["a", "b", "a"], "task": ["x", "x", "y"]}, {}, "Choose one with --where task=x (or y)"),
        (
            {"val_accuracy": [70, None, 75]},
            {},
            "in the column val_accuracy (objective), got none in 1 row of 3",
        ),
        (
            {"test_accuracy": [70, 80, np.inf]},
            {},
            "in the column test_accuracy (result), got none in 1 row of 3, first 'c'",
        ),
        ({"val_accuracy": ["good", "bad", "bad"]}, {}, "expected numbers in the column val_accuracy"),
        ({"val_accuracy": [5, 5, 5]}, {}, "in the column val_accuracy (objective), got 5 in every row"),
        ({"zen": [2, 2, 2]}, {"metrics": "zen"}, "in the metric zen, got 2 in every row. Leave it out"),
        ({"zen": [None, None, None]}, {"metrics": "zen"}, "expected numbers in the metric zen, got none. Leave it out"),
        ({"arch": ["a", None, "c"]}, {}, "expected an architecture in every row, got none in 1 row"),
        ({"arch": None}, {}, "Name the columns that identify an architecture (--architecture COLUMN,..."),
        ({}, {"mode": "best"}, "expected 'max' or 'min', got 'best'"),
    ],
)
def test_unusable_tables_raise_an_error(
    tmp_path: Path, columns: dict[str, Any], roles: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        read_table(write(tmp_path, **columns), **roles)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_rows_that_disagree_in_a_missing_value_are_rejected(tmp_path: Path, value: float | None) -> None:
    path = write(tmp_path, arch=["a", "a", "b"], val_accuracy=[70.0, value, 75.0], task=["x", value, "x"])
    with pytest.raises(InvalidTable, match="1 architecture with different values"):
        read_table(path)
    with pytest.raises(InvalidTable, match="no row where task is 'y'"):
        read_table(path, {"task": "y"})


def test_equal_rows_of_one_architecture_count_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        arch=["a", "b", "b"],
        val_accuracy=[7, 8, 8],
        test_accuracy=[7, 8, 8],
        snip=[1, 2, 2],
        params=[1, 2, 2],
    )
    assert len(read_table(path)) == 2


def test_an_architecture_may_be_named_by_columns_or_by_its_row(tmp_path: Path) -> None:
    path = write(tmp_path, arch=None, first=["x", "x", "y"], second=[1, 2, 1])
    assert list(read_table(path, architecture="first,second").architectures) == ["x|1", "x|2", "y|1"]
    assert list(read_table(path, architecture="row").architectures) == ["row-0", "row-1", "row-2"]
