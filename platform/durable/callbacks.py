"""The callbacks of a Tune run with a log: they record what happens, and delete checkpoints that nothing needs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray import tune

from archray.cluster import plain_ray
from archray.cluster.ray_compat import TRIAL_FRAMES, TRIAL_STATES, no_states, replaced
from archray.platform.durable.failed_trials import FailureLog
from archray.platform.durable.session import DAMAGED, Session, current
from archray.platform.run.trial_log import LoggedTrial

logger = logging.getLogger(__name__)
ENDS = ("TERMINATED", "ERROR")  # statuses of a trial in Tune
KEEP_ALL = 10**9  # checkpoints of an ended trial
KEPT = 2  # checkpoints of a running trial: the log may not have the newest one yet


class Recorder(tune.Callback):
    """Records starts, results and checkpoints of trials, and ends that the searcher does not learn.

    A checkpoint is deleted when the log has a later one, or the end of its trial. Failed trials keep their checkpoints,
    since a resume may retry them.

    Args:
        kept: number of checkpoints of an ended trial that remain, the newest; None: Tune deletes checkpoints.
    """

    def __init__(self, kept: int | None = None) -> None:
        self._kept = kept
        self._live: dict[str, Any] = {}  # trials of Tune that have not ended, by their id in the log
        self._seen = 0  # number of trials of Tune
        self._lines: dict[str, int] = {}  # number of the line of each trial's last checkpoint

    def __reduce__(self) -> Any:
        return type(self), (self._kept,)  # Tune pickles its Tuner, and nothing reads the pickle

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        current().started(trial)

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        if DAMAGED in result:
            logger.warning("%s: %s", trial, result.pop(DAMAGED))
        current().reported(trial, result)

    def on_checkpoint(self, iteration: int, trials: list[Any], trial: Any, checkpoint: Any, **info: Any) -> None:
        session = current()
        name = session.id_of(trial)
        session.wait(self._lines.get(name, 0))  # the log has the checkpoint before, so those before it can go
        if self._kept is not None and name in session.open:
            self._delete(session, session.open[name], KEPT - 1)
        self._lines[name] = session.saved(trial, checkpoint)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        name = current().id_of(trial)
        self._live.pop(name, None)
        self._lines.pop(name, None)
        release(trial)

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        session = current()
        session.open[session.id_of(trial)].started = None  # it waits for an actor again

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Records the end of a failed trial, unless it failed because Tune gave it to an idle actor that had died.

        Tune does not retry such a trial, although it retries one whose actor dies later.
        """
        session = current()
        name = session.id_of(trial)
        deaths, retries = len(session.failures[name].processes), trial.max_failures
        if session.open[name].started is None and deaths > 0 and (retries < 0 or deaths <= retries):
            session.dropped.append(name)
        else:
            session.record("ended", name, error=True)
        self.on_trial_complete(iteration, trials, trial)

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self._delete_ended()

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Records the end of trials of which Tune informs neither callbacks nor searchers.

        A limit of the whole Tune run has stopped them, or the actor that they were to reuse could not be reset.
        """
        session = current()
        self._live |= {session.id_of(trial): trial for trial in trials[self._seen :]}
        self._seen = len(trials)
        for name, trial in [(name, trial) for name, trial in self._live.items() if trial.status in ENDS]:
            del self._live[name]
            if name in session.open and name not in session.dropped:
                failed = trial.status == "ERROR"
                if failed:
                    FailureLog().on_trial_error(iteration, trials, trial)
                session.record("ended", name, error=failed, has_result=False)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        self._delete_ended()

    def _delete_ended(self) -> None:
        session = current()
        ended, session.to_clean = session.to_clean, []
        if self._kept is None or not ended:
            return
        session.flush()  # the ends of these trials
        for trial in ended:
            self._delete(session, trial, self._kept)

    def _delete(self, session: Session, trial: LoggedTrial, kept: int) -> None:
        """Deletes all but the newest checkpoints of a trial."""
        number = max(0, len(trial.checkpoints) - kept)
        for checkpoint in trial.checkpoints[:number]:
            try:
                folder = session.folder / checkpoint.path
                if folder.exists():
                    folder.remove()
            except OSError as error:
                logger.warning("trial %s: cannot delete the checkpoint %s (%s)", trial.trial_id, checkpoint.path, error)
        del trial.checkpoints[:number]


def release(trial: Any) -> None:
    """Releases what Tune would keep of an ended trial, which the log has: statistics and checkpoints of its results."""
    if plain_ray():
        return
    progress = trial.run_metadata
    progress.metric_n_steps, progress.metric_analysis = {}, {}
    progress.checkpoint_manager = type(progress.checkpoint_manager)(progress.checkpoint_manager.checkpoint_config)


@contextmanager
def unread_results() -> Iterator[None]:
    """Prevents Tune from saving states of trials and reading results, which the log has, while the block runs."""
    with (
        replaced(TRIAL_STATES, lambda states: no_states),
        replaced(TRIAL_FRAMES, lambda frames: lambda analysis: {}),
    ):
        yield
