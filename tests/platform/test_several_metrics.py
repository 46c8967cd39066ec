"""The methods with several metrics: the input of their searchers, and the report on the metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_plain_report import plain_content
from archray_test_report import cells, rendered, section_ids, write_run

from archray.errors import InvalidPool
from archray.platform.methods import METHODS as ALL_METHODS
from archray.platform.methods import get_method
from archray.platform.methods.config import PooledConfig
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.method import SearchProblem
from archray.platform.methods.plain import report as plain_report
from archray.platform.methods.plain.report import metric_trust, trust_section
from archray.platform.run.run import Run
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


@pytest.mark.parametrize("method", METHODS)
def test_a_pool_without_a_usable_metric_raises_an_error(method: str, tmp_path: Path) -> None:
    problem = problem_of(tmp_path)
    pool_of(cells(40)).assign(snip=np.nan, kappa=np.nan, parameters=1).to_parquet(tmp_path / "pool.parquet")
    with pytest.raises(InvalidPool, match="the same or none in each of snip, -kappa, constant, parameters"):
        make(method, problem)


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


POOLED = [name for name in ALL_METHODS if issubclass(get_method(name).config, PooledConfig)]


@pytest.mark.parametrize("method", POOLED)
def test_a_pool_is_scored_by_the_metrics_of_its_search_alone(method: str) -> None:
    config: Any = make_config(method, "smoke", None, {"data": "digits"})
    assert config.scored.metrics == config.needed
    assert ("kappa" in config.needed) == (method == "hnas")
    further = make_config(method, "smoke", None, {"data": "digits"}, ["proxies.metrics=[naswot,kappa]"])
    assert further.scored.metrics == tuple(dict.fromkeys(("naswot", "kappa", *config.needed)))
    stored = get_method(method).config.model_validate(further.model_dump(mode="json"))
    assert stored == further  # a run of an earlier version contains the list of its metrics


def run_of(method: str, place: Path) -> Run[Any]:
    """A run whose metric `synflow` orders the trials as their values do."""
    tables, documents = plain_content()
    trained = tables["search", "trials.parquet"]["architecture"].tolist()
    pool = pool_of(trained + [name for name in cells(40) if name not in trained])
    values = tables["search", "trials.parquet"]["validation_accuracy"]
    pool["synflow"] = [*values.fillna(0.0), *np.random.default_rng(1).random(len(pool) - len(values))]
    config = {"search": {"proxies": ["snip", "-kappa", "synflow"]}}
    tables = {**tables, ("pool", "pool.parquet"): pool}
    return write_run(place, method, config=config, tables=tables, documents=documents)


@pytest.mark.parametrize("method", METHODS)
def test_the_report_shows_the_value_of_each_metric(method: str, tmp_path: Path) -> None:
    run = run_of(method, tmp_path / "run")
    pool, values = run.table("pool", "pool.parquet"), run.table("search", "trials.parquet")["validation_accuracy"]
    trust = metric_trust(run)
    assert set(trust["metric"]) == {"snip", "-kappa", "synflow"} and trust["weight"].is_monotonic_decreasing
    assert trust.set_index("metric")["correlation"]["synflow"] == pytest.approx(1.0)
    assert trust.set_index("metric")["rank"]["synflow"] == 1 + (pool["synflow"] > values.max()).sum()
    shown = section_ids(rendered(run))
    assert "trust" in shown and "pool-bounds" not in shown  # the bounds belong to the objective of HNAS


def test_many_trials_are_fitted_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("rank-surrogate", tmp_path / "run")
    trust, section = metric_trust(run), trust_section(run)
    monkeypatch.setattr(plain_report, "_FITTED", 11)  # all trials that did not fail
    pd.testing.assert_frame_equal(metric_trust(run), trust)
    monkeypatch.setattr(plain_report, "_FITTED", 5)
    fitted, section_of_fitted = metric_trust(run), trust_section(run)
    assert not np.allclose(fitted["weight"], trust["weight"])
    same = ["before", "correlation", "rank"]
    pd.testing.assert_frame_equal(*(table.sort_values("metric", ignore_index=True)[same] for table in (fitted, trust)))
    assert section is not None and "evenly spaced" not in section.body
    assert section_of_fitted is not None
    assert "11 training runs (fitted to 5 of them, evenly spaced by value)" in section_of_fitted.body
