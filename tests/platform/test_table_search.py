"""A search on a table of trained architectures uses lookups instead of training runs and does not need Ray."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import ray
from archray_test_report import section_ids, words
from archray_test_run_files import undescribed_names

import archray
from archray.errors import InvalidInput, RunFolderError
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.configure import make_config
from archray.platform.methods.plain.config import PlainConfig

PLAIN = [name for name in METHODS if issubclass(get_method(name).config, PlainConfig)]
ON_TABLES = [name for name in PLAIN if get_method(name).searcher_at is not None]
METRIC: dict[str, dict[str, Any]] = {name: {"proxy": "snip"} for name in PLAIN if get_method(name).by_proxy}
METRIC |= {name: {"objectives": "validation_accuracy, -params"} for name in ("nsga2", "pareto-pool")}
SPECIAL_SECTIONS = (
    "trust",
    "pareto",
    "hypervolume",
    "costs",
)  # sections of searches with several metrics, or several objectives


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """60 architectures of a user's space with three decisions; accuracies in percent."""
    rng = np.random.default_rng(0)
    places = [(a, b, c) for a in range(4) for b in range(5) for c in range(3)]
    values = np.array([80 + 2 * a - b + 0.5 * c for a, b, c in places]) + rng.normal(0, 0.1, 60)
    rows = pd.DataFrame({"architecture": [str(place) for place in places], "val_accuracy": values})
    rows["snip"], rows["params"] = values + rng.normal(0, 1, 60), rng.uniform(1, 2, 60)
    rows.to_csv(tmp_path / "own.csv", index=False)
    return tmp_path / "own.csv"


def trials(run: Any) -> pd.DataFrame:
    return pd.read_parquet(Path(run.path) / "search" / "trials.parquet")


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[pytest.mark.slow] * (name != "zero-cost")) for name in ON_TABLES]
)
def test_every_search_that_supports_tables(method: str, table: Path, tmp_path: Path) -> None:
    options = {"space": f"table:{table}", "preset": "smoke", "budget": 12, **METRIC.get(method, {})}
    before = ray.is_initialized()  # in another test
    run = archray.search(method, **options, out=tmp_path / "run")
    assert ray.is_initialized() == before
    assert not make_config(method, None, None, {"space": options["space"]}).needs_ray
    trial_table, rows = trials(run), pd.read_csv(table).set_index("architecture")["val_accuracy"]
    assert len(trial_table) == 12 and trial_table["objective"].tolist() == rows[trial_table["architecture"]].tolist()
    assert run.architecture == trial_table["architecture"][trial_table["objective"].idxmax()]
    assert run.summary.result["result"] == rows[run.architecture] and run.summary.result["headline"] == "result"
    assert run.test_accuracy is None
    assert [
        name for name in undescribed_names(Path(run.path)) if not name.endswith(": params")
    ] == []  # a cost of the table
    page = (Path(run.path) / "report.html").read_text()
    expected = ["cell", "choice", "progress", "trials", "names", "failures", "manifest"]
    assert [section for section in section_ids(page) if section not in SPECIAL_SECTIONS] == expected
    assert f"result in the table is {rows[run.architecture]:.4f}" in words(page)
    with pytest.raises(RunFolderError, match="contains no network, since it searched a table"):
        archray.export(run.path)


def test_the_best_by_a_metric_under_a_constraint(table: Path, tmp_path: Path) -> None:
    options = {"space": f"table:{table}", "preset": "smoke", "budget": 5, "proxy": "snip", "mu": 2.0}
    run = archray.search("zero-cost", **options, out=tmp_path / "run")
    rows = pd.read_csv(table).set_index("architecture")["snip"]
    nearest = (rows - rows.mean()).abs().sort_values().index[:5].tolist()
    assert trials(run)["architecture"].tolist() == nearest
    text = words((Path(run.path) / "report.html").read_text())
    assert f"μ = 2.00 times the excess over ν = {rows.mean():.1f} (mean of 60 architectures)" in text


