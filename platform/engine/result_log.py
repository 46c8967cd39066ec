"""What a Tune run must not lose however its driver ends: every reported result, and Tune's own state, whole.

Tune copies its files to the run's folder in the background and in place: a kill left a result file empty, and after a
graceful stop the last state was missing there. A restored trial begins its `result.json` anew.
These callbacks write through `Folder`, whole files only. They hold no path: Tune pickles callbacks, and a run may be
moved.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune

from archray.files import Folder
from archray.platform.engine.interrupt import INTERRUPT
from archray.platform.run.layout import PLAN, RESULTS, STARTED
from archray.platform.run.listing import plain
from archray.platform.run.tune_snapshot import experiment_state, is_experiment_state, read_snapshot, write_snapshot

SHORT = 64  # entries of a list that is kept; the scores of a round of halving may be ten thousand
STATE_FILES = ("experiment_state-", "search_gen_state-", "searcher-state-")


class ResultLog(tune.Callback):
    """Writes every result of every trial as it is reported; a trial that repeats an epoch after a restore, twice.

    And of every trial, as it starts, what it is about: results do not say.
    """

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {"_lines": {}}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        config = {name: value for name, value in trial.config.items() if _is_kept(value)}
        started = {"trial_id": trial.trial_id, "config": plain(config), "started": time.time()}
        (experiment_folder(trial) / STARTED).write_json(f"{trial.trial_id}.json", started)

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
    states = {file.name: file.read_bytes() for file in staged.iterdir() if file.name.startswith(STATE_FILES)}
    for name, state in states.items():
        states[name] = _with_errors(state, trials) if is_experiment_state(name) else state
    write_snapshot(experiment_folder(trial), states)


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
    return folder.exists("tuner.pkl") and any(map(is_experiment_state, kept))


def write_plan(folder: Folder, **plan: Any) -> None:
    """What who watches the Tune run in `folder` must know: when it begins, how many trials an earlier process ended.

    plan: of its `TrialPlan`, what there is to count and to compare.
    """
    done_before = sum(status in ("TERMINATED", "ERROR") for status in trial_statuses(folder))
    folder.write_json(PLAN, {"began": time.time(), "done_before": done_before, **plan})


def trial_statuses(folder: Folder) -> list[str]:
    """The status of every trial in Tune's last state. folder: of a Tune experiment."""
    state = experiment_state(folder)
    return [] if state is None else [json.loads(trial)["status"] for trial, _ in json.loads(state)["trial_data"]]


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
