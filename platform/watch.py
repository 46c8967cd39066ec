"""`archray.watch`: a run that is on, from any process or machine that reads its folder. It writes nothing."""

from __future__ import annotations

import os
import time

from rich.console import Console
from rich.live import Live
from rich.text import Text

from archray.errors import InvalidInput, expect, printable
from archray.files import Folder
from archray.platform.run.run_summary import RunSummary
from archray.platform.run.stage_progress import StageProgress
from archray.platform.run_screen import line_of, progress_of, screen
from archray.platform.summary_text import print_summary


def watch(path: str | os.PathLike[str], *, interval: float = 2.0, once: bool = False) -> RunSummary:
    """Shows how far a run is, until it ends: stage, trials, the best so far, curves, the time left of the stage.

    In a terminal the screen is drawn anew; elsewhere a line is printed whenever something has changed. A run that has
    ended is printed as `archray.show` does. Ctrl-C ends the watching, not the run.

    Args:
        path: the run's folder, a path or a pyarrow URI.
        interval: seconds between two looks.
        once: look once.

    Returns: the run as it was when last looked at. Raises: RunFolderError for a folder that holds no run; InvalidInput.
    """
    expect("interval", interval, int, float)
    if not interval > 0:
        raise InvalidInput(f"interval: expected a number of seconds above 0, got {interval}")
    console, place = Console(), Folder(path)
    summary, progress = _look(place)
    if once or summary.state != "running":
        if summary.state == "running":
            _print("\n".join(screen(summary, progress)), console)
        else:
            print_summary(summary, console)
        return summary
    if console.is_terminal:
        with Live(_text(summary, progress), console=console, auto_refresh=False, transient=True) as live:
            while summary.state == "running":
                live.update(_text(summary, progress), refresh=True)
                time.sleep(interval)
                summary, progress = _look(place)
    else:
        printed = ""
        while summary.state == "running":
            line = line_of(summary, progress)
            if line != printed:
                _print(line, console)
                printed = line
            time.sleep(interval)
            summary, progress = _look(place)
    print_summary(summary, console)
    return summary


def _look(place: Folder) -> tuple[RunSummary, StageProgress | None]:
    summary = RunSummary.read(place)
    return summary, progress_of(summary) if summary.state == "running" else None


def _print(text: str, console: Console) -> None:
    console.print(printable(text), soft_wrap=True, highlight=False, markup=False, emoji=False)


def _text(summary: RunSummary, progress: StageProgress | None) -> Text:
    return Text(printable("\n".join(screen(summary, progress))), no_wrap=True, overflow="ellipsis")
