"""The methods with several metrics: the input of their searchers, and the report on the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_plain_report import plain_content
from archray_test_report import cells, write_run

from archray.errors import InvalidPool
from archray.platform.methods import get_method
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.method import SearchProblem
from archray.platform.methods.plain.report import metric_trust
from archray.searchers import RankSurrogateSearch, RoBoTSearch
from archray.trainables.spaces import get_space

METHODS = ("rank-surrogate", "robot")


def pool_of(names: list[str]) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    pool = pd.DataFrame({"architecture": names, "snip": rng.random(len(names)), "kappa": rng.random(len(names))})
    return pool.assign(constant=1.0, parameters=range(len(names)))


def problem_of(tmp_path: Path) -> SearchProblem:
    pool_of(cells(40)).to_parquet(tmp_path / "pool.parquet")
    return SearchProblem(
        space=get_space("nasbench201"),
        pool=str(tmp_path / "pool.parquet"),
        metrics=("snip", "kappa", "constant"),
        costs=("parameters",),
        encoding="tokens",
        objective="value",
        mode="max",
    )


def make(method: str, problem: SearchProblem, **options: Any) -> Any:
    function = get_method(method).make_searcher
    assert function is not None
    return function(problem, 5, 0, options)


@pytest.mark.parametrize("method", METHODS)
def test_the_searcher_of_a_table(method: str, tmp_path: Path) -> None:
    searcher = make(method, problem_of(tmp_path))
    assert isinstance(searcher, RankSurrogateSearch if method == "rank-surrogate" else RoBoTSearch)
    assert searcher.metrics == ("snip", "-kappa", "parameters")
    assert (searcher.budget, searcher.seed) == (5, 0)
    assert make(method, problem_of(tmp_path), proxies="snip;-kappa").metrics == ("snip", "-kappa")
    with pytest.raises(InvalidPool, match="expected different numbers in the column constant"):
        make(method, problem_of(tmp_path), proxies="constant")
    with pytest.raises(InvalidPool, match="no column unknown"):
        make(method, problem_of(tmp_path), proxies=("snip", "unknown"))


def test_the_space_identifies_isomorphic_cells(tmp_path: Path) -> None:
    assert make("rank-surrogate", problem_of(tmp_path)).pool.codes.shape == (40, 6)
    assert make("rank-surrogate", problem_of(tmp_path), encoding="none").pool.codes.shape == (40, 0)


@pytest.mark.parametrize("method", METHODS)
def test_presets_and_directions(method: str) -> None:
    for preset in get_method(method).presets:
        check_config(make_config(method, preset, None, {"data": "digits"}))
    config: Any = make_config(method, "smoke", None, {"data": "digits", "proxies": ["snip", "kappa", "-synflow"]})
    assert config.needed == ("snip", "kappa", "synflow")
    assert config.columns == ("snip", "-kappa", "-synflow")


@pytest.mark.parametrize("method", METHODS)
def test_the_report_shows_the_value_of_each_metric(method: str, tmp_path: Path) -> None:
    tables, documents = plain_content()
    trained = tables["search", "trials.parquet"]["architecture"].tolist()
    pool = pool_of(trained + [name for name in cells(40) if name not in trained])
    values = tables["search", "trials.parquet"]["validation_accuracy"]
    pool["synflow"] = [*values.fillna(0.0), *np.random.default_rng(1).random(len(pool) - len(values))]
    config = {"search": {"proxies": ["snip", "-kappa", "synflow"]}}
    run = write_run(
        tmp_path / "run", method, config=config, tables={**tables, ("pool", "pool.parquet"): pool}, documents=documents
    )
    trust = metric_trust(run)
    assert set(trust["metric"]) == {"snip", "-kappa", "synflow"} and trust["weight"].is_monotonic_decreasing
    assert trust.set_index("metric")["correlation"]["synflow"] == pytest.approx(1.0)
    assert trust.set_index("metric")["rank"]["synflow"] == 1 + (pool["synflow"] > values.max()).sum()
