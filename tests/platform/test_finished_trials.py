"""The memory and the checkpoints that are released after a trial has finished."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from archray_test_schedule import Climb
from archray_test_tune_run import run_plan
from ray import tune

import archray
from archray.files import Folder
from archray.platform.durable.session import current
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.trial_log import read_log


def plan(folder: Path, *, reads_checkpoints: bool = False) -> TrialPlan:
    """Three trials of three steps. The last trial fails in its third step, in all attempts."""
    values = {"steps": 3, "log": str(folder.with_suffix(".log")), "fails": {"3.0": 3}}
    return TrialPlan(
        trainable=Climb,
        settings={},
        keys={"value": tune.grid_search([1.0, 2.0, 3.0]), **values},
        metric="value",
        mode="max",
        total=3,
        reads_checkpoints=reads_checkpoints,
    )


def checkpoints(folder: Path) -> list[int]:
    """Returns the number of checkpoints in the folder of each trial."""
    return [len(list(trial.glob("checkpoint_*"))) for trial in sorted(folder.glob("session-1/search-*"))]


class Collect(tune.Callback):
    """Collects the trials, and the numbers of trials and results that the session holds after each step."""

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def setup(self, **info: Any) -> None:
        self.sizes: set[tuple[int, int]] = set()

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        session = current()
        self.sizes.add((len(session.open), max((len(trial.results) for trial in session.open.values()), default=0)))

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self.trials = trials


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("reads_checkpoints", [False, True])
def test_ended_trials_keep_only_results_and_the_checkpoints_that_a_stage_reads(
    tmp_path: Path, reads_checkpoints: bool
) -> None:
    folder = tmp_path / "run"
    results = run_plan(folder, plan(folder, reads_checkpoints=reads_checkpoints), collect := Collect())
    kept = int(reads_checkpoints)
    assert checkpoints(folder) == [kept, kept, 2], "a resume may repeat the failed trial"
    for result in list(results)[: 2 * kept]:
        assert result.checkpoint is not None and Path(result.checkpoint.path).name == "checkpoint_000002"
    assert [result.checkpoint is None for result in results] == [not kept, not kept, False]
    assert [result.metrics_dataframe["training_iteration"].tolist() for result in results] == [[1, 2, 3]] * 2 + [[1, 2]]
    assert (results.num_terminated, results.num_errors) == (2, 1)
    assert results.get_best_result().config["value"] == 3.0  # type: ignore[index]
    for trial in collect.trials:
        progress = trial.run_metadata
        assert not progress.metric_analysis and not progress.checkpoint_manager.best_checkpoint_results
    assert max(collect.sizes) <= (1, 1), "a session holds the running trial with its last result"


@pytest.mark.usefixtures("ray_session")
def test_checkpoints_that_remained_after_a_kill_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_plan(folder, plan(folder), keep=True)
    assert checkpoints(folder) == [2, 2, 2]
    results = run_plan(folder, plan(folder, reads_checkpoints=True))
    assert checkpoints(folder) == [1, 1, 2] and len(results) == 3


class Interrupt(tune.Callback):
    """Interrupts the Tune run, as Ctrl-C, after the first checkpoint."""

    sent = False

    def on_checkpoint(self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any) -> None:
        if not self.sent:
            self.sent = True
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("ray_session")
def test_an_interrupted_trial_keeps_its_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_plan(folder, plan(folder), Interrupt())
    assert sum(checkpoints(folder)) == 1
    results = run_plan(folder, plan(folder))
    assert len(results) == 3 and (tmp_path / "run.log").read_text().splitlines().count("1.0 1") == 1


class Watch(tune.Callback):
    """Checks at the start of every step that the log has the end of each trial without checkpoints."""

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        logged = read_log(current().folder)
        assert logged is not None
        for trial in logged.trials.values():
            if trial.checkpoints and not any(Folder(current().folder.path).exists(c.path) for c in trial.checkpoints):
                assert trial.ended
                Path(current().folder.path).with_suffix(".seen").touch()


@pytest.mark.usefixtures("ray_session")
def test_checkpoints_are_deleted_after_the_end_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_plan(folder, plan(folder), Watch())
    assert (tmp_path / "run.seen").exists()


@pytest.mark.usefixtures("ray_session")
def test_a_user_can_keep_all_checkpoints(tmp_path: Path) -> None:
    options: dict[str, Any] = {"preset": "smoke", "budget": 1, "random": 0, "data__limit": 100, "max_concurrent": 1}
    result = archray.search("random", out=tmp_path / "run", resources__keep_checkpoints=True, **options)
    checkpoint = result.result_grid[0].checkpoint
    assert checkpoint is not None and Path(checkpoint.path).is_dir()
