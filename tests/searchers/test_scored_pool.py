"""The table of HNASSearch: the files that it accepts, and the detection of changed files."""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd
import pytest

from archray.errors import InvalidPool
from archray.searchers.hnas.objective import load_pool
from archray.searchers.pool_file import PoolFile

ROWS = {
    "architecture": ["a", "b", "c", "d", "e"],
    "snip": [2.0, 0.0, math.nan, -4.0, 1.0],
    "kappa": [10.0, 10.0, 10.0, 20.0, math.nan],
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "pool.parquet"
    pd.DataFrame(ROWS).to_parquet(path)
    return path


def test_scaled_and_unusable_rows_are_counted(table: Path) -> None:
    pool = load_pool(PoolFile.of(table), "snip")
    assert pool.architectures == ["a", "d"]
    assert pool.metric.tolist() == [0.5, 1.0]
    assert pool.kappa.tolist() == [10.0, 20.0]
    assert (pool.factor, pool.excluded) == (4.0, 3)


def test_csv_and_uri(table: Path, tmp_path: Path) -> None:
    pd.DataFrame(ROWS).to_csv(tmp_path / "pool.csv", index=False)
    pd.DataFrame(ROWS).to_csv(tmp_path / "pool.csv.gz", index=False)
    for place in (tmp_path / "pool.csv", tmp_path / "pool.csv.gz", table.as_uri()):
        assert load_pool(PoolFile.of(place), "snip").architectures == ["a", "d"]


def test_path_is_kept_absolute(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = PoolFile.of("pool.parquet")
    monkeypatch.chdir("/")
    assert len(load_pool(file, "snip")) == 2


def test_a_changed_file_raises_an_error(table: Path) -> None:
    file = PoolFile.of(table)
    pd.DataFrame(ROWS).assign(kappa=1.0).to_parquet(table)
    with pytest.raises(InvalidPool, match="has changed"):
        load_pool(file, "snip")
    table.unlink()
    with pytest.raises(InvalidPool, match="cannot be read"):
        load_pool(file, "snip")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kappa": None}, "no column kappa; it has architecture, snip"),
        ({"snip": None}, "no column snip; it has"),
        ({"snip": [0.0] * 5}, "a finite nonzero snip .* none in 5 rows"),
        ({"kappa": [math.nan] * 5}, "a finite nonzero snip"),
        ({"architecture": ["a", "b", "c", "a", "e"]}, "'a' more than once"),
        ({"architecture": [1, 2, 3, 4, 5]}, "expected strings"),
        ({"snip": ["high"] * 5}, "expected numbers"),
    ],
)
def test_bad_tables_raise_an_error(tmp_path: Path, change: dict[str, list[object] | None], message: str) -> None:
    columns = {name: values for name, values in {**ROWS, **change}.items() if values is not None}
    pd.DataFrame(columns).to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(InvalidPool, match=message):
        load_pool(PoolFile.of(tmp_path / "bad.parquet"), "snip")


def test_no_table_at_all(tmp_path: Path) -> None:
    with pytest.raises(InvalidPool, match="cannot be read"):
        PoolFile.of(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not a table")
    with pytest.raises(InvalidPool, match="a Parquet or CSV table"):
        load_pool(PoolFile.of(tmp_path / "text.parquet"), "snip")
