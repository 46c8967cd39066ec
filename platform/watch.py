"""`archray.watch`: live progress of a run, from any process or machine that can read its folder. Writes no files."""

import os
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from archray.errors import InvalidInput, expect, printable
from archray.files import Folder
from archray.platform.quantities import duration, quantity_of, whole_number
from archray.platform.run.run_summary import RunSummary, StageSummary
from archray.platform.run.stage_progress import StageProgress
from archray.platform.show import (
    current,
    detailed,
    print_summary,
    print_text,
    progress_of,
    run_words,
    state_words,
    trial_words,
)
from archray.plurals import count

MARKS = {"stopped": "×", "done": "✓", "running": "▸", "waiting": "·"}
LEVELS = "▁▂▃▄▅▆▇█"
WIDTH = 40  # characters of a curve
RUNNING_ROWS = 8  # shown running trials


def watch(path: str | os.PathLike[str], *, interval: float = 2.0, once: bool = False) -> RunSummary:
    """Shows the progress of a run until it ends: stage, trials, best value, curves, remaining time of the stage.

    In a terminal the function redraws the screen; elsewhere it prints a line after each change. It prints a run that
    has ended like `archray.show`. Ctrl-C ends the display, not the run.

    Args:
        path: folder of the run, a path or a pyarrow URI.
        interval: seconds between updates.
        once: whether to show one update and return.

    Returns: the last state of the run.
    Raises: RunFolderError for a folder without a run; InvalidInput.

    Example:
        ```python
        archray.watch("runs/first")  # until the run ends
        summary = archray.watch("runs/first", once=True)
        ```
    """
    expect("interval", interval, int, float)
    if not interval > 0:
        raise InvalidInput(f"interval: expected a number of seconds above 0, got {interval}")
    console, place = Console(), Folder(path)
    summary, progress = _read(place)
    if once or summary.state != "running":
        if summary.state == "running":
            print_text("\n".join(screen(summary, progress)), console)
        else:
            summary = detailed(summary)
            print_summary(summary, console)
        return summary
    if console.is_terminal:
        with Live(_text(summary, progress), console=console, auto_refresh=False, transient=True) as live:
            while summary.state == "running":
                live.update(_text(summary, progress), refresh=True)
                time.sleep(interval)
                summary, progress = _read(place)
    else:
        printed = ""
        while summary.state == "running":
            line = line_of(summary, progress)
            if line != printed:
                print_text(line, console)
                printed = line
            time.sleep(interval)
            summary, progress = _read(place)
    summary = detailed(summary)
    print_summary(summary, console)
    return summary


def _read(place: Folder) -> tuple[RunSummary, StageProgress | None]:
    summary = RunSummary.read(place)
    return summary, progress_of(summary) if summary.state == "running" else None


def _text(summary: RunSummary, progress: StageProgress | None) -> Text:
    return Text(printable("\n".join(screen(summary, progress))), no_wrap=True, overflow="ellipsis")


def screen(summary: RunSummary, progress: StageProgress | None) -> Iterator[str]:
    """Yields the lines of the display in a terminal."""
    yield f"{run_words(summary)}: {state_words(summary)}"
    if summary.repeats:
        yield f"repeat {len(summary.repeats)} of {summary.asked_repeats}"
    for stage in current(summary).stages:
        yield f"  {MARKS[stage.state]} {stage.name:<12}{_stage_words(stage, progress)}"
        if stage.state == "running" and progress is not None:
            yield from (f"      {line}" for line in _trials(progress, stage.name))


def line_of(summary: RunSummary, progress: StageProgress | None) -> str:
    """Returns the progress in one line, for a log."""
    stage = summary.stage
    if stage is None:
        return state_words(summary)
    repeat = f"repeat {len(summary.repeats)} of {summary.asked_repeats}, " if summary.repeats else ""
    best = _best(progress, stage.name) if progress is not None else None
    return f"{repeat}{stage.name}: {_stage_words(stage, progress)}" + (f", best {best}" if best else "")


def _stage_words(stage: StageSummary, progress: StageProgress | None) -> str:
    if stage.state == "done":
        return "" if stage.seconds is None else duration(stage.seconds)
    if stage.state == "waiting" or progress is None:
        return stage.title
    words = f"{whole_number(progress.done)} of {count(progress.total, progress.unit)}"
    words += f", {whole_number(progress.failed)} failed" if progress.failed else ""
    return words + (f", about {duration(progress.seconds_left)} left" if progress.seconds_left else "")


def _trials(progress: StageProgress, stage: str) -> Iterator[str]:
    if progress.metric is None or progress.mode is None:
        return
    label = quantity_of(progress.metric, stage).label
    values = [trial.value for trial in progress.ended if trial.value is not None]
    if values:
        yield f"best     {_best(progress, stage)}"
    if len(values) > 1:
        better = max if progress.mode == "max" else min
        so_far = [better(values[: number + 1]) for number in range(len(values))]
        yield f"trials   {sparkline(values)}  {label} of finished trials"
        yield f"so far   {sparkline(so_far, values)}  best value so far"
    running = [trial for trial in progress.trials if trial.status == "running"]
    for trial in running[:RUNNING_ROWS]:
        epochs = f"epoch {trial.epoch} of {trial.epochs}" if trial.epochs else f"epoch {trial.epoch}"
        value = f"  {quantity_of(progress.metric, stage).show(trial.value)}" if trial.value is not None else ""
        yield f"running  {epochs}  {sparkline(trial.values)}{value}  {trial_words(trial)}"
    if len(running) > RUNNING_ROWS:
        yield f"         and {count(len(running) - RUNNING_ROWS, 'trial')} more"


def _best(progress: StageProgress, stage: str) -> str | None:
    best = progress.best
    if best is None or progress.metric is None:
        return None
    quantity = quantity_of(progress.metric, stage)
    return f"{quantity.label} {quantity.show(best.value)}  {trial_words(best)}"


def sparkline(values: Sequence[float | None], scale: Sequence[float | None] = ()) -> str:
    """Draws the last WIDTH values as a curve in one line, with a blank for a missing value.

    Args:
        scale: values whose minimum and maximum define the scale; by default the values themselves.
    """
    finite = [value for value in (scale or values)[-WIDTH:] if value is not None]
    if not finite:
        return ""
    least, span = min(finite), max(finite) - min(finite)
    steps = len(LEVELS) - 1

    def mark(value: float | None) -> str:
        if value is None:
            return " "
        return LEVELS[min(max(round((value - least) / span * steps), 0), steps) if span else steps // 2]

    return "".join(map(mark, values[-WIDTH:]))
