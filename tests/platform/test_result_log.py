"""The files that a Tune run keeps for a resume, and their restoration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.callback import CallbackList

from archray.cluster.ray_compat import TRIAL_STATES
from archray.errors import IncompatibleRay
from archray.files import Folder
from archray.platform.engine.restore import restore_state
from archray.platform.engine.result_log import KeepSnapshot, ResultLog, trial_statuses
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.run.layout import RESULTS, SNAPSHOT
from archray.platform.run.tune_snapshot import read_snapshot, write_snapshot
from archray.searchers.testing import ConformanceTrainable

FILES_KEPT = {
    "experiment_state-1.json": b'{"trial_data": []}',
    "search_gen_state-1.json": b"{}",
    "searcher-state-1.pkl": b"1",
}

TuneController = TRIAL_STATES.owner()
PLAN = TrialPlan(trainable=tune.Trainable, settings={}, metric="score", mode="max", total=1)


@pytest.fixture
def experiment(tmp_path: Path) -> Folder:
    """The folder of a Tune run whose driver was killed in its second session, while Tune copied its first state."""
    folder = Folder(tmp_path)
    write_snapshot(folder, FILES_KEPT)
    for name in ("tuner.pkl", "experiment_state-1.json", "experiment_state-2.json", "searcher-state-2.pkl"):
        folder.write_bytes(name, b"")
    return folder


def test_a_restored_state_is_that_of_one_moment(experiment: Folder) -> None:
    assert restore_state(experiment, PLAN)
    assert {name: experiment.read_bytes(name) for name in experiment.files()} == {
        **FILES_KEPT,
        "tuner.pkl": b"",
        SNAPSHOT: experiment.read_bytes(SNAPSHOT),
    }


def test_without_a_snapshot_nothing_is_restored(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write_bytes("tuner.pkl", b"")
    assert not restore_state(folder, PLAN)
    assert read_snapshot(folder) == {}
    assert trial_statuses(folder) == []


@pytest.mark.parametrize(
    ("name", "renamed"), [("experiment_state-1.json", "state_of_trials-1.json"), ("tuner.pkl", "tuner.json")]
)
def test_results_without_a_state_are_not_trained_again(tmp_path: Path, name: str, renamed: str) -> None:
    """A later version of Ray may rename a state file. A run without results has nothing to lose."""
    folder = Folder(tmp_path)
    names = {file: renamed if file == name else file for file in (*FILES_KEPT, "tuner.pkl")}
    write_snapshot(folder, {names[file]: state for file, state in FILES_KEPT.items()})
    folder.write_bytes(names["tuner.pkl"], b"")
    assert not restore_state(folder, PLAN)
    (folder / RESULTS).append_line("a.jsonl", b"{}")
    with pytest.raises(IncompatibleRay, match=r"2\.60"):
        restore_state(folder, PLAN)


def tuner(folder: Path) -> tune.Tuner:
    evaluator = {"evaluator": "archray.searchers.testing:hashed_score", "meeting": None}
    return tune.Tuner(
        ConformanceTrainable,
        param_space={"conformance": evaluator, "number": tune.grid_search([1, 2])},
        run_config=tune.RunConfig(
            name="run", storage_path=str(folder), verbose=0, callbacks=[KeepSnapshot(), ResultLog()]
        ),
    )


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        pytest.param(TuneController, "CKPT_FILE_TMPL", "state_of_trials-{}.json", marks=pytest.mark.slow),
        pytest.param(CallbackList, "get_state", lambda callbacks: None, marks=pytest.mark.slow),
        (TuneController, "save_to_dir", lambda controller: None),
    ],
    ids=["state file renamed", "callbacks not called", "state not saved"],
)
def test_a_ray_that_saves_no_state_stops_the_run(
    owner: Any, name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, value)
    with pytest.raises(IncompatibleRay, match=r"2\.60"):
        tuner(tmp_path).fit()


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_ray_that_starts_over_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner(tmp_path).fit()
    folder = Folder(tmp_path / "run")
    kept = folder.read_bytes(SNAPSHOT)
    assert trial_statuses(folder) == ["TERMINATED"] * 2
    monkeypatch.setattr(TuneController, "resume", lambda controller, resume_config: 1 / 0)
    with pytest.raises(IncompatibleRay, match=r"restore 2 more trials.*2\.60"):
        tune.Tuner.restore(folder.uri, ConformanceTrainable).fit()
    assert folder.read_bytes(SNAPSHOT) == kept
