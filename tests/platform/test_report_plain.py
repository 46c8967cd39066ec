"""The report of a plain search: the best trial and its description."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from archray_test_plain_report import plain_content, plain_run
from archray_test_report import cells, rendered, words, write_run
from archray_test_runs import method_parameters

from archray.errors import InvalidInput
from archray.platform.methods import METHODS, get_method
from archray.platform.methods.configure import check_config, make_config
from archray.platform.methods.method import SearchProblem
from archray.platform.methods.plain import report as plain_report
from archray.platform.methods.plain.config import PlainConfig
from archray.platform.methods.plain.report import (
    best_of_repeats,
    plain_best_so_far,
    plain_training_curves,
    rungs_section,
)
from archray.platform.methods.plain.tables import Trials
from archray.platform.report import curves
from archray.platform.report.figures import FOUND
from archray.trainables.spaces import get_space


def test_only_trials_of_equal_training_length_are_compared(tmp_path: Path) -> None:
    """A scheduler stops trials early. A trial with a better value at its earlier last epoch is not the result."""
    trials = pd.DataFrame(
        {
            "architecture": list("abcde"),
            "validation_accuracy": [0.9, 0.5, 0.7, 0.7, np.nan],
            "epoch": [1, 4, 4, 4, 4],
            "failure": [None, None, None, None, "broken"],
        }
    )
    assert Trials(trials).best == 2
    assert Trials(trials).values.isna().tolist() == [True, False, False, False, True]
    text = words(rendered(plain_run(tmp_path / "run", rungs=True)))
    assert "stopped before the last epoch" in text and "stopped early" in text


def test_the_epochs_at_which_trials_stopped_are_counted(tmp_path: Path) -> None:
    run = plain_run(tmp_path / "run", rungs=True)
    section = rungs_section(run)
    assert section is not None and rungs_section(plain_run(tmp_path / "whole")) is None
    trials = run.table("search", "trials.parquet")
    epochs = trials["epoch"][trials["failure"].isna()]
    of_rungs = [
        f"{epoch} {(epochs >= epoch).sum()} {(epochs == epoch).sum()} "
        f"{100 * trials['validation_accuracy'][epochs.index[epochs == epoch]].max():.2f}"
        for epoch in sorted(set(epochs))
    ]
    assert len(of_rungs) > 1
    for row in of_rungs:
        assert row in words(section.body)


def test_the_best_so_far_of_repeats_of_unequal_length(tmp_path: Path) -> None:
    curves = best_of_repeats(plain_run(tmp_path / "run", repeats=2, trials=6))
    assert curves.shape == (2, 6) and (np.diff(curves, axis=1) >= 0).all()


def test_many_training_runs_are_drawn_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are in the tables and in the numbers of the captions."""
    few = plain_run(tmp_path / "few", trials=8)
    monkeypatch.setattr(curves, "_MOST", 8)
    monkeypatch.setattr(plain_report, "_MOST", 8)
    many = plain_run(tmp_path / "many", trials=40)
    for run, points, words_of_part in ((few, 8, 0), (many, 8, 2)):
        best = best_of_repeats(run)[0]
        records = set(np.flatnonzero(np.diff(best, prepend=np.nan)))
        drawn = np.ma.getdata(plain_best_so_far(run).axes[0].collections[0].get_offsets())[:, 0] - 1
        assert records <= set(drawn.astype(int)) and points <= len(drawn) <= points + len(records)
        for panel in plain_training_curves(run).axes:
            assert points - 1 <= len(panel.lines) <= points + 1  # one trial failed; the found one is added
            assert panel.lines[-1].get_color() == FOUND
        page = words(rendered(run))
        assert page.count("evenly spaced") == words_of_part
        assert all(f"A{number} " in page for number in range(1, len(best) + 1))


PLAIN = [name for name in METHODS if issubclass(get_method(name).config, PlainConfig)]


