"""Trials with lookups in a table: epochs as iterations, checkpoints, reuse, unknown architectures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from archray.errors import InvalidInput
from archray.searchers import RandomSearch, drive
from archray.trainables.tabular import open_table
from archray.trainables.tune.tabular_trainable import TabularTrainable


@pytest.fixture
def curves(tmp_path: Path) -> str:
    """Eight architectures, a to h, in the order of their value after 20 epochs; after 5 the first two are exchanged."""
    last = [90.0, 80, 70, 60, 50, 40, 30, 20]
    columns = {"accuracy@5": [40.0, 45, 35, 30, 25, 20, 15, 10], "accuracy@10": [v / 1.5 for v in last]}
    path = tmp_path / "curves.csv"
    frame = pd.DataFrame(
        {"arch": list("abcdefgh"), **columns, "accuracy@20": last, "seconds": [20.0] * 8, "params": range(8)}
    )
    frame.to_csv(path, index=False)
    return str(path)


def trial(table: str, architecture: str = "b", **config: Any) -> TabularTrainable:
    return TabularTrainable({"architecture": architecture, "settings": {"table": table}, **config})


def test_its_epochs_are_iterations(curves: str) -> None:
    trainable = trial(curves)
    results = [trainable.train() for _ in range(3)]
    assert [(r["epoch"], r["objective"], r["seconds"], r["done"]) for r in results] == [
        (5, 45.0, 5.0, False),
        (10, 80 / 1.5, 10.0, False),
        (20, 80.0, 20.0, True),
    ]
    assert results[0]["row"] == 1 and results[0]["params"] == 1.0 and results[0]["failure"] is None
    assert trainable.train()["objective"] == 80.0, "after the end the last result is reported again"


def test_a_restored_trial_resumes_where_it_was(curves: str, tmp_path: Path) -> None:
    first = trial(curves)
    first.train()
    first.save_checkpoint(str(tmp_path))
    second = trial(curves, architecture="b")
    second.load_checkpoint(str(tmp_path))
    assert second.train()["epoch"] == 10


def test_a_reused_actor_forgets_its_previous_trial(curves: str) -> None:
    trainable = trial(curves)
    trainable.train()
    assert trainable.reset_config({"architecture": "c", "settings": {"table": curves}})
    assert (result := trainable.train())["epoch"] == 5 and result["objective"] == 35.0


def test_an_unknown_architecture_is_a_failed_result(curves: str, tmp_path: Path) -> None:
    trainable = trial(curves, "z")
    result = trainable.train()
    assert result["done"] and math.isnan(result["objective"]) and math.isnan(result["params"])
    assert "no architecture 'z'; the nearest of the 8" in result["failure"]
    trainable.save_checkpoint(str(tmp_path))
    again = trial(curves, "z")
    again.load_checkpoint(str(tmp_path))
    assert again.train()["failure"] == result["failure"]


def test_a_table_without_epochs_has_one_step(tmp_path: Path) -> None:
    pd.DataFrame({"arch": ["a", "b"], "val_accuracy": [1.0, 2.0]}).to_csv(tmp_path / "own.csv", index=False)
    result = trial(f"table:{tmp_path / 'own.csv'}").train()
    assert result["done"] and result["objective"] == 2.0 and result["epoch"] == 1 and math.isnan(result["seconds"])


def test_a_trial_selects_its_training_run_by_its_seed(tmp_path: Path) -> None:
    columns = {"val_accuracy": [2.0, 5.0], "val_accuracy_seed0": [1.0, 4.0], "val_accuracy_seed1": [3.0, 6.0]}
    pd.DataFrame({"arch": ["a", "b"], **columns}).to_csv(tmp_path / "own.csv", index=False)
    settings = {"table": str(tmp_path / "own.csv"), "seeds": "drawn"}
    objectives = [trial("", settings=settings, seed=seed).train()["objective"] for seed in range(10)]
    assert set(objectives) == {4.0, 6.0}


def test_bad_input_raises_an_error(curves: str) -> None:
    with pytest.raises(InvalidInput, match="as `architecture` in the config"):
        TabularTrainable({"settings": {"table": curves}})
    with pytest.raises(InvalidInput, match="archray cannot read the table"):
        trial("absent.csv")


@pytest.mark.slow
@pytest.mark.ci
def test_a_scheduler_stops_trials_between_two_epochs(curves: str, tmp_path: Path, ray_session: None) -> None:
    searcher = RandomSearch(f"table:{curves}", budget=8, seed=1)
    results = tune.Tuner(
        TabularTrainable,
        param_space={"settings": {"table": curves}},
        tune_config=tune.TuneConfig(
            metric="objective", mode="max", search_alg=searcher, num_samples=-1, max_concurrent_trials=2,
            reuse_actors=True,
            scheduler=ASHAScheduler(time_attr="epoch", max_t=20, grace_period=5, reduction_factor=2),
        ),
        run_config=tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0),
    ).fit()  # fmt: skip
    assert len(results) == 8 and not results.errors
    assert min(result.metrics["epoch"] for result in results) < 20, "some were stopped"
    assert results.get_best_result().metrics["objective"] == 90.0


@pytest.mark.slow
def test_a_driven_search_stops_where_a_tuner_stops_it(curves: str, tmp_path: Path, ray_session: None) -> None:
    def searcher() -> RandomSearch:
        return RandomSearch(f"table:{curves}", budget=8, seed=1, metric="objective", mode="max")

    def scheduler() -> ASHAScheduler:
        return ASHAScheduler(time_attr="epoch", max_t=20, grace_period=5, reduction_factor=2)

    driven = drive(searcher(), open_table(curves).oracle().by_epoch, scheduler=scheduler())
    config = tune.TuneConfig(
        metric="objective", mode="max", search_alg=searcher(), scheduler=scheduler(), num_samples=-1,
        max_concurrent_trials=1, reuse_actors=True,
    )  # fmt: skip
    place = tune.RunConfig(storage_path=str(tmp_path / "tune"), verbose=0)
    space = {"settings": {"table": curves}}
    results = tune.Tuner(TabularTrainable, param_space=space, tune_config=config, run_config=place).fit()
    tuned = {result.config["architecture"]: result.metrics for result in results}
    assert set(driven["epoch"]) == {5, 10, 20}
    for row in driven.itertuples():
        objectives = tuned[row.architecture]
        assert (objectives["epoch"], objectives["objective"], objectives["seconds"]) == (
            row.epoch,
            row.objective,
            row.seconds,
        )
