"""How far the scoring of a pool is: a bar with rate and time left in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

LINE_SECONDS = 10.0  # between two lines where there is no terminal


class ScoringProgress:
    """Counts architectures scored; use it as a context.

    Args:
        total: architectures of the pool.
        done, failed: of these, scored (and with a failure) by an earlier, interrupted run.
    """

    def __init__(self, console: Console, *, total: int, done: int = 0, failed: int = 0) -> None:
        self._console, self._total, self._done, self._failed = console, total, done, failed
        self._first: tuple[float, int] | None = None  # when this run's first chunk came, and how many were done then
        self._last_line = time.monotonic()
        self._bar = Progress(
            TextColumn("    scoring"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("scoring", total=total, completed=done, state="")

    def __enter__(self) -> ScoringProgress:
        if self._done:
            self._console.print(f"    {self._done} of {self._total} architectures were scored before")
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def advance(self, scored: int, *, failed: int = 0) -> None:
        """Adds a chunk of `scored` architectures, `failed` of them with a failure."""
        self._done += scored
        self._failed += failed
        now = time.monotonic()
        state = ""
        if self._first is None:  # actors start, import and load their data before it: no part of the rate
            self._first = (now, self._done)
        elif now > self._first[0]:
            rate = (self._done - self._first[1]) / (now - self._first[0])
            state = f"{rate:.3g}/s, {_duration((self._total - self._done) / rate)} left"
        if self._failed:
            state += f"{', ' * bool(state)}{self._failed} with a failed metric"
        self._bar.update(self._task, completed=self._done, state=state)
        if not self._console.is_terminal and (now - self._last_line >= LINE_SECONDS or self._done == self._total):
            self._last_line = now
            self._console.print(f"    scored {self._done}/{self._total}  {state}")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