def test_a_moved_search_resumes_with_the_same_trials(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    options = {"space": f"table:{table.name}", "preset": "smoke", "population": 4}
    whole = archray.search("evolution", **options, budget=20, out=tmp_path / "whole")
    run = archray.search("evolution", **options, budget=8, out=tmp_path / "run")
    os.chdir("/")
    extended = archray.resume(run.path, budget=20)
    pd.testing.assert_frame_equal(trials(extended), trials(whole))
    assert extended.architecture == whole.architecture


def test_smaller_can_be_better(table: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(table).rename(columns={"val_accuracy": "val_error"})
    rows.to_csv(table, index=False)
    space = f"table:{table}?objective=val_error&mode=min"
    run = archray.search("random", space=space, preset="smoke", budget=12, out=tmp_path / "run")
    trial_table = trials(run)
    assert run.summary.result["objective"] == trial_table["objective"].min()
    best = (run.summary.listings[0].rows)[0]
    assert best["objective"] == trial_table["objective"].min() and best["outcome"] == "chosen"


@pytest.mark.parametrize("method", ["random", "zero-cost"])
def test_a_search_uses_at_most_the_whole_table(
    method: str, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"space": f"table:{table}", "preset": "smoke", "budget": 70, "random": 80, **METRIC.get(method, {})}
    run = archray.search(method, **options, out=tmp_path / "run")
    assert trials(run)["architecture"].nunique() == len(trials(run)) == 60
    printed = " ".join(capsys.readouterr().out.split())
    assert "60 lookups (requested: 70): the search has no other suggestion" in printed
    assert "60 architectures (requested: 80): " in printed


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("zero-cost", {}, "has no metric 'synflow'; it has snip"),
        ("random", {"repeats": 3}, "archray bench random --table .*own.csv --seeds 3"),
        ("asha", {}, "results at several epochs for asha, .* got .*own.csv"),
        ("gdas", {}, "gdas cannot search table:"),
    ],
)
def test_unsupported_searches_on_a_table_raise_an_error(
    method: str, options: dict[str, Any], message: str, table: Path, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        archray.search(method, space=f"table:{table}", preset="smoke", **options, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def curves(table: Path) -> Path:
    """The table with a value after 1, 3 and 9 epochs. Later values are closer to the final one."""
    rows, rng = pd.read_csv(table), np.random.default_rng(1)
    for epoch, noise in ((1, 2.0), (3, 1.0)):
        rows[f"val_accuracy@{epoch}"] = rows["val_accuracy"] - 20 / epoch + rng.normal(0, noise, len(rows))
    rows.rename(columns={"val_accuracy": "val_accuracy@9"}).to_csv(table, index=False)
    return table


@pytest.mark.parametrize("method", ["asha", pytest.param("bohb", marks=pytest.mark.extra("bohb"))])
def test_lookups_of_a_table_stop_early(method: str, curves: Path, tmp_path: Path) -> None:
    options = {"space": f"table:{curves}", "preset": "smoke", "budget": 40, "reduction_factor": 3}
    run = archray.search(method, **options, out=tmp_path / "run")
    trial_table, rows = trials(run), pd.read_csv(curves).set_index("architecture")
    assert len(trial_table) == 40
    assert all(row.objective == rows[f"val_accuracy@{row.epoch}"][row.architecture] for row in trial_table.itertuples())
    ended = trial_table["epoch"].value_counts()
    assert set(ended.index) == {1, 3, 9} and ended[9] < ended[3] + ended[1]
    whole = trial_table[trial_table["epoch"] == 9]
    assert run.architecture == whole["architecture"][whole["objective"].idxmax()]
    assert "rungs" in section_ids((Path(run.path) / "report.html").read_text())


def test_a_table_with_too_few_epochs_for_the_rungs_raises_an_error(curves: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidInput, match=r"below the 9 epochs of a full training run \(the last epoch of the table\), got 9"
    ):
        archray.search("asha", space=f"table:{curves}", preset="smoke", grace_period=9, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["evolution", "local-search", "zero-cost-evolution"])
def test_searches_by_mutation_reject_rows_without_neighbors(method: str, table: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no encoding that defines near rows"):
        archray.search(method, space=f"table:{table}?encoding=none", preset="smoke", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
