"""Records that survive a crash of the driver of a Tune run: every reported result, and Tune's state.

Tune copies its files to the run's folder in the background and in place. A kill can leave an empty result file, and a
graceful stop can lose the last state. A restored trial writes a new `result.json`. These callbacks therefore write
through `Folder`: whole files, or a line at the end of a file. They have no paths: Tune pickles callbacks, and a run may
be moved. The size of a trial's files does not grow with the number of trials.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune

from archray.cluster.ray_compat import (
    STATE_FILES,
    TRIAL_CHECKPOINT,
    TRIAL_FRAMES,
    missing_state,
    replaced,
    set_trial_frames,
)
from archray.errors import IncompatibleRay, tested_versions
from archray.files import Folder
from archray.platform.engine.interrupt import INTERRUPT
from archray.platform.engine.tune_memory import packed_states, release
from archray.platform.run import tune_snapshot
from archray.platform.run.layout import PLAN, RESULTS, STARTED
from archray.platform.run.run_summary import plain
from archray.plurals import count

SHORT = 64  # maximum length of a list to keep; a round of halving may have ten thousand scores


class ResultLog(tune.Callback):
    """Writes the configuration of every trial when it starts, and every reported result.

    A trial that repeats an epoch after a restore has two results for this epoch.
    """

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        config = {name: value for name, value in trial.config.items() if _is_kept(value)}
        started = {"trial_id": trial.trial_id, "config": plain(config), "started": time.time()}
        (experiment_folder(trial) / STARTED).write_json(f"{trial.trial_id}.json", started)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        if INTERRUPT.stopping:
            return  # Tune's last snapshot does not contain the result; the trial repeats this epoch
        kept = {name: value for name, value in result.items() if _is_kept(value)}
        line = json.dumps(kept, default=str).encode()
        (experiment_folder(trial) / RESULTS).append_line(f"{trial.trial_id}.jsonl", line)


def _is_kept(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float) or (isinstance(value, list) and len(value) <= SHORT)


class KeepSnapshot(tune.Callback):
    """Keeps a snapshot of Tune's state files when Tune has written them and at the end, and a journal in between.

    Tune writes its state at intervals that grow with the cost (at most a twentieth of the time). After every step, the
    journal receives the state of each trial that was suggested, saved or ended in the step.
    """

    def __init__(self) -> None:
        self._journal: str | None = None
        self._changed: dict[str, Any] = {}  # the trials with an event, by id
        self._recorded: set[str] = set()  # ids of the trials in the journal or the snapshot
        self._written = False  # whether Tune has written its state since the last snapshot
        self._reported = False  # whether a trial has reported

    def __getstate__(self) -> dict[str, Any]:
        return KeepSnapshot().__dict__

    def get_state(self) -> None:
        """Records that Tune writes its state; Tune calls this after it wrote the states of trials and searcher."""
        self._written = True

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        self._reported = True

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._changed[trial.trial_id] = trial

    on_trial_recover = on_trial_save

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._changed[trial.trial_id] = trial
        release(trial, trials[0])

    on_trial_error = on_trial_complete

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Keeps the events of the previous step.

        Tune saves its state in its first step, in which no trial can have reported. Results without a state therefore
        mean that Ray has changed. A resume depends on this order, see `restore_state`.

        Raises: IncompatibleRay if Tune does not save its state, or restarts a run instead of restoring it.
        """
        # Suggestions come first, as in the step: later suggestions may depend on trials that ended in the step.
        suggested = {trial.trial_id: trial for trial in self._suggested(trials)}
        changed = {**suggested, **self._changed}.values()
        if self._written and trials:
            self._journal = self._keep(trials)
        elif self._reported and self._journal is None:
            raise IncompatibleRay(
                tested_versions("Expected Ray Tune to save its state before the first result, got none saved")
            )
        elif changed and self._journal is not None:
            events = [[trial.trial_id, *trial.get_json_state()] for trial in changed]
            tune_snapshot.append_events(experiment_folder(trials[0]), self._journal, events)
        self._recorded |= suggested.keys()
        self._changed, self._written = {}, False

    def _suggested(self, trials: list[Any]) -> list[Any]:
        """Returns the new trials. They are at the end of the list, where Tune also moves trials that it retries."""
        new: list[Any] = []
        for trial in reversed(trials):
            if len(self._recorded) + len(new) == len(trials):
                break
            if trial.trial_id not in self._recorded:
                new.append(trial)
        return new[::-1]

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        if trials:
            self._keep(trials)

    def _keep(self, trials: list[Any]) -> str:
        """Keeps Tune's state files; returns the name of the journal that follows.

        Raises: IncompatibleRay if the state of the trials is missing, or trials of an earlier process are missing,
            which means that Tune restarts the run.
        """
        folder = experiment_folder(trials[0])
        if self._journal is None:  # a state in the folder belongs to an earlier process
            kept = {trial["trial_id"] for trial in tune_snapshot.kept_trials(folder)}
            lost = kept - {trial.trial_id for trial in trials}
            if lost:
                missing = count(len(lost), "more trial")
                problem = f"Expected Ray Tune to restore {missing} of {folder}, got a run that restarts"
                raise IncompatibleRay(tested_versions(problem))
        staged = Path(trials[0].storage.experiment_driver_staging_path)
        files = [file for file in staged.iterdir() if file.is_file()]
        states = {file.name: file for file in files if file.name.startswith(STATE_FILES)}
        if absent := missing_state(list(states)):
            names = ", ".join(sorted(file.name for file in files)) or "no files"
            raise IncompatibleRay(tested_versions(f"Expected Ray Tune to save {absent}*, got {names}"))
        return tune_snapshot.write_snapshot(folder, states)


