"""Progress bars and progress lines of a Tune run and of the scoring of a pool."""

import math
import time
from typing import Any

from ray import tune
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

from archray.platform.durable.session import current, log_id
from archray.platform.quantities import quantity_of
from archray.plurals import count

LINE_SECONDS = 10.0  # minimum time between two progress lines of a scoring without a terminal


def _bar(console: Console, *columns: ProgressColumn) -> Progress:
    return Progress(
        TextColumn("    {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        TextColumn("{task.fields[state]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class TrialProgress(tune.Callback):
    """Shows a bar with the best value of a stage, and a line per finished trial. Must come after `Recorder`.

    `setup` creates the display, since Tune pickles callbacks.

    Args:
        name: stage.
        total: maximum number of training runs.
        before: number of training runs done before this Tune run.
    """

    def __init__(self, name: str, total: int, before: int, metric: str, mode: str) -> None:
        self.name, self.total, self.before, self.metric, self.mode = name, total, before, metric, mode
        self._progress: Progress | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_progress": None}

    def setup(self, stop: Any = None, num_samples: Any = None, total_num_samples: Any = None, **info: Any) -> None:
        self._quantity = quantity_of(self.metric, self.name)
        self._best = math.nan
        self._started: dict[str, float] = {}
        self._done = self.before + current().ended  # trials that have ended
        console = Console(highlight=False)
        self._progress = _bar(console, TimeElapsedColumn())
        self._task = self._progress.add_task(self.name, total=self.total, state="")
        self._progress.start()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._started.setdefault(trial.trial_id, time.monotonic())

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: Any, **info: Any) -> None:
        self._show(f"epoch {result.get('training_iteration')}")

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        result = trial.last_result or {}
        value, failure = result.get(self.metric, math.nan), result.get("failure")
        if isinstance(value, float) and not math.isnan(value):
            better = max if self.mode == "max" else min
            self._best = value if math.isnan(self._best) else better(self._best, value)
        self._line(trial, f"failed: {failure}" if failure else self._quantity.text(value))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if log_id(trial) not in current().open:  # else it starts again
            self._line(trial, f"error: {current().failures[log_id(trial)].sentence}")

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _line(self, trial: Any, text: str) -> None:
        self._done += 1
        seconds = time.monotonic() - self._started.get(trial.trial_id, time.monotonic())
        assert self._progress is not None  # Tune calls `setup` first
        self._progress.console.print(
            f"    {self.name} {self._done}/{self.total}  {text}  {seconds:.0f} s  {_tried(trial)}",
            markup=False,
            soft_wrap=True,
        )
        self._show("")

    def _show(self, state: str) -> None:
        assert self._progress is not None
        best = "" if math.isnan(self._best) else f"best {self._quantity.text(self._best)}"
        self._progress.update(self._task, completed=self._done, state=f"{best} {state}")


def _tried(trial: Any) -> str:
    """Names a trial by its architecture, or by its seed and the architecture of its last result."""
    config = trial.config
    if "candidates" in config:
        number = len(config["candidates"])
        return f"round {config['round']}, " + ("alone" if number == 1 else count(number, "candidate"))
    if "architecture" in config:
        return str(config["architecture"])
    architecture = (trial.last_result or {}).get("architecture")
    seed = f"seed {config['seed']}" if "seed" in config else str(trial)
    return f"{seed}: {architecture}" if architecture else seed


class ScoringProgress:
    """Context manager that shows the progress of a scoring: a bar with rate and time left, or lines without a terminal.

    Args:
        total: number of architectures in the pool.
        done, failed: number of architectures that an earlier, interrupted call scored, and of those with a failure.
        unit: word for an architecture.
    """

    def __init__(
        self, console: Console, total: int, *, done: int = 0, failed: int = 0, unit: str = "architecture"
    ) -> None:
        self._console, self._total, self._done, self._failed, self._unit = console, total, done, failed, unit
        self._first: tuple[float, int] | None = None  # time of this run's first chunk, and the number done then
        self._rate: float | None = None
        self._last_line = time.monotonic()
        self._bar = _bar(console)
        self._task = self._bar.add_task("scoring", total=total, completed=done, state="")

    def __enter__(self) -> "ScoringProgress":
        if self._done:
            self._console.print(f"    {self._done} of {count(self._total, self._unit)} already scored")
        self._bar.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bar.stop()

    @property
    def state(self) -> dict[str, Any]:
        """Numbers of `done`, `failed` and `total` architectures, and `rate` per second in this call, or None."""
        return {"done": self._done, "failed": self._failed, "total": self._total, "rate": self._rate}

    def advance(self, scored: int, *, failed: int = 0) -> None:
        """Counts a chunk of `scored` architectures, `failed` of them with a failure."""
        self._done += scored
        self._failed += failed
        now = time.monotonic()
        state = ""
        if self._first is None:  # the rate excludes the start of the actors
            self._first = (now, self._done)
        elif now > self._first[0]:
            self._rate = (self._done - self._first[1]) / (now - self._first[0])
            minutes, seconds = divmod(round((self._total - self._done) / self._rate), 60)
            hours, minutes = divmod(minutes, 60)
            clock = f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
            state = f"{self._rate:.3g}/s, {clock} left"
        if self._failed:
            state += f"{', ' * bool(state)}{self._failed} with a failed metric"
        self._bar.update(self._task, completed=self._done, state=state)
        if not self._console.is_terminal and (now - self._last_line >= LINE_SECONDS or self._done == self._total):
            self._last_line = now
            self._console.print(f"    scored {self._done}/{self._total}  {state}")
