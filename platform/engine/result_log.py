"""Records that survive a crash of the driver of a Tune run: every reported result, and Tune's state.

Tune copies its files to the run's folder in the background and in place. A kill can leave an empty result file, and a
graceful stop can lose the last state. A restored trial writes a new `result.json`. These callbacks therefore write
through `Folder`: whole files, or lines through the `LineWriter` of `line_writer`. They have no paths: Tune pickles
callbacks, and a run may be moved. The size of a trial's files does not grow with the number of trials.

SIGKILL loses at most the results and events of the last second, and on a local disk none. The files then describe an
earlier moment: a snapshot or an event in the journal is never without the results before it. A resume repeats the lost
results from the last checkpoint, which exists: Tune registers a checkpoint of a trial, and deletes an old one, only
when the event of the trial's previous checkpoint is kept.
"""

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Real
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.utils import flatten_dict

from archray.cluster.ray_compat import (
    STATE_FILES,
    TRIAL_CHECKPOINT,
    TRIAL_FRAMES,
    TRIAL_ID,
    missing_state,
    replaced,
    set_trial_frames,
)
from archray.errors import IncompatibleRay, MissingFile, RunFolderError, tested_versions
from archray.files import Folder
from archray.line_writer import LineWriter
from archray.platform.engine.interrupt import INTERRUPT
from archray.platform.engine.tune_memory import keep_checkpoints, packed_states, release
from archray.platform.run import tune_snapshot
from archray.platform.run.layout import PLAN, RESULTS, STARTED
from archray.platform.run.run_summary import plain
from archray.plurals import count

logger = logging.getLogger(__name__)

SHORT = 64  # maximum length of a list to keep; a round of halving may have ten thousand scores
_WRITER: ContextVar[LineWriter] = ContextVar("writer")  # of this thread's Tune run


@contextmanager
def line_writer() -> Iterator[None]:
    """Lets the callbacks write lines in the block."""
    with LineWriter() as writer:
        token = _WRITER.set(writer)
        try:
            yield
        finally:
            _WRITER.reset(token)


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
        _WRITER.get().append(experiment_folder(trial) / RESULTS, f"{trial.trial_id}.jsonl", result_line(result))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        _WRITER.get().end(experiment_folder(trial) / RESULTS, f"{trial.trial_id}.jsonl")

    on_trial_error = on_trial_complete


def result_line(result: Mapping[str, Any]) -> bytes:
    """Returns the line of a result, with the numbers, texts and short lists of its nested dictionaries."""
    flat = flatten_dict({name: value for name, value in result.items() if name != "config"})
    kept = {name: _plain(value) for name, value in flat.items() if _is_kept(value)}
    return json.dumps(kept, default=str).encode()


def _is_kept(value: Any) -> bool:
    return value is None or isinstance(value, str | Real) or (isinstance(value, list) and len(value) <= SHORT)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Real) and hasattr(value, "item") else value  # a number of NumPy


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
        self._events: dict[str, int] = {}  # number of the last line in the journal, by trial

    def __getstate__(self) -> dict[str, Any]:
        return KeepSnapshot().__dict__

    def setup(self, *experiment: Any, **info: Any) -> None:
        """Checks that a restored experiment was not restored by Tune's own `Tuner.restore`.

        Raises: RunFolderError.
        """
        if _WRITER.get(None) is None:
            raise RunFolderError(
                "expected DurableTuner.restore for an experiment of DurableTuner, got ray.tune.Tuner.restore. Call "
                "archray.DurableTuner.restore(path, trainable).fit()"
            )

    def get_state(self) -> None:
        """Records that Tune writes its state; Tune calls this after it wrote the states of trials and searcher."""
        self._written = True

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        self._reported = True

    def on_checkpoint(self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any) -> None:
        """Waits until the trial's last event is kept, since Tune then deletes the checkpoint before it."""
        _WRITER.get().wait(self._events.pop(trial.trial_id, 0))

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
            line = tune_snapshot.event_line([[trial.trial_id, *trial.get_json_state()] for trial in changed])
            number = _WRITER.get().append(experiment_folder(trials[0]), self._journal, line, is_journal=True)
            self._events |= dict.fromkeys((trial.trial_id for trial in changed), number)
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
        """Keeps Tune's last state. After an error Tune does not write it, and the journal has the later events."""
        if trials and self._written:
            self._keep(trials)

    def _keep(self, trials: list[Any]) -> str:
        """Keeps Tune's state files; returns the name of the journal that follows.

        Raises: IncompatibleRay if the state of the trials is missing, or trials of an earlier process are missing,
            which means that Tune restarts the run.
        """
        folder = experiment_folder(trials[0])
        if self._journal is None:  # a state in the folder belongs to an earlier process
            # With `restart_errored`, Tune replaces a failed trial by a trial with another id.
            kept = {row["trial_id"] for row in tune_snapshot.kept_trials(folder) if row["status"] != Trial.ERROR}
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
        _WRITER.get().flush()  # the results that the state contains
        self._events = {}
        return tune_snapshot.write_snapshot(folder, states)


