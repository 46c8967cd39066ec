"""Ctrl-C: the first ends a stage when what is under way is saved, the second at once.

In a Tune run that is the next checkpoint of every trial; Tune's own handler drops what trials did since their last one.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ray import tune
from rich.console import Console


class Interrupt:
    """Whether the person asked to stop; one per process, as the signal handler is."""

    def __init__(self) -> None:
        self.requested = False
        self._waiting_for: set[str] | None = None

    def reset(self) -> None:
        self.requested = False
        self._waiting_for = None

    def trial_saved(self, trial_id: str, running: set[str]) -> None:
        """Ends the run once every trial that was running has saved, or ended, after the request."""
        if not self.requested:
            return
        waiting = running if self._waiting_for is None else self._waiting_for & running
        self._waiting_for = waiting - {trial_id}
        if not self._waiting_for:
            os.kill(os.getpid(), signal.SIGUSR1)  # Tune's graceful stop: it saves its state, then fit() returns


INTERRUPT = Interrupt()


class StopAtCheckpoint(tune.Callback):
    """Tells `INTERRUPT` of every checkpoint. Holds no state: Tune pickles callbacks and restores the pickle."""

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._saved(trials, trial)

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._saved(trials, trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._saved(trials, trial)

    def _saved(self, trials: list[Any], trial: Any) -> None:
        running = {t.trial_id for t in trials if t.status == "RUNNING"}
        INTERRUPT.trial_saved(trial.trial_id, running)


@contextmanager
def stop_gracefully(console: Console, when: str) -> Iterator[Interrupt]:
    """Handles Ctrl-C (and SIGTERM) as the module says while the block runs; does nothing off the main thread.

    when: what the first Ctrl-C waits for, as it is told.
    """
    INTERRUPT.reset()
    if threading.current_thread() is not threading.main_thread():
        yield INTERRUPT
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def request(number: int, frame: FrameType | None) -> None:
        if INTERRUPT.requested:
            raise KeyboardInterrupt
        INTERRUPT.requested = True
        console.print(f"\nStopping when {when}; again to stop at once.")

    disabled = os.environ.get("TUNE_DISABLE_SIGINT_HANDLER")
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    for number in before:
        signal.signal(number, request)
    try:
        yield INTERRUPT
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if disabled is None:
            del os.environ["TUNE_DISABLE_SIGINT_HANDLER"]
        else:
            os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = disabled
