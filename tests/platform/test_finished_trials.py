"""The memory that is released after a trial has finished, and the results that are kept."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from archray_test_schedule import Climb
from ray import tune
from ray.tune.utils.serialization import TuneFunctionEncoder

from archray.files import Folder
from archray.platform.engine.result_log import KeepSnapshot, ResultLog, line_writer, reduced_saves, with_frames
from archray.platform.engine.tune_memory import PackedState
from archray.platform.run.tune_snapshot import experiment_state
from archray.searchers.ledger import TuneTrial

VARYING_KEYS = {
    "date",
    "timestamp",
    "trial_id",
    "pid",
    "time_this_iter_s",
    "time_total_s",
    "time_since_restore",
    "config",
}


def test_a_packed_state_is_written_unchanged() -> None:
    states = [(json.dumps({"config": {"seed": seed}, "nul": "\0é"}), f'{{"score": {seed}}}') for seed in range(3)]
    packed = [PackedState(state, "".join(states[0]).encode()) for state in states]
    assert [tuple(state) for state in packed] == states
    file = io.StringIO()
    json.dump({"trial_data": packed}, file, cls=TuneFunctionEncoder)  # as Tune's controller does
    assert json.loads(file.getvalue()) == {"trial_data": [list(state) for state in states]}


def run_trials(folder: Path, *callbacks: tune.Callback) -> tune.ResultGrid:
    """Three trials of two steps. The last trial fails in its second step."""
    keys = {
        "settings": {"layers": [1, 2]},
        "value": tune.grid_search([1.0, 2.0, 3.0]),
        "steps": 2,
        "log": str(folder.with_suffix(".log")),
        "fails": {"3.0": 2},
    }
    checkpoints = tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=2)
    run = tune.RunConfig(
        name=folder.name,
        storage_path=str(folder.parent),
        callbacks=list(callbacks),
        checkpoint_config=checkpoints,
        verbose=0,
    )
    tune_config = tune.TuneConfig(metric="value", mode="max", reuse_actors=True, max_concurrent_trials=1)
    return tune.Tuner(Climb, param_space=keys, tune_config=tune_config, run_config=run).fit()


def describe(results: tune.ResultGrid) -> list[Any]:
    """Describes the trials of a `ResultGrid` without times, places and ids."""

    def facts(metrics: dict[str, Any] | None) -> dict[str, Any]:
        return {name: value for name, value in (metrics or {}).items() if name not in VARYING_KEYS}

    rows = []
    for result in (results[number] for number in range(len(results))):
        checkpoint = result.checkpoint and Path(result.checkpoint.path).name
        kept = [(Path(place.path).name, facts(metrics)) for place, metrics in result.best_checkpoints]
        config = {**(result.config or {}), "log": None}
        rows.append([facts(result.metrics), config, checkpoint, kept, type(result.error).__name__])
    best = results.get_best_result(scope="all")
    table = results.get_dataframe()["value"].tolist()
    return [rows, facts(best.metrics), table, results.num_errors, results.num_terminated]


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_results_stay_the_same_and_use_less_memory(tmp_path: Path) -> None:
    plain = run_trials(tmp_path / "plain")
    with reduced_saves(), line_writer():
        results = run_trials(tmp_path / "kept", ResultLog(), KeepSnapshot())
        results = with_frames(results, Folder(str(tmp_path / "kept")))
    assert describe(results) == describe(plain)
    trials = results._experiment_analysis.trials
    assert [trial.status for trial in trials] == ["TERMINATED", "TERMINATED", "ERROR"]
    for trial in trials:
        assert bool(trial.metric_n_steps) == (trial.status == "ERROR"), "it may be trained again, and Tune adds to them"
        assert trial._default_result_or_future is None
        assert (trial._state_json, trial.run_metadata._cached_json) == (None, None)
        assert trial.config["settings"] is trials[0].config["settings"]
        assert trial.storage.syncer is trials[0].storage.syncer

    state = json.loads(experiment_state(Folder(str(tmp_path / "kept"))) or b"")
    saved = [TuneTrial.read(*parts) for parts in state["trial_data"]]
    # Tune saves the trials that finished meanwhile in the order of a set.
    assert sorted((trial.status, trial.last_result["value"]) for trial in saved) == sorted(
        (trial.status, trial.last_result["value"]) for trial in trials
    )
    restored = tune.Tuner.restore(str(tmp_path / "kept"), trainable=Climb).get_results()
    assert sorted(describe(restored)[0], key=repr) == sorted(describe(results)[0], key=repr)
