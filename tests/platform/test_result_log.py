"""The files that a Tune run keeps for a resume, and their restoration."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from archray_test_schedule import Climb
from pyarrow import fs
from ray import tune
from ray.tune.callback import CallbackList
from ray.tune.experiment import Trial

from archray.cluster.ray_compat import TRIAL_STATES, TUNE_CONFIG
from archray.errors import DamagedFile, IncompatibleRay
from archray.files import Folder
from archray.line_writer import LineWriter
from archray.platform.engine.restore import restore_state
from archray.platform.engine.result_log import (
    KeepSnapshot,
    ResultLog,
    experiment_folder,
    line_writer,
    read_results,
    trial_statuses,
)
from archray.platform.engine.trial_plan import KEPT_CHECKPOINTS, TrialPlan
from archray.platform.run.layout import RESULTS, SNAPSHOT
from archray.platform.run.tune_snapshot import experiment_state, read_snapshot, write_snapshot
from archray.searchers.testing import ConformanceTrainable

FILES_KEPT = {
    "experiment_state-1.json": b'{"trial_data": []}',
    "search_gen_state-1.json": b"{}",
    "searcher-state-1.pkl": b"1",
}

TUNER = pickle.dumps({TUNE_CONFIG: tune.TuneConfig()})
TuneController = TRIAL_STATES.owner()
PLAN = TrialPlan(trainable=tune.Trainable, settings={}, metric="score", mode="max", total=1)


@pytest.fixture
def experiment(tmp_path: Path) -> Folder:
    """The folder of a Tune run whose driver was killed in its second session, while Tune copied its first state."""
    folder = Folder(tmp_path)
    write_snapshot(folder, FILES_KEPT)
    folder.write_bytes("tuner.pkl", TUNER)
    for name in ("experiment_state-1.json", "experiment_state-2.json", "searcher-state-2.pkl"):
        folder.write_bytes(name, b"")
    return folder


def test_a_restored_state_is_that_of_one_moment(experiment: Folder) -> None:
    assert restore_state(experiment, PLAN)
    assert {name: experiment.read_bytes(name) for name in experiment.files()} == {
        **FILES_KEPT,
        "tuner.pkl": TUNER,
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
    """A run without results has nothing to lose."""
    folder = Folder(tmp_path)
    names = {file: renamed if file == name else file for file in (*FILES_KEPT, "tuner.pkl")}
    write_snapshot(folder, {names[file]: state for file, state in FILES_KEPT.items()})
    folder.write_bytes(names["tuner.pkl"], b"")
    assert not restore_state(folder, PLAN)
    with LineWriter() as writer:
        writer.append(folder / RESULTS, "a.jsonl", b"{}")
    with pytest.raises(DamagedFile, match=rf"delete the folder {tmp_path} .* runs the 1 trial of this folder again"):
        restore_state(folder, PLAN)


def torn(content: bytes) -> bytes:
    return content[: len(content) // 2]


def changed(content: bytes) -> bytes:
    """Changes a byte of the first state in a snapshot."""
    start = content.index(FILES_KEPT["experiment_state-1.json"])
    return content[:start] + b"x" + content[start + 1 :]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (SNAPSHOT, torn),
        (SNAPSHOT, lambda content: b""),
        (SNAPSHOT, changed),
        (SNAPSHOT, None),
        ("tuner.pkl", torn),
        ("tuner.pkl", lambda content: b""),
        ("tuner.pkl", lambda content: b"of another program"),
        ("tuner.pkl", None),
    ],
)
def test_a_damaged_state_is_named_with_the_folder_to_delete(
    name: str, damage: Callable[[bytes], bytes] | None, tmp_path: Path
) -> None:
    folder = Folder(tmp_path)
    write_snapshot(folder, FILES_KEPT)
    folder.write_bytes("tuner.pkl", TUNER)
    with LineWriter() as writer:
        writer.append(folder / RESULTS, "a.jsonl", b"{}")
    if damage is None:
        folder.delete(name)
    else:
        folder.write_bytes(name, damage(folder.read_bytes(name)))
    with pytest.raises(DamagedFile, match=rf"Expected {tmp_path}/{name} .* delete the folder {tmp_path} and repeat"):
        restore_state(folder, PLAN)


@pytest.fixture
def writer() -> Iterator[None]:
    with line_writer():
        yield


def tuner(folder: Path) -> tune.Tuner:
    evaluator = {"evaluator": "archray.searchers.testing:hashed_score", "meeting": None}
    return tune.Tuner(
        ConformanceTrainable,
        param_space={"conformance": evaluator, "number": tune.grid_search([1, 2])},
        run_config=tune.RunConfig(
            name="run", storage_path=str(folder), verbose=0, callbacks=[KeepSnapshot(), ResultLog()]
        ),
    )


@pytest.mark.usefixtures("ray_session", "writer")
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
@pytest.mark.usefixtures("ray_session", "writer")
def test_a_ray_that_starts_over_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner(tmp_path).fit()
    folder = Folder(tmp_path / "run")
    kept = folder.read_bytes(SNAPSHOT)
    assert trial_statuses(folder) == ["TERMINATED"] * 2
    monkeypatch.setattr(TuneController, "resume", lambda controller, resume_config: 1 / 0)
    with pytest.raises(IncompatibleRay, match=r"restore 2 more trials.*2\.60"):
        tune.Tuner.restore(folder.uri, ConformanceTrainable).fit()
    assert folder.read_bytes(SNAPSHOT) == kept


class CheckAfterSave(tune.Callback):
    """Records facts about each trial in the kept state, whenever a trial has saved; must come after `KeepSnapshot`.

    A line has the number of the trial's checkpoints, whether one exists, and whether its last result is in the log.
    """

    def __init__(self, log: Path) -> None:
        self.log = log

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        folder = experiment_folder(trial)
        state = experiment_state(folder)
        logged = read_results(folder)
        for saved in json.loads(state)["trial_data"] if state else ():
            restored = Trial.from_json_state(saved[0], stub=True)
            restored.restore_run_metadata(saved[1])
            metadata = restored.run_metadata
            paths = [result.checkpoint.path for result in metadata.checkpoint_manager.best_checkpoint_results]
            exist = [bool(trial.storage.storage_filesystem.get_file_info(path).type) for path in paths]
            last = metadata.last_result.get("training_iteration", 0)
            results = 0 if logged.empty else (logged["trial_id"] == restored.trial_id).sum()
            with self.log.open("a") as file:
                file.write(f"{len(exist)} {any(exist) or not exist} {results >= last}\n")


@pytest.mark.usefixtures("ray_session")
@pytest.mark.parametrize("interval", ["auto", "0"], ids=["journal", "snapshots"])
def test_a_kill_on_a_store_leaves_results_and_checkpoints(
    interval: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials save faster than the journal is written to the store."""
    monkeypatch.setenv("TUNE_GLOBAL_CHECKPOINT_S", interval)
    (tmp_path / "store").mkdir()
    keys = {"value": tune.grid_search([1.0, 2.0]), "steps": 8, "log": str(tmp_path / "steps")}
    run = tune.RunConfig(
        name="run",
        storage_path="search",
        storage_filesystem=fs.SubTreeFileSystem(str(tmp_path / "store"), fs.LocalFileSystem()),
        callbacks=[KeepSnapshot(), ResultLog(), CheckAfterSave(tmp_path / "log")],
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=KEPT_CHECKPOINTS),
        verbose=0,
    )
    config = tune.TuneConfig(metric="value", mode="max", reuse_actors=True)
    with line_writer():
        tune.Tuner(Climb, param_space=keys, tune_config=config, run_config=run).fit()
    lines = (tmp_path / "log").read_text().splitlines()
    assert "2 True True" in lines and not [line for line in lines if "False" in line]
    assert len(list((tmp_path / "store" / "search" / "run" / RESULTS).iterdir())) == 2, "an object per ended trial"
    folder = Folder("search/run", filesystem=run.storage_filesystem)
    assert len(read_results(folder)) == 16 and trial_statuses(folder) == ["TERMINATED"] * 2
