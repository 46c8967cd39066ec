"""The standalone trainable in a real Tune run: reused actors, and a run restored after an interruption."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from ray import tune
from ray.tune import CheckpointConfig, ResultGrid, RunConfig, TuneConfig, Tuner

from archray.searchers.testing.tuner import copy_to_storage, fit
from archray.trainables.tune.standalone_trainable import METRICS, StandaloneTrainable, load_trained

CELLS = (
    "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|",
    "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|none~2|",
)
COLUMNS = [*METRICS, "epoch", "lr", "parameters", "failure"]

pytestmark = pytest.mark.usefixtures("ray_session")


def param_space(architectures: list[str], epochs: int = 3) -> dict[str, Any]:
    return {
        "settings": {
            "data": {"name": "digits", "limit": 60},
            "network": {"channels": 4, "cells": 1},
            "training": {"epochs": epochs, "batch_size": 16},
        },
        "architecture": tune.grid_search(architectures),
        "seed": 1,
    }


def make_tuner(
    folder: Path, space: dict[str, Any], *, reuse: bool = True, callbacks: list[tune.Callback] | None = None
) -> Tuner:
    return Tuner(
        StandaloneTrainable,
        param_space=space,
        tune_config=TuneConfig(max_concurrent_trials=1, reuse_actors=reuse),
        run_config=RunConfig(
            name="run",
            storage_path=str(folder),
            verbose=0,
            callbacks=callbacks,
            checkpoint_config=CheckpointConfig(checkpoint_frequency=1, num_to_keep=1),
        ),
    )


def last_results(results: ResultGrid) -> pd.DataFrame:
    """Returns the last result of each trial by architecture, comparable even with NaN."""
    rows = {result.config["architecture"]: {key: result.metrics[key] for key in COLUMNS} for result in results}
    return pd.DataFrame.from_dict(rows, orient="index", dtype=object).sort_index()


@pytest.fixture(scope="module")
def undisturbed(ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> ResultGrid:
    """Both cells and an invalid one, each in a separate actor."""
    space = param_space([*CELLS, "|conv5x5~0|"])
    return make_tuner(tmp_path_factory.mktemp("undisturbed"), space, reuse=False).fit()


def test_trials_end_with_results_including_failures(undisturbed: ResultGrid) -> None:
    assert undisturbed.num_errors == 0
    table = last_results(undisturbed)
    assert list(table.loc[list(CELLS), "epoch"]) == [3, 3]
    assert table.loc[list(CELLS), "failure"].isna().all()
    assert math.isnan(table.loc["|conv5x5~0|", "validation_accuracy"])
    assert "conv5x5" in table.loc["|conv5x5~0|", "failure"]


def test_a_checkpoint_of_tune_loads_as_a_network(undisturbed: ResultGrid) -> None:
    result = next(result for result in undisturbed if result.config["architecture"] == CELLS[0])
    with result.checkpoint.as_directory() as folder:
        assert sum(p.numel() for p in load_trained(folder).parameters()) == result.metrics["parameters"]


@pytest.mark.slow
def test_reused_actors_give_the_same_results(undisturbed: ResultGrid, tmp_path: Path) -> None:
    reused = make_tuner(tmp_path, param_space([*CELLS, "|conv5x5~0|"]), reuse=True).fit()
    assert len({result.metrics["pid"] for result in reused}) == 1
    pd.testing.assert_frame_equal(last_results(reused), last_results(undisturbed), check_exact=True)


class Interruption(tune.Callback):
    """Interrupts the run at the second epoch of its second trial, once; a restored run has its callbacks again."""

    def __init__(self, happened: Path) -> None:
        self._happened = happened

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        second = trial.config["architecture"] == CELLS[1]
        if second and result["epoch"] == 2 and not self._happened.exists():
            self._happened.touch()
            copy_to_storage(trial)
            raise RuntimeError("interrupted by the test")


@pytest.mark.slow
def test_an_interrupted_and_restored_run_equals_an_undisturbed_one(undisturbed: ResultGrid, tmp_path: Path) -> None:
    space = param_space(list(CELLS))
    with pytest.raises(Exception, match="interrupted by the test"):
        fit(make_tuner(tmp_path, space, callbacks=[Interruption(tmp_path / "happened")]))
    restored = fit(Tuner.restore(str(tmp_path / "run"), trainable=StandaloneTrainable, param_space=space))
    assert restored.num_errors == 0
    pd.testing.assert_frame_equal(
        last_results(restored), last_results(undisturbed).loc[sorted(CELLS)], check_exact=True
    )
    first, second = (
        result.metrics_dataframe for cell in CELLS for result in restored if result.config["architecture"] == cell
    )
    assert list(first["epoch"]) == [1, 2, 3]  # the finished trial did not run again
    assert second["pid"].nunique() == 2
    assert list(second.drop_duplicates("epoch", keep="last")["epoch"]) == [1, 2, 3]