class EndedCheckpoints(tune.Callback):
    """Deletes checkpoints of ended trials, in the run's folder and in the results of `fit()`.

    A checkpoint is deleted after `KeepSnapshot` has recorded the end of its trial, so that a kill loses no work. Failed
    trials keep their checkpoints, since a resume may retry them. The callback has no paths.

    Args:
        kept: number of checkpoints that remain, the newest.
    """

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._ended: list[Any] = []
        self._at_start = True

    def __getstate__(self) -> dict[str, Any]:
        return EndedCheckpoints(self._kept).__dict__

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._ended.append(trial)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._delete_ended(trials)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self._delete_ended(trials)

    def _delete_ended(self, trials: list[Any]) -> None:
        if self._at_start:  # trials of an earlier process, which a kill may have ended before the deletion
            # Later, TERMINATED can also mean that Tune has stopped an unfinished trial because of an interrupt.
            self._at_start = False
            self._ended += [trial for trial in trials if trial.status == Trial.TERMINATED]
        ended, self._ended = self._ended, []
        if ended:
            _WRITER.get().flush()  # the events of these trials
        for trial in ended:
            self._delete(trial)

    def _delete(self, trial: Any) -> None:
        results = trial.run_metadata.checkpoint_manager.best_checkpoint_results
        number = max(0, len(results) - self._kept)
        if trial.status != Trial.TERMINATED or number == 0:
            return
        keep_checkpoints(trial, results[number:])
        for result in results[:number]:
            folder = Folder(result.checkpoint.path, filesystem=result.checkpoint.filesystem)
            try:
                if folder.exists():
                    folder.remove()
            except OSError as error:
                logger.warning("%s: cannot delete the checkpoint %s (%s)", trial, folder, error)


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


@contextmanager
def distinct_ids() -> Iterator[None]:
    """Makes Tune draw ids of 16 digits, so that no two trials of a run share results, checkpoints and suggestion."""
    with replaced(TRIAL_ID, lambda generate: lambda: uuid.uuid4().hex[:16]):
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
    results = (folder / RESULTS).with_listing()
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
        self._results = (folder / RESULTS).with_listing()

    def __getitem__(self, trial_id: str) -> pd.DataFrame:
        try:
            frame = pd.DataFrame(self._results.read_json_lines(f"{trial_id}.jsonl"))
        except MissingFile as error:
            raise KeyError(trial_id) from error
        return frame.drop_duplicates("training_iteration", keep="last", ignore_index=True)  # repeated after a restore

    def __iter__(self) -> Iterator[str]:
        return (name.removesuffix(".jsonl") for name in self._results.files())

    def __len__(self) -> int:
        return len(self._results.files())


def saved_results(trial: Any) -> Folder:
    """Saves all results of the trial's Tune run, and returns their folder, which it lists once."""
    _WRITER.get().flush()
    return (experiment_folder(trial) / RESULTS).with_listing()


def experiment_folder(trial: Any) -> Folder:
    """Returns the folder of a trial's Tune run."""
    return Folder(trial.storage.experiment_fs_path, filesystem=trial.storage.storage_filesystem)