@contextmanager
def reduced_saves() -> Iterator[None]:
    """Disables the saves of Tune that these callbacks replace, while the block runs.

    Tune then writes its whole state only at intervals. By default it also writes it whenever a trial has saved as many
    checkpoints as it keeps, so that no state names a deleted checkpoint; here the journal records every checkpoint.
    Tune does not read its own result files, see `with_frames`, and keeps less data of ended trials, see
    `tune_memory.release`.
    """
    with (
        replaced(TRIAL_CHECKPOINT, lambda forced: lambda manager, trial: None),
        replaced(TRIAL_FRAMES, lambda frames: lambda analysis: {}),
        packed_states(),
    ):
        yield


def write_plan(folder: Folder, **plan: Any) -> None:
    """Writes the start of the Tune run in `folder` and the number of its ended trials, for `archray watch`.

    Args:
        plan: counts, metric and mode of its `TrialPlan`.
    """
    done_before = sum(status in ("TERMINATED", "ERROR") for status in trial_statuses(folder))
    folder.write_json(PLAN, {"started": time.time(), "done_before": done_before, **plan})


def trial_statuses(folder: Folder) -> list[str]:
    """Returns the status of every trial in Tune's last state.

    Args:
        folder: folder of a Tune experiment.
    """
    return [trial["status"] for trial in tune_snapshot.kept_trials(folder)]


def read_results(folder: Folder) -> pd.DataFrame:
    """Reads a row per trial and epoch, in order. A later report of an epoch replaces an earlier report.

    A trial that was restored after its last epoch reports this epoch again, with the next `training_iteration`.
    """
    results = folder / RESULTS
    rows = [row for name in results.files() for row in results.read_json_lines(name)]
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)
    keys = ["trial_id", "epoch" if "epoch" in table else "training_iteration"]
    return table.drop_duplicates(keys, keep="last").sort_values(keys, ignore_index=True)


def with_frames(results: tune.ResultGrid, folder: Folder) -> tune.ResultGrid:
    """Adds `metrics_dataframe` of each trial to the result of `fit()`; it is large, and read on access."""
    set_trial_frames(results, _Frames(folder))
    return results


class _Frames(Mapping[str, pd.DataFrame]):
    def __init__(self, folder: Folder) -> None:
        self._results = folder / RESULTS

    def __getitem__(self, trial_id: str) -> pd.DataFrame:
        if not self._results.exists(f"{trial_id}.jsonl"):
            raise KeyError(trial_id)
        return pd.DataFrame(self._results.read_json_lines(f"{trial_id}.jsonl"))

    def __iter__(self) -> Iterator[str]:
        return (name.removesuffix(".jsonl") for name in self._results.files())

    def __len__(self) -> int:
        return len(self._results.files())


def experiment_folder(trial: Any) -> Folder:
    """Returns the folder of a trial's Tune run."""
    return Folder(trial.storage.experiment_fs_path, filesystem=trial.storage.storage_filesystem)
