"""The memory and the checkpoints that are released after a trial has finished, and the results that are kept."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from archray_test_schedule import Climb
from ray import tune
from ray.tune.utils.serialization import TuneFunctionEncoder

import archray
from archray.files import Folder
from archray.platform.engine.result_log import (
    EndedCheckpoints,
    KeepSnapshot,
    ResultLog,
    line_writer,
    reduced_saves,
    with_frames,
)
from archray.platform.engine.tune_memory import PackedState
from archray.platform.run.tune_snapshot import experiment_state, kept_trials
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
    """Three trials of two steps. The last trial fails in its second step.

    Args:
        folder: folder of the run, with a unique name: Tune mixes the files of two runs with the same name that start in
            the same second.
    """
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


def checkpoints(folder: Path) -> list[int]:
    """Returns the number of checkpoints in the folder of each trial."""
    return [len(list(trial.glob("checkpoint_*"))) for trial in sorted(folder.glob("Climb*"))]


class AtTheEnd(EndedCheckpoints):
    """Deletes checkpoints when the Tune run ends."""

    on_step_begin = tune.Callback.on_step_begin


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("callback", [EndedCheckpoints(kept=0), EndedCheckpoints(kept=1), AtTheEnd(kept=0)])
def test_ended_trials_keep_only_the_checkpoints_that_a_stage_reads(tmp_path: Path, callback: EndedCheckpoints) -> None:
    with line_writer():
        grid = run_trials(tmp_path / tmp_path.name, callback)
    results = [grid[number] for number in range(len(grid))]
    kept = callback._kept
    assert checkpoints(tmp_path / tmp_path.name) == [kept, kept, 1]
    assert [len(result.best_checkpoints) for result in results] == [kept, kept, 1]
    for result in results:
        if kept == 0 and result.error is None:
            assert result.checkpoint is None
        else:
            assert result.checkpoint is not None and Path(result.checkpoint.path).is_dir()
    names = [Path(result.checkpoint.path).name for result in results if result.checkpoint]
    assert names == ["checkpoint_000001"] * 2 * kept + ["checkpoint_000000"], "the newest remain"


class Collect(tune.Callback):
    """Collects the trials."""

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self.trials = trials


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("steps", [0, 1])
def test_checkpoints_that_remained_after_a_kill_are_deleted(tmp_path: Path, steps: int) -> None:
    with line_writer():
        run_trials(tmp_path / tmp_path.name, collect := Collect())
        assert checkpoints(tmp_path / tmp_path.name) == [2, 2, 1]
        callback = EndedCheckpoints(kept=1)
        for step in range(steps):
            callback.on_step_begin(step, collect.trials)
        callback.on_experiment_end(collect.trials)
    assert checkpoints(tmp_path / tmp_path.name) == [1, 1, 1]


class Interrupt(tune.Callback):
    """Interrupts the Tune run, as Ctrl-C, after the first checkpoint."""

    sent = False

    def on_checkpoint(self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any) -> None:
        if not self.sent:
            self.sent = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("ray_session")
def test_an_interrupted_trial_keeps_its_checkpoint(tmp_path: Path) -> None:
    with line_writer():
        run_trials(tmp_path / tmp_path.name, Interrupt(), EndedCheckpoints(kept=0))
    assert sum(checkpoints(tmp_path / tmp_path.name)) == 1


class Watch(tune.Callback):
    """Collects the recorded states of trials without checkpoints, at the start of every step."""

    statuses: ClassVar[list[str]] = []

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        for trial in trials:
            if trial.last_result.get("epoch") == 2 and not list(Path(trial.path).glob("checkpoint_*")):
                recorded = {kept["trial_id"]: kept["status"] for kept in kept_trials(Folder(Path(trial.path).parent))}
                self.statuses.append(recorded[trial.trial_id])


@pytest.mark.usefixtures("ray_session")
def test_checkpoints_are_deleted_after_the_end_is_recorded(tmp_path: Path) -> None:
    with reduced_saves(), line_writer():
        run_trials(tmp_path / tmp_path.name, Watch(), KeepSnapshot(), EndedCheckpoints(kept=0))
    assert set(Watch.statuses) == {"TERMINATED"}


@pytest.mark.usefixtures("ray_session")
def test_a_user_can_keep_all_checkpoints(tmp_path: Path) -> None:
    options: dict[str, Any] = {"preset": "smoke", "budget": 1, "random": 0, "data__limit": 100, "max_concurrent": 1}
    result = archray.search("random", out=tmp_path / "run", resources__keep_checkpoints=True, **options)
    checkpoint = result.result_grid[0].checkpoint
    assert checkpoint is not None and Path(checkpoint.path).is_dir()
