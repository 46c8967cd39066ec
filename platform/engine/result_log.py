"""What a Tune run must not lose however its driver ends: every reported result, and Tune's own state, whole.

Tune copies its files to the run's folder in the background and in place: a kill left a result file empty, and after a
graceful stop the last state was missing there. A restored trial begins its `result.json` anew.
These callbacks write through `Folder`, whole files only. They hold no path: Tune pickles callbacks, and a run may be
moved.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune

from archray.files import Folder
from archray.platform.engine.interrupt import INTERRUPT

RESULTS = "results"  # one file of JSON lines a trial, a line a result
# Tune's state files as they were after the last step in which something happened. One file: of two, a kill would leave
# one new and one old, and a limiter that waits for ever for a trial that has ended.
SNAPSHOT = "snapshot.zip"
SHORT = 64  # entries of a list that is kept; the scores of a round of halving may be ten thousand
STATE_FILES = ("experiment_state-", "search_gen_state-", "searcher-state-")


class ResultLog(tune.Callback):
    """Writes every result of every trial as it is reported; a trial that repeats an epoch after a restore, twice."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_lines": {}}

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        if INTERRUPT.stopping:
            return  # Tune's last snapshot does not hold it: the epoch will be trained again
        folder = experiment_folder(trial) / RESULTS
        name = f"{trial.trial_id}.jsonl"
        if trial.trial_id not in self._lines:
            before = folder.read_bytes(name).decode().splitlines() if folder.exists(name) else []
            self._lines[trial.trial_id] = before
        kept = {name: value for name, value in result.items() if _is_kept(value)}
        self._lines[trial.trial_id].append(json.dumps(kept, default=str))
        folder.write_bytes(name, "\n".join(self._lines[trial.trial_id]).encode())


def _is_kept(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float) or (isinstance(value, list) and len(value) <= SHORT)


class KeepSnapshot(tune.Callback):
    """Copies Tune's state files after every step in which a trial started, reported, saved or ended, and at the end."""

    def __init__(self) -> None:
        self._changed: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_changed": None}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._changed = trial

    on_trial_save = on_trial_complete = on_trial_error = on_trial_start

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """The step before has written its state: to Tune's own staging folder, in this thread."""
        if self._changed is not None:
            _copy_state(self._changed, trials)
            self._changed = None

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        if trials:
            _copy_state(trials[0], trials)


def _copy_state(trial: Any, trials: list[Any]) -> None:
    """Keeps the state files of the experiment that `trial` belongs to. trials: all of it."""
    staged = Path(trial.storage.experiment_driver_staging_path)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in sorted(staged.iterdir()):
            if file.name.startswith(STATE_FILES):
                state = file.read_bytes()
                archive.writestr(file.name, _with_errors(state, trials) if _is_experiment(file.name) else state)
    experiment_folder(trial).write_bytes(SNAPSHOT, content.getvalue())


def _is_experiment(name: str) -> bool:
    return name.startswith("experiment_state-")


def _with_errors(state: bytes, trials: list[Any]) -> bytes:
    """Tune's state with the trials that ended in an error as such: of one whose process died it saves no end."""
    failed = {trial.trial_id: trial for trial in trials if trial.status == "ERROR"}
    if not failed:
        return state
    whole = json.loads(state)
    ids = [json.loads(saved)["trial_id"] for saved, _ in whole["trial_data"]]
    whole["trial_data"] = [
        failed[trial_id].get_json_state() if trial_id in failed else saved
        for trial_id, saved in zip(ids, whole["trial_data"], strict=True)
    ]
    return json.dumps(whole).encode()


def read_snapshot(folder: Folder) -> dict[str, bytes]:
    """The state files that were kept, by their names; none if none were. folder: of a Tune experiment."""
    if not folder.exists(SNAPSHOT):
        return {}
    with zipfile.ZipFile(io.BytesIO(folder.read_bytes(SNAPSHOT))) as archive:
        return {name: archive.read(name) for name in sorted(archive.namelist())}


def restore_state(folder: Folder) -> bool:
    """Puts the kept state files in the place of Tune's own copies; whether there is a state to restore.

    folder: of a Tune experiment.
    """
    kept = read_snapshot(folder)
    for name in folder.files():
        if name.startswith(STATE_FILES) and name not in kept:
            folder.delete(name)  # of a later session of Tune's, which it would take for the newest
    for name, state in kept.items():
        folder.write_bytes(name, state)
    return folder.exists("tuner.pkl") and any(map(_is_experiment, kept))


def trial_statuses(folder: Folder) -> list[str]:
    """The status of every trial in Tune's last state. folder: of a Tune experiment."""
    states = [state for name, state in read_snapshot(folder).items() if _is_experiment(name)]
    return [json.loads(trial)["status"] for trial, _ in json.loads(states[-1])["trial_data"]] if states else []


def read_results(folder: Folder) -> pd.DataFrame:
    """A row a trial and epoch, in order. A later report of an epoch replaces an earlier one.

    A trial that was restored after its last epoch reports that again, under one more `training_iteration`.
    """
    results = folder / RESULTS
    lines = [line for name in results.files() for line in results.read_bytes(name).decode().splitlines()]
    if not lines:
        return pd.DataFrame()
    table = pd.DataFrame([json.loads(line) for line in lines])
    keys = ["trial_id", "epoch" if "epoch" in table else "training_iteration"]
    return table.drop_duplicates(keys, keep="last").sort_values(keys, ignore_index=True)


def experiment_folder(trial: Any) -> Folder:
    """The folder of the Tune run that a trial belongs to."""
    return Folder(trial.storage.experiment_fs_path, filesystem=trial.storage.storage_filesystem)
