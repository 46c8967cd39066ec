"""`archray bench import` and `archray bench info`: published tables and the summary of their contents."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from archray.errors import InvalidTable, RunFolderError
from archray.platform.bench.table_import import import_table
from archray.platform.bench.table_info import table_info
from archray.platform.cli import application, main
from archray.trainables.tabular import read_table

SPELLINGS = (
    "|nor_conv_3x3~0|+|none~0|none~1|+|none~0|skip_connect~1|none~2|",
    "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|",
    "|none~0|+|nor_conv_3x3~0|none~1|+|none~0|none~1|skip_connect~2|",
    "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|",
    "|none~0|+|none~0|none~1|+|avg_pool_3x3~0|none~1|none~2|",
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, /, **columns: Any) -> str:
    pd.DataFrame(columns).to_csv(name, index=False)
    return name


def cells() -> str:
    values = [60.0, 62.0, 64.0, 30.0, 40.0]
    return write("cells.csv.gz", index=range(5), arch=SPELLINGS, valid_accuracy=values, params=[5, 5, 5, 1, 1])


def output(*arguments: str) -> str:
    """Returns the output of a command on one line."""
    app = application(list(arguments))
    return " ".join(CliRunner().invoke(app, arguments, catch_exceptions=False).output.split())


def test_an_imported_table_needs_no_further_options() -> None:
    write("own.csv", cell=["b", "a"], error=[0.2, 0.1], final=[0.3, 0.2], width=[1, 2], hours=[3.0, 4.0])
    table = import_table(
        "own.csv", "own.parquet", architecture="cell", objective="error", result="final", mode="min",
        metrics="width", seconds="hours", encoding="columns:width",
    )  # fmt: skip
    again = read_table("own.parquet")
    for copy in (table, again):
        assert list(copy.architectures) == ["b", "a"] and copy.mode == "min" and list(copy.metrics) == ["width"]
        assert list(copy.objective) == [0.2, 0.1] and list(copy.result) == [0.3, 0.2]
        assert copy.seconds is not None and list(copy.seconds) == [3.0, 4.0]
        assert copy.space.encoding == "columns:width"
    assert list(pd.read_parquet("own.parquet")["architecture"]) == ["b", "a"], "a pool for every searcher over pools"


def test_the_canonical_forms_are_computed_once() -> None:
    table = import_table(cells(), "cells.parquet")
    stored = pd.read_parquet("cells.parquet")
    assert stored["canonical"].nunique() == 3 == len(table.rows)
    assert table.row(SPELLINGS[2]) == 0 and table.roles.space == "nasbench201"


def test_tables_are_joined_on_their_common_keys() -> None:
    write("scores.csv", dataset=["x", "x", "y"], index=[3, 0, 3], snip=[7.0, 8.0, 9.0], params=[1, 6, 1])
    table = import_table(cells(), "joined.parquet", join=["scores.csv"], where={"dataset": "x"})
    assert np.array_equal(table.metrics["snip"], [8, np.nan, np.nan, 7, np.nan], equal_nan=True)
    assert list(table.costs) == ["params", "params_scores"], "a column with other values keeps them under another name"


def test_a_scored_pool_is_joined_by_its_canonical_forms() -> None:
    """`archray proxies` uses another column name and writes one row for all spellings of a network."""
    table = import_table(cells(), "cells.parquet")
    forms = [table.space.forms[row] for row in table.rows]
    places = [float(place) for place in range(len(forms))]
    write("pool.csv", architecture=forms, snip=places, failure=[None] * len(forms), seconds=places)
    joined = import_table(cells(), "joined.parquet", join=["pool.csv"])
    assert joined.seconds is None, "the times of the scoring are not those of a training run"
    assert joined.metrics["snip"][joined.rows].tolist() == list(range(len(forms)))


def test_rows_without_a_value_can_be_left_out() -> None:
    write("own.csv", arch=["a", "b", "c"], val_accuracy=[1.0, None, 3.0])
    with pytest.raises(InvalidTable, match="--missing drop"):
        import_table("own.csv", "own.parquet")
    assert not Path("own.parquet").exists()
    assert list(import_table("own.csv", missing="drop").architectures) == ["a", "c"]
    assert Path("own.parquet").exists(), "the name of the file, in this folder"


def test_a_missing_mean_of_the_training_runs_is_computed() -> None:
    write("own.csv", arch=["a", "b"], first=[1.0, 5.0], second=[3.0, None])
    table = import_table("own.csv", objective="value", seeds={"value": "first,second"})
    assert list(table.objective) == [2.0, 5.0] and table.trainings["value"].shape == (2, 2)
    assert table.oracle("drawn")({"architecture": "b", "seed": 1})["objective"] == 5.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("import absent.csv", "archray cannot read the table"),
        ("import own.csv --out taken.parquet", "taken.parquet exists already. Choose another --out"),
        ("import own.csv --out absent/own.parquet", "there is no folder absent; create it"),
        ("import own.csv --objective valid", "no column 'valid' for objective; it has task, arch, val_accuracy"),
        (
            "import own.csv",
            "different values: 'a' has 1.0 and 3.0 in val_accuracy. Choose one with --where task=x (or y)",
        ),
        ("import own.csv --where task", "--where: expected NAME=VALUE, got 'task'"),
        ("import own.csv --where tasks=x", "expected a column of the table, got 'tasks'"),
        ("import own.csv --where task=z", "no row where task is 'z'; it is one of x, y"),
        ("import own.csv --where task=x --proxies same", "in the metric same, got 5 in every row"),
        ("import own.csv --where task=x --objective holes", "expected finite numbers in the column holes"),
        ("import own.csv --where task=x --encoding columns:wide", "has no column 'wide'"),
        ("import own.csv --where task=x --space nasbench201", "expected a cell with 6 operations"),
        ("import own.csv --where task=x --epochs ten=same", "expected a whole number of 1 or more, got 'ten'"),
        ("import own.csv --where task=x --missing keep", "expected raise or drop, got 'keep'"),
        ("import own.csv --where task=x --join other.csv", "Name the column to join on"),
        ("import own.csv --where task=x --join twice.csv", "twice.csv has arch 'a' more than once"),
        ("import own.csv --where task=x --join far.csv", "far.csv. Name another column"),
        ("import cells.csv.gz --join strangers.csv", "contradict each other: where index is 0, arch is"),
        ("info own.csv --where task=x --objective val", "no column 'val' for objective"),
    ],
)
def test_an_unsuitable_file_raises_before_anything_is_written(
    arguments: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cells()
    rows = {"task": ["x", "x", "y"], "arch": ["a", "b", "a"], "val_accuracy": [1.0, 2.0, 3.0]}
    write("own.csv", **rows, same=[5, 5, 5], holes=[1.0, None, 2.0])
    write("twice.csv", arch=["a", "a"], snip=[1.0, 2.0])
    write("other.csv", name=["a"], snip=[1.0])
    write("far.csv", arch=["c"], snip=[1.0])
    write("strangers.csv", index=[0], arch=["a"])
    Path("taken.parquet").write_text("")
    before = sorted(Path().iterdir())
    monkeypatch.setattr(sys, "argv", ["archray", "bench", *shlex.split(arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert message in error and len(error.strip().splitlines()) == 1, error
    assert sorted(Path().iterdir()) == before


def test_info_describes_a_table() -> None:
    text = output("bench", "import", cells())
    assert "5 architectures, 3 distinct networks; space nasbench201" in text
    assert (
        "1 network with several spellings (3 rows): within a network, the objective's standard deviation is 2.00"
        in text
    )
    assert "its largest range 4.00" in text
    assert output("bench", "info", "cells.parquet") == text
    info = json.loads(output("bench", "info", "cells.parquet", "--json"))
    assert info["rows"] == 5 and info["networks"] == 3 and info["spellings"]["widest"] == 4.0
    params = next(column for column in info["columns"] if column["column"] == "params")
    assert params["role"] == "cost" and params["spearman"] == pytest.approx(0.866, abs=1e-3)  # ties: 60, 30, 40
    assert info["serves"]["largest first"] == "yes, by params"
    assert info["serves"]["HNAS"].startswith("no") and info["serves"]["a budget in seconds"].startswith("no")


def test_info_counts_missing_values() -> None:
    write("own.csv", arch=["a", "b c", "d"], val_accuracy=[1.0, 2.0, 3.0], snip=[1.0, None, 3.0], note=["", "", ""])
    info = table_info("own.csv")
    snip = next(column for column in info.columns if column.column == "snip")
    assert snip.missing == 1 and np.isnan(snip.spearman), "two rows have no correlation"
    assert info.others == ("note",) and info.serves["neighbors (evolution, local search)"].startswith(
        "no: the table has no encoding"
    )


def test_an_existing_table_is_not_overwritten() -> None:
    import_table(cells())
    with pytest.raises(RunFolderError, match="exists already"):
        import_table("cells.csv.gz")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(
    ("file", "options", "networks", "objective"),
    [
        (
            "nasbench201",
            {"join": ["nasbench201_zcp", "nasbench201_cost"], "where": {"dataset": "cifar10"}},
            5044, 84.892,
        ),
        ("transnas101_micro", {"where": {"task": "jigsaw"}}, 711, 94.99403),
        ("nasbench301_zcp", {}, 725, 94.48888),
        (
            "nasbench1shot1_ss1",
            {"architecture": "row", "objective": "mean_val", "result": "mean_test", "mode": "min",
             "encoding": "columns:node1,node2,node3,node4,node5,adj_matrix"},
            2487, 0.6617922,
        ),
        (
            "nasbench1shot1_ss1",
            {"space": "nasbench1shot1-1", "objective": "mean_val", "result": "mean_test", "mode": "min"},
            2127, 0.6617922,
        ),
    ],
)  # fmt: skip
def test_published_tables_are_imported(
    benchmark_data: Path, file: str, options: dict[str, Any], networks: int, objective: float
) -> None:
    options = {**options, "join": [benchmark_data / f"{other}.csv.gz" for other in options.get("join", ())]}
    table = import_table(benchmark_data / f"{file}.csv.gz", "table.parquet", **options)
    assert len(table.rows) == networks and table.objective.max() == objective
