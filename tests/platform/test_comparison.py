"""The result of a search: the found network, or a network for comparison with a better validation accuracy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from archray_test_plain_report import plain_content
from archray_test_report import cells, rendered, words, write_repeats, write_run, write_summaries
from ray.tune import Checkpoint, Result

import archray
from archray.files import Folder
from archray.platform.methods.configure import make_config
from archray.platform.methods.recipe import describe, recipe_of
from archray.platform.methods.stages import best_result, small_space
from archray.platform.quantities import duration
from archray.platform.run.run import Run

SPACE = "archray_test_small_space:network"


def content(final: float | None, other: float | None, origin: str = "random", seed: int = 0) -> tuple[Any, Any]:
    """The tables and documents of a search with the validation accuracies of a final and another network."""
    tables, documents = plain_content(seed=seed)
    name = cells(12, seed)[0]
    description = {"final_accuracy": final, "architecture": documents["search", "architecture.json"]["architecture"]}
    documents["final/model", "architecture.json"] = description
    if other is not None:
        document = {"architecture": name, "value": other, "metric": "final_accuracy", "origin": origin}
        documents["baseline", "architecture.json"] = document
    trials = tables["baseline", "trials.parquet"]
    rows = [
        trials.assign(architecture=cell, test_accuracy=0.7 + 0.1 * n) for n, cell in enumerate(cells(3, seed)[::-1])
    ]
    tables["baseline", "trials.parquet"] = pd.concat(rows, ignore_index=True)  # the last one is `name`
    return tables, documents


def run_with(place: Path, *accuracies: Any) -> Run[Any]:
    tables, documents = content(*accuracies)
    return write_run(place, "evolution", tables=tables, documents=documents)


@pytest.mark.parametrize(
    ("final", "other", "is_found"),
    [(0.5, 0.6, False), (0.6, 0.5, True), (0.5, 0.5, True), (0.5, None, True), (None, 0.6, True)],
)
def test_the_better_network_by_validation_is_the_result(
    tmp_path: Path, final: float | None, other: float | None, is_found: bool
) -> None:
    run = run_with(tmp_path / "run", final, other)
    assert run.result is not None and run.found is not None
    assert (run.result["architecture"] == run.architecture) == is_found == ("found" not in run.result)
    measures = describe(run)["result"]
    assert measures["test_accuracy"] == (0.75 if is_found else pytest.approx(0.9)), "no choice by test accuracy"
    assert measures.get("found_test_accuracy") == (None if is_found else 0.75)
    if not is_found:
        assert measures["found"] == run.architecture and measures["final_accuracy"] == other


@pytest.mark.parametrize(
    ("origin", "in_page", "in_terminal"),
    [
        ("random", "one of 3 random architectures: after the same training", "one of 3 random architectures; after"),
        ("space", "archray trained all 4 architectures of the space", "one of all 4 architectures of the space; after"),
    ],
)
def test_the_report_and_show_name_the_origin_and_the_accuracy_of_the_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], origin: str, in_page: str, in_terminal: str
) -> None:
    run = run_with(tmp_path / "run", 0.5, 0.625, origin)
    text = words(rendered(run))
    assert in_page in text and "its validation accuracy, 62.50 %, is higher" in text
    assert "The result reaches 90.00 % test accuracy. The found architecture reaches 75.00 % test accuracy" in text
    assert ("random" in text) == (origin == "random")
    assert "A1, result" in text and "A2, found" in text
    assert re.search(
        r"90.00 % test accuracy, 1 training run 75.00 % test accuracy \(found\), 1 final training run time ", text
    )
    place = write_summaries(run)
    capsys.readouterr()
    archray.show(place)
    printed = capsys.readouterr().out
    assert run.result is not None and in_terminal in printed
    assert f"architecture {run.result['architecture']}" in words(printed) and f"found {run.architecture}" in words(
        printed
    )
    assert "test accuracy (found) 75.00 %" in words(printed)
    result = archray.load(place)
    assert (result.architecture, result.origin, result.final_accuracy) == (run.result["architecture"], origin, 0.625)


def test_the_best_repeat_has_the_best_validation_accuracy_after_the_final_training(tmp_path: Path) -> None:
    contents = [content(0.5, 0.4, seed=0), content(0.5, 0.7, seed=1), content(0.6, 0.5, seed=2)]
    run = write_repeats(tmp_path / "run", "evolution", contents)
    result = archray.load(write_summaries(run))
    assert result.origin == "random" and result.architecture == result.repeats[1].architecture == cells(12, 1)[0]
    assert run.best.config.seed == 1
    text = words(rendered(run))
    assert "In 1 of the repeats, the result is another architecture" in text
    assert describe(run)["result"]["found_test_accuracy"] == pytest.approx(0.75)


@pytest.mark.parametrize("is_found", [False, True])
def test_the_largest_network_is_compared_apart_from_random_ones(tmp_path: Path, is_found: bool) -> None:
    tables, documents = content(0.6, 0.5)
    found = documents["search", "architecture.json"]["architecture"]
    trials = tables["baseline", "trials.parquet"]  # test accuracies 0.7, 0.8, 0.9
    name = found if is_found else trials["architecture"][0]
    trials.loc[0, "architecture"] = name
    tables["baseline", "trials.parquet"] = trials.assign(time_total_s=[4.0, 3.0, 1.0], parameters=950.0)
    documents["baseline", "largest.json"] = {"architecture": name, "of": 50}
    document = {
        "architecture": name,
        "value": 0.7 if is_found else 0.5,
        "metric": "final_accuracy",
        "origin": "largest",
    }
    documents["baseline", "architecture.json"] = document  # a better seed of the found architecture is no other result
    run = write_run(tmp_path / "run", "evolution", tables=tables, documents=documents)
    assert run.result is not None and run.result["architecture"] == found and "found" not in run.result
    measures = describe(run)["result"]
    expected = {
        "largest_test_accuracy": 0.725 if is_found else 0.7,
        "random_test_accuracy": 0.85,
        "random_test_accuracy_n": 2,
    }
    assert {key: measures[key] for key in expected} == pytest.approx(expected)
    page = rendered(run)
    text = words(page)
    if is_found:
        assert "It is the largest network" in text and "is the largest of 50 architectures (" in text
    else:
        assert "and 5.00 percentage points above the largest network" in text
        assert "Square: the largest of 50 architectures, 0.00095 M parameters" in text
    first_screen = text.partition("Started")[0]
    done = {stage: (run.document(stage, "done.json") or {})["seconds"] for stage in ("search", "final", "baseline")}
    half = duration(done["baseline"] / 2)
    largest = "72.50 ± 3.54 % test accuracy (largest), mean and standard deviation of 2 training runs"
    largest = largest if is_found else "70.00 % test accuracy (largest), 1 training run"
    assert f"{largest} time {half}" in first_screen
    assert f"2 random architectures time {half}" in first_screen
    assert f"1 final training run time {duration(done['search'] + done['final'])}" in first_screen
    assert not [key for key in measures if "seconds" in key], "equal for a resumed run"


def test_a_trial_that_failed_is_not_the_best(tmp_path: Path) -> None:
    def trial(accuracy: float, **more: Any) -> Result:
        fields = {"checkpoint": Checkpoint(str(tmp_path)), "error": None, "path": str(tmp_path), **more}
        metrics = {"validation_accuracy": accuracy, **fields.pop("metrics", {})}
        return Result(metrics=metrics, **fields)

    unusable = [
        trial(0.9, error=RuntimeError("lost")),
        trial(0.9, metrics={"failure": "NaN in epoch 3"}),
        trial(0.9, checkpoint=None),
        trial(float("nan")),
    ]
    first, second = trial(0.5), trial(0.5)
    assert best_result([*unusable, first, second, trial(0.4)]) is first
    assert best_result(unusable) is None


def test_a_space_is_small_if_the_comparison_can_train_all_others(tmp_path: Path) -> None:
    def amount(number: int, **options: Any) -> str:
        config = make_config("random", "smoke", None, {"space": SPACE, "random": number, **options})
        [stage] = [stage for stage in recipe_of(Run(Folder(tmp_path), {}, config)).stages if stage.name == "baseline"]
        assert (small_space(config, config.space) is None) == ("all other" not in str(stage.amount(config)))
        return str(stage.amount(config))

    assert amount(3) == amount(20) == "all other architectures of the space, 3 training runs of 2 epochs"
    assert amount(2) == "the largest and 2 random architectures, 3 training runs of 2 epochs"
    assert amount(0) == "none"
    decide = ["train.lr=0.01,0.1"]
    assert "random architectures, 7 training runs of 2 epochs" in amount(6, decide=decide)
    assert amount(7, decide=decide) == "all other architectures of the space, 7 training runs of 2 epochs"
    assert small_space(make_config("random", "smoke", None, {"space": "nasbench201"}), "nasbench201") is None


@pytest.mark.parametrize(
    ("method", "options", "number"),
    [
        ("random", {}, 4),
        ("random", {"decide": ["train.lr=0.01,0.1"]}, 8),
        ("random", {"budget": 3}, 3),
        ("local-search", {}, 4),
        ("asha", {}, 4),
        ("evolution", {}, 16),
        ("zero-cost", {"data__limit": 400}, 4),
        ("zero-cost-evolution", {"data__limit": 400}, 16),
        ("rank-surrogate", {"data__limit": 400, "pool_size": 3}, 3),
        ("pareto-pool", {"data__limit": 400}, 4),
        ("hnas", {"data__limit": 400}, 4),
    ],
)
def test_a_search_trains_at_most_the_space_or_the_pool(
    method: str, options: dict[str, Any], number: int, tmp_path: Path
) -> None:
    config = make_config(method, "smoke", None, {"space": SPACE, "budget": 16, **options})
    [stage] = [stage for stage in recipe_of(Run(Folder(tmp_path), {}, config)).stages if stage.name == "search"]
    assert str(stage.amount(config)).startswith(f"{number} training runs of ")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_small_space_is_trained_once_and_the_best_network_is_the_result(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "preset": "smoke",
        "data": "digits",
        "data__limit": 400,
        "max_concurrent": 1,
        "budget": 2,
    }
    out = tmp_path / "run"
    constraint = ["parameters <= 600"]
    result = archray.search("random", space=SPACE, constraint=constraint, **options, random=20, out=out)
    trials = result.trials[result.trials["stage"].isin(["final", "baseline"])]
    assert sorted(trials["architecture"]) == [  # the fourth violates the constraint
        "width=4|block=conv1", "width=4|block=conv3", "width=8|block=conv1"
    ]  # fmt: skip
    check(result)
    check(archray.resume(out, final_seeds=3))
    check(archray.resume(out, final_epochs=4))
    none = archray.resume(out, random=0)
    check(none)
    assert none.origin == "search" and set(none.trials["stage"]) == {"search", "final"}


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_the_largest_network_is_trained_for_comparison(tmp_path: Path) -> None:
    options: dict[str, Any] = {"preset": "smoke", "data": "digits", "data__limit": 400, "budget": 2}
    out = tmp_path / "run"
    result = archray.search("random", space=SPACE, random=1, **options, out=out)
    largest = json.loads((out / "baseline" / "largest.json").read_text())
    assert largest["architecture"] == "width=8|block=conv3" and largest["of"] == 4
    compared = result.trials[result.trials["stage"] == "baseline"].set_index("architecture")
    assert len(compared) == 2 and compared["parameters"].idxmax() == largest["architecture"]
    measures = result.summary.result
    assert measures["largest_test_accuracy"] == compared["test_accuracy"]["width=8|block=conv3"]
    assert measures["random_test_accuracy_n"] == 1 and measures["trainings"] == 5
    check(result)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("method", ["random", "hnas"])
def test_the_progress_of_a_search_ends_with_the_space(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options: dict[str, Any] = {"preset": "smoke", "data": "digits", "data__limit": 400, "max_concurrent": 1}
    archray.search(method, space=SPACE, **options, budget=6, random=0, out=tmp_path / "run")
    printed = capsys.readouterr().out
    assert printed.count("4 training runs (requested: 6): the search has no other suggestion") == 1
    assert "search 4/4  " in printed


def check(result: archray.RunResult) -> None:
    """Checks that the result, its model and its accuracies are those of the best network by validation."""
    trials = result.trials[result.trials["stage"].isin(["final", "baseline"])].reset_index(drop=True)
    best = trials.loc[trials["validation_accuracy"].idxmax()]
    found = json.loads(Path(result.path, "search", "architecture.json").read_text())["architecture"]
    assert result.architecture == best["architecture"]
    assert (result.origin == "search") == (best["stage"] == "final") == (result.architecture == found)
    final = trials[trials["architecture"] == result.architecture]["test_accuracy"]
    assert result.test_accuracy == pytest.approx(final.mean())
    described = json.loads(Path(result.path, "model", "architecture.json").read_text())
    assert described["architecture"] == result.architecture
    assert described["test_accuracy"] == best["test_accuracy"]
    assert sum(p.numel() for p in result.model().parameters()) == best["parameters"]
    assert isinstance(result.model()(torch.zeros(1, 1, 8, 8)), torch.Tensor)
