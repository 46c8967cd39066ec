"""Searches with several objectives: their resulting sets, on tables and by training, and the input that they reject."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_runs import method_parameters

import archray
from archray.errors import InvalidInput, UnknownName
from archray.platform.methods import get_method
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.method import SearchProblem
from archray.searchers.pareto.front import non_dominated
from archray.trainables.spaces import get_space

METHODS = ("nsga2", "pareto-pool")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """120 cells of NAS-Bench-201 with an accuracy, a metric and the costs on a board."""
    rng = np.random.default_rng(0)
    space = get_space("nasbench201")
    names = list(dict.fromkeys(space.encode(space.canonical(space.sample(rng))) for _ in range(200)))[:120]
    convolutions = np.array([name.count("nor_conv_3x3") + 0.3 * name.count("nor_conv_1x1") for name in names])
    values = 60 + 5 * np.sqrt(convolutions) + rng.normal(0, 1, len(names))
    rows = pd.DataFrame({"arch": names, "val_accuracy": values, "snip": values + rng.normal(0, 3, len(names))})
    rows["board_latency_ms"] = 1 + 2 * convolutions + rng.random(len(names))
    rows.to_csv(tmp_path / "own.csv", index=False)
    return tmp_path / "own.csv"


@pytest.mark.parametrize("method", METHODS)
def test_a_search_on_a_table_returns_the_nondominated_set(method: str, table: Path, tmp_path: Path) -> None:
    run = archray.search(
        method,
        space=f"table:{table}",
        objectives="validation_accuracy, -board_latency_ms",
        budget=30,
        final_members=2,
        out=tmp_path / "run",
    )
    trials = pd.read_parquet(Path(run.path) / "search" / "trials.parquet")
    latency = pd.read_csv(table).set_index("arch")["board_latency_ms"]
    losses = np.stack([-trials["objective"], latency[trials["architecture"]]], axis=1)
    assert run.pareto["number"].sort_values().tolist() == (non_dominated(losses) + 1).tolist()
    assert run.pareto["objective"].is_monotonic_decreasing and run.pareto["board_latency_ms"].is_monotonic_decreasing
    assert run.pareto["hypervolume_contribution"].between(0, 1).all()
    assert run.architecture == run.pareto["architecture"][0]
    ends = run.pareto[run.pareto["result"].notna()]
    assert ends["member"].tolist() == [1, len(run.pareto)], "looked up at the end: the most accurate and the cheapest"
    assert (
        ends["result"].tolist() == pd.read_csv(table).set_index("arch")["val_accuracy"][ends["architecture"]].tolist()
    )
    assert archray.load(run.path).pareto.equals(run.pareto)
    page = (Path(run.path) / "report.html").read_text(encoding="utf-8")
    assert "Pareto front" in page and "Hypervolume by training runs" in page
    figure = archray.plots.pareto_front(run)
    assert figure.axes[0].get_xlabel() == "board_latency_ms"
    assert archray.plots.pareto_hypervolume(run).axes[0].has_data()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("method", method_parameters(METHODS))
def test_by_training_with_two_costs(method: str, tmp_path: Path) -> None:
    run = archray.search(
        method,
        preset="smoke",
        data="digits",
        objectives=["validation_accuracy", "-flops", "-parameters"],
        out=tmp_path / "run",
    )
    assert {"flops", "parameters", "validation_accuracy"} <= set(run.pareto.columns)
    again = archray.search(
        method,
        preset="smoke",
        data="digits",
        objectives=["validation_accuracy", "-flops", "-parameters"],
        out=tmp_path / "again",
    )
    pd.testing.assert_frame_equal(run.pareto, again.pareto)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ("validation_accuracy", "at least one cost"),
        ("-flops", "to be validation_accuracy and at least one cost"),
        ("validation_accuracy, flops", "expected a minus sign before each cost.*-flops"),
        ("validation_accuracy, -flops, -flops", "expected distinct names, got flops twice"),
        ("validation_accuracy, - -flops", "expected names"),
    ],
)
def test_bad_objectives_raise_an_error_at_once(method: str, objectives: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_config(method, "smoke", None, {"data": "digits", "objectives": objectives})


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_cost_raises_before_any_trial(method: str, table: Path) -> None:
    for options in ({"data": "digits"}, {"space": f"table:{table}"}):
        config = make_config(method, "smoke", None, {**options, "objectives": "validation_accuracy, -price"})
        with pytest.raises(UnknownName, match=r"no cost 'price'\. Choose one of"):
            check_config(config)


@pytest.mark.parametrize("method", METHODS)
def test_presets_are_complete(method: str) -> None:
    for preset in get_method(method).presets:
        check_config(make_config(method, preset, None, {"data": "digits"}))


def problem_of(table: Path, **fields: Any) -> SearchProblem:
    rows = pd.read_csv(table).rename(columns={"arch": "architecture"})
    rows.drop(columns="val_accuracy").to_parquet(table.with_suffix(".parquet"))
    known: dict[str, Any] = {"costs": ("board_latency_ms",), **fields}
    return SearchProblem(
        space=get_space(f"table:{table}"),
        pool=str(table.with_suffix(".parquet")),
        metrics=("snip",),
        encoding="tokens",
        objective="value",
        mode="max",
        **known,
    )


@pytest.mark.parametrize("method", METHODS)
def test_the_searcher_of_a_bench(method: str, table: Path) -> None:
    make = get_method(method).make_searcher
    assert make is not None
    searcher: Any = make(problem_of(table), 12, 0, {})
    assert [str(objective) for objective in searcher.further] == ["-board_latency_ms"]
    assert searcher.budget == 12
    if method == "pareto-pool":
        assert searcher.metrics == ("snip",)
    with pytest.raises(InvalidInput, match="a table with costs"):
        make(problem_of(table, costs=()), 12, 0, {})


def test_a_search_for_one_objective_has_no_set(table: Path, tmp_path: Path) -> None:
    run = archray.search("random", space=f"table:{table}", preset="smoke", budget=4, out=tmp_path / "run")
    with pytest.raises(InvalidInput, match="expected a search with several objectives"):
        _ = run.pareto
