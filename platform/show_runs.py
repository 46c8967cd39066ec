"""Runs out of their folders: `archray.show` and `archray.runs`. Imports neither Ray, torch nor pandas."""

from __future__ import annotations

import os

from rich.console import Console

from archray.errors import RunFolderError, printable
from archray.files import Folder
from archray.platform.run.layout import MANIFEST, RUNS
from archray.platform.run.run_summary import RunSummary
from archray.platform.summary_text import print_summary, run_lines


def show(path: str | os.PathLike[str]) -> RunSummary:
    """Prints what a run found, how good it is, what was tried and how far it is; returns all of it.

    Args:
        path: the run's folder, a path or a pyarrow URI; of a run that has ended or not.

    Raises: RunFolderError for a folder that holds no run.
    """
    summary = RunSummary.read(path)
    print_summary(summary, Console())
    return summary


def runs(folder: str | os.PathLike[str] = RUNS) -> list[RunSummary]:
    """The runs in a folder, the newest first; those in its folders are not looked for.

    A damaged run is left out, and stderr says which file is damaged and what to do.

    Raises: RunFolderError if there is no such folder.
    """
    place = Folder(folder)
    if not place.exists() or ((local := place.local_path()) is not None and not local.is_dir()):
        raise RunFolderError(f"there is no folder {place}; name the one in which runs lie")
    found, errors = [], Console(stderr=True, highlight=False)
    for name in place.folders():
        try:
            if (place / name).exists(MANIFEST):
                found.append(RunSummary.read(place / name))
        except RunFolderError as error:
            errors.print(f"left out: {error}", markup=False, soft_wrap=True)
    return sorted(found, key=lambda summary: summary.created, reverse=True)


def print_runs(folder: str) -> None:
    """The runs in a folder, a line each."""
    console = Console()
    for line in run_lines(runs(folder), folder):
        console.print(printable(line), soft_wrap=True, highlight=False, markup=False, emoji=False)
