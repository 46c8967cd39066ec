"""Records that survive any end of the driver of a Tune run: every reported result, and Tune's own state.

Tune copies its files to the run's folder in the background and in place: a kill left a result file empty, and after a
graceful stop the last state was missing there. A restored trial writes a new `result.json`. These callbacks write
through `Folder`: whole files, or a line at the end of one. They have no path: Tune pickles callbacks, and a run may be
moved. The size of a trial's files does not grow with the number of trials.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune
from ray.tune.execution.experiment_state import _ExperimentCheckpointManager

from archray.cluster.ray_compat import replaced
from archray.errors import IncompatibleRay, tested_versions
from archray.files import Folder
from archray.platform.engine.interrupt import INTERRUPT
from archray.platform.engine.tune_memory import packed_states, release
from archray.platform.run import tune_snapshot
from archray.platform.run.layout import PLAN, RESULTS, STARTED
from archray.platform.run.run_summary import plain
from archray.plurals import count

SHORT = 64  # entries of the longest list to keep; a round of halving may have ten thousand scores
STATE_FILES = ("experiment_state-", "search_gen_state-", "searcher-state-", "basic-variant-state-")


class ResultLog(tune.Callback):
    """Writes the configuration of every trial as it starts, and every result as it is reported.

    A trial that repeats an epoch after a restore has two results of it.
    """

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        config = {name: value for name, value in trial.config.items() if _is_kept(value)}
        started = {"trial_id": trial.trial_id, "config": plain(config), "started": time.time()}
        (experiment_folder(trial) / STARTED).write_json(f"{trial.trial_id}.json", started)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        if INTERRUPT.stopping:
            return  # Tune's last snapshot does not contain it: the epoch will be trained again
        kept = {name: value for name, value in result.items() if _is_kept(value)}
        line = json.dumps(kept, default=str).encode()
        (experiment_folder(trial) / RESULTS).append_line(f"{trial.trial_id}.jsonl", line)


def _is_kept(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float) or (isinstance(value, list) and len(value) <= SHORT)


class KeepSnapshot(tune.Callback):
    """Keeps a snapshot of Tune's state files whenever Tune has written them, and at the end; between two, a journal.

    Tune writes them at intervals that grow with their cost (a twentieth of the time at most). The journal receives,
    after every step, the state of each trial that was suggested, saved or ended in it.
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
        """Tune calls this as it writes its state, in its own staging folder, after the trials' and the searcher's."""
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
        """Keeps the events of the step before.

        Tune saves its state in its first step, in which no trial can have reported: results without a state prove that
        Ray has changed. A resume relies on it, see `restore_state`.

        Raises: IncompatibleRay if Tune does not save its state, or restarts a run instead of restoring it.
        """
        # Suggestions come first, as in the step: later suggestions may depend on trials that ended in it.
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
        """The new trials. They are at the end of the list, where Tune also moves trials that it tries again."""
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

        Raises: IncompatibleRay if the state of the trials is not among them, or trials of an earlier process are
            missing: then Tune restarts the run.
        """
        folder = experiment_folder(trials[0])
        if self._journal is None:  # the state in the folder is of an earlier process, if there is one
            kept = {trial["trial_id"] for trial in tune_snapshot.kept_trials(folder)}
            lost = kept - {trial.trial_id for trial in trials}
            if lost:
                missing = count(len(lost), "more trial")
                problem = f"Expected Ray Tune to restore {missing} of {folder}, got a run that restarts"
                raise IncompatibleRay(tested_versions(problem))
        staged = Path(trials[0].storage.experiment_driver_staging_path)
        files = [file for file in staged.iterdir() if file.is_file()]
        states = {file.name: file for file in files if file.name.startswith(STATE_FILES)}
        if not any(map(tune_snapshot.is_experiment_state, states)):
            names = ", ".join(sorted(file.name for file in files)) or "no files"
            raise IncompatibleRay(tested_versions(f"Expected Ray Tune to save experiment_state-*.json, got {names}"))
        return tune_snapshot.write_snapshot(folder, states)


@contextmanager
def reduced_saves() -> Iterator[None]:
    """Switches off Tune's own saves that these callbacks replace, while the block runs.

    Tune then writes its whole state at intervals only. Else it also does so whenever a trial has saved as many
    checkpoints as it keeps, so that no state names a deleted one: the journal has every checkpoint as it is saved.
    Tune does not look for its own files of results, see `with_frames`, and keeps less of ended trials, see
    `tune_memory.release`.
    """
    with (
        replaced(_ExperimentCheckpointManager, "on_trial_checkpoint", lambda forced: lambda manager, trial: None),
        replaced(tune.ExperimentAnalysis, "_fetch_trial_dataframes", lambda frames: lambda analysis: {}),
        packed_states(),
    ):
        yield


def write_plan(folder: Folder, **plan: Any) -> None:
    """Writes the start of the Tune run in `folder` and the number of its ended trials, for `archray watch`.

    plan: the counts, the metric and the mode of its `TrialPlan`.
    """
    done_before = sum(status in ("TERMINATED", "ERROR") for status in trial_statuses(folder))
    folder.write_json(PLAN, {"began": time.time(), "done_before": done_before, **plan})


def trial_statuses(folder: Folder) -> list[str]:
    """The status of every trial in Tune's last state. folder: of a Tune experiment."""
    return [trial["status"] for trial in tune_snapshot.kept_trials(folder)]


def read_results(folder: Folder) -> pd.DataFrame:
    """A row per trial and epoch, in order. A later report of an epoch replaces an earlier one.

    A trial that was restored after its last epoch reports it again, with the next `training_iteration`.
    """
    results = folder / RESULTS
    rows = [row for name in results.files() for row in results.read_json_lines(name)]
    if not rows:
        return pd.DataFrame()
    table = pd.DataFrame(rows)
    keys = ["trial_id", "epoch" if "epoch" in table else "training_iteration"]
    return table.drop_duplicates(keys, keep="last").sort_values(keys, ignore_index=True)


def with_frames(results: tune.ResultGrid, folder: Folder) -> tune.ResultGrid:
    """The result of `fit()`, with `metrics_dataframe` of each trial, which is large and read on access."""
    analysis: Any = results._experiment_analysis
    analysis._trial_dataframes = _Frames(folder)
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
    """The folder of the Tune run that a trial belongs to."""
    return Folder(trial.storage.experiment_fs_path, filesystem=trial.storage.storage_filesystem)
