"""Handling of Ctrl-C: the first stops a stage when running work is saved, or after some seconds; the second at once.

In a Tune run, work is saved at the next checkpoint of every trial. Tune's own handler would drop the work since the
last checkpoint. A stage that stops at once resumes from the saved state, as after a kill.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ray import tune
from rich.console import Console

from archray.cluster.ray_watch import interrupt, ray_loss, received

PATIENCE_SECONDS = 10.0  # wait after the first Ctrl-C: Kubernetes and SLURM kill a process 30 s after SIGTERM


class Interrupt(threading.local):
    """Whether the user requested a stop of this thread's run; only the main thread receives the signal.

    Attributes:
        requested: whether Ctrl-C was pressed.
        stopping: whether the Tune run is ending; archray drops later results.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.requested = self.stopping = False
        self._unsaved: set[str] = set()  # trials that reported an epoch after their last checkpoint
        self._saved: set[str] = set()  # trials that saved a checkpoint after the request

    def trial_reported(self, trial_id: str) -> None:
        self._unsaved.add(trial_id)

    def trial_saved(self, trial_id: str, trials: list[Any]) -> None:
        """Stops the run when every running trial has saved since the request, and no reported epoch is unsaved.

        Args:
            trials: all trials of Tune; the trial that saved may have ended.
        """
        self._unsaved.discard(trial_id)
        if not self.requested:
            return
        self._saved.add(trial_id)
        running = {trial.trial_id for trial in trials if trial.status == "RUNNING"}
        if running <= self._saved and not running & self._unsaved:
            self.stopping = True
            os.kill(os.getpid(), signal.SIGUSR1)  # Tune's graceful stop: it saves its state, then fit() returns


INTERRUPT = Interrupt()


class StopAtCheckpoint(tune.Callback):
    """Reports every checkpoint to `INTERRUPT`. It has no state: Tune pickles callbacks and restores the pickle."""

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        INTERRUPT.trial_reported(trial.trial_id)

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        INTERRUPT.trial_saved(trial.trial_id, trials)

    on_trial_complete = on_trial_error = on_trial_save


@contextmanager
def stop_gracefully(console: Console, when: str) -> Iterator[Interrupt]:
    """Handles Ctrl-C and SIGTERM while the block runs, see the module docstring; does nothing off the main thread.

    Args:
        when: end of the message after the first Ctrl-C.

    Raises: KeyboardInterrupt if the block stops at once.
    """
    INTERRUPT.reset()
    if threading.current_thread() is not threading.main_thread():
        yield INTERRUPT
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    second = threading.Timer(PATIENCE_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
    second.daemon = True

    def request(number: int, frame: FrameType | None) -> None:
        if INTERRUPT.requested or ray_loss() is not None:
            interrupt(number, frame)
        received(number)
        INTERRUPT.requested = True
        second.start()
        again = " Press Ctrl-C again to stop at once." if number == signal.SIGINT else ""
        console.print(f"\nStopping when {when}, or in {PATIENCE_SECONDS:.0f} s.{again}")

    disabled = os.environ.get("TUNE_DISABLE_SIGINT_HANDLER")
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    for number in before:
        signal.signal(number, request)
    try:
        yield INTERRUPT
    finally:
        second.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
        if disabled is None:
            del os.environ["TUNE_DISABLE_SIGINT_HANDLER"]
        else:
            os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = disabled