@pytest.mark.parametrize("method", method_parameters(PLAIN))
def test_presets_make_searches_that_can_start(method: str) -> None:
    """A search on a table uses the same searcher."""
    for preset in get_method(method).presets:
        check_config(make_config(method, preset, None, {"data": "digits"}))
    make = get_method(method).make_searcher
    assert (make is None) == (method in ("asha", "bohb"))  # a table cannot answer these: their training runs stop early


@pytest.mark.parametrize("method", ["evolution", "zero-cost-evolution"])
def test_missing_sizes_are_those_of_small_searches(method: str, tmp_path: Path) -> None:
    space = get_space("nasbench201")
    pool = pd.DataFrame({"architecture": cells(120), "synflow": np.arange(120.0)})
    pool.to_parquet(tmp_path / "pool.parquet")
    problem = SearchProblem(
        space=space,
        pool=str(tmp_path / "pool.parquet"),
        metrics=("synflow",),
        costs=(),
        encoding="tokens",
        objective="value",
        mode="max",
    )
    options: dict[str, Any] = {"proxy": "synflow"} if method == "zero-cost-evolution" else {}
    make = get_method(method).make_searcher
    assert make is not None
    searchers = [make(problem, budget, 0, options) for budget in (20, 1000)]
    assert [(each.population, each.sample_size) for each in searchers] == [(10, 3), (10, 3)]
    if options:
        first = [point["architecture"] for point in searchers[0].points_to_evaluate]
        assert first == pool["architecture"][::-1][:10].tolist()
        smallest = make(problem, 20, 0, {**options, "order": "smallest"})
        assert smallest.points_to_evaluate[0]["architecture"] == pool["architecture"][0]
        constrained = make(problem, 20, 0, {**options, "mu": 2.0, "nu": 40.0})
        assert constrained.points_to_evaluate[0]["architecture"] == pool["architecture"][40]


def test_a_metric_for_which_smaller_is_better_starts_from_the_smallest() -> None:
    def order(**options: str) -> str:
        config = make_config("zero-cost", "smoke", None, {"data": "digits", **options})
        return str(config.searcher_options["order"])

    assert order(proxy="synflow") == "largest" and order(proxy="kappa") == "smallest"
    assert order(proxy="kappa", search__order="largest") == "largest"
    assert order(proxy="anything", pool="of_another_program.parquet") == "largest"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mu": 0.5}, "mu: expected 1 or more, got 0.5"),
        ({"nu": 2.0}, "nu: expected mu and nu together"),
        ({"mu": 1.0, "proxy": "kappa"}, "expected a metric whose largest values come first, got kappa, smallest first"),
        ({"mu": 1.0, "search__order": "smallest"}, "got synflow, smallest first"),
    ],
)
@pytest.mark.parametrize("method", ["zero-cost", "zero-cost-evolution"])
def test_invalid_constraints_raise_an_error(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_config(make_config(method, "smoke", None, {"data": "digits", **options}))


def test_a_population_as_large_as_the_budget_raises_an_error() -> None:
    for method in ("evolution", "zero-cost-evolution"):
        with pytest.raises(InvalidInput, match="below the budget, 4 training runs, got 4"):
            check_config(make_config(method, "smoke", None, {"population": 4}))


def test_rungs_above_the_number_of_epochs_raise_an_error() -> None:
    with pytest.raises(InvalidInput, match="below the 2 epochs of a full training run"):
        check_config(make_config("asha", "smoke", None, {"grace_period": 2}))


def test_a_metric_that_fails_is_among_the_failures(tmp_path: Path) -> None:
    tables, documents = plain_content()
    names = tables["search", "trials.parquet"]["architecture"]
    reasons = ["naswot: no nn.ReLU", *[None] * (len(names) - 1)]
    tables["pool", "pool.parquet"] = pd.DataFrame({"architecture": names, "synflow": 1.0, "failure": reasons})
    text = words(rendered(write_run(tmp_path / "run", "zero-cost", tables=tables, documents=documents)))
    assert f"scoring the pool naswot: no nn.ReLU 1 {len(names)}" in text and "1 in scoring the pool" in text
