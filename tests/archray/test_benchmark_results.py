"""The measurements in benchmarks/results, and the tables and charts of them."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from archray.references import load_reference

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = sorted((REPOSITORY / "benchmarks" / "results").glob("*.csv"))


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    function = load_reference(f"{REPOSITORY / 'docs' / 'generate' / 'benchmark_results.py'}:results_of")
    module = ModuleType("benchmark_results")
    module.__dict__.update(function.__globals__)
    return module


def test_the_interval_is_that_of_students_t(generator: ModuleType) -> None:
    sample = [93.1, 94.4, 92.2, 95.0, 93.7]
    low, high = generator.interval(statistics.mean(sample), statistics.stdev(sample), len(sample))
    half = 2.7764451052 * statistics.stdev(sample) / 5**0.5  # t(0.975, 4) of a printed table
    assert low == pytest.approx(statistics.mean(sample) - half, rel=1e-9)
    assert high == pytest.approx(statistics.mean(sample) + half, rel=1e-9)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_has_its_origin_and_numbers(generator: ModuleType, file: Path) -> None:
    header, cells = generator.read_results(file.stem)
    assert re.fullmatch(r"[0-9a-f]{7,}", header["commit"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", header["date"])
    assert len(cells)
    assert "nan" not in "".join(cell.text for column in cells for cell in cells[column])


@pytest.fixture
def example(generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    head = "# question: Which?\n# command: make\n# machine: none\n# date: 2026-01-01\n# commit: abcdef0\n"
    rows = pd.DataFrame(
        {
            "method": ["a", "b"],
            "test_mean": ["94.31", "89.10"],
            "test_std": ["0.11", ""],
            "rank": ["1.3", "4462.0"],
            "tau": ["0.28", "0.4"],
            "tau_low": ["0.21", ""],
            "tau_high": ["0.34", ""],
            "n": ["20", "20"],
        }
    )
    (tmp_path / "known.csv").write_text(head + rows.to_csv(index=False))
    monkeypatch.setitem(generator.read_results.__globals__, "RESULTS", tmp_path)
    return generator


def test_a_table_has_intervals(example: ModuleType) -> None:
    table = example.results_of(*example.options_of("results", "known sort=test labels=test:Accuracy_(%)"))
    assert table.splitlines()[:4] == [
        "| method | Accuracy (%) | rank | tau |",
        "| --- | --- | --- | --- |",
        "| b | 89.10 | 4,462 | 0.4 |",
        "| a | 94.31 [94.26, 94.36] | 1.3 | 0.28 [0.21, 0.34] |",
    ]
    assert "95 % confidence interval of the mean or 95 % interval, n = 20. none; 2026-01-01" in table


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("results: unknown", "Expected the name of a file in benchmarks/results, got 'unknown'. Use one of: known"),
        ("results: known columns=method,other", "Expected a column of the results, got 'other'"),
        ("results: known color=red", "Expected an option of results, got 'color'"),
        ("results: known where=method:c", "Expected a value of method in where=, got 'c'"),
        ("chart: known kind=pie", "Expected kind=dots or kind=lines, got 'pie'"),
        ("chart: known label=method value=test log=z", "Expected log=x, log=y or log=xy, got 'z'"),
        ("chart: known label=method value=other", "Expected a column of the results, got 'other'"),
    ],
)
def test_an_unknown_name_is_an_error(example: ModuleType, marker: str, message: str) -> None:
    kind, _, words = marker.partition(": ")

    def draw() -> None:
        name, options = example.options_of(kind, words)
        if kind == "results":
            example.results_of(name, options)
        else:
            example.chart_of(name, options)[2]()

    with pytest.raises(ValueError, match=re.escape(message)):
        draw()
