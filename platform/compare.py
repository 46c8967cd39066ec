"""Several runs that select a feature map, side by side. Khodak et al. 2020, Figures 2 and 3."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from archray.errors import InvalidInput, RunFolderError
from archray.files import write_file
from archray.platform.methods import open_run
from archray.platform.methods.feature_maps.comparison_page import render_comparison
from archray.platform.methods.feature_maps.equal_cost import comparison_table, written
from archray.platform.methods.recipe import recipe_of
from archray.platform.run.layout import FOUND
from archray.platform.run.run import Run


def compare(
    paths: Sequence[str | Path], *, out: str | Path | None = None, console: Console | None = None
) -> pd.DataFrame:
    """Compares runs that select a feature map: test error at equal solver calls, and at equal seconds.

    Args:
        paths: folders of runs, one for each method; repeats of a run give means and standard errors.
        out: an HTML file with the curves and the table, new.

    Returns: a row per run. Raises: RunFolderError for a folder that holds no run, or one without solver calls.
    """
    runs, console = [open_run(str(path)) for path in paths], console or Console()
    if out is not None and Path(out).exists():
        raise RunFolderError(f"{out} exists; choose another --out")
    labelled = labelled_progress(runs)
    table = comparison_table(labelled)
    words = written(table)
    printed = Table("", *words.index, box=None)
    for column in words.columns:
        printed.add_row(column, *words[column])
    console.print(printed)
    if out is not None:
        write_file(out, render_comparison(labelled).encode())
        console.print(f"report              {out}", soft_wrap=True)
    return table


def labelled_progress(runs: Sequence[Run[Any]]) -> list[tuple[str, pd.DataFrame]]:
    """What each run is called beside the others, by its folder too where a method comes twice, and its progress.

    Raises: RunFolderError if one has not ended or has no solver calls; InvalidInput if their spaces or data differ.
    """
    kinds = {(run.config.space, run.manifest["data_checksum"]) for run in runs}
    if len(kinds) > 1:
        named = "; ".join(f"{run.folder}: {run.config.space} on {run.config.data.name}" for run in runs)
        raise InvalidInput(f"expected runs on one space and the same data, got {named}; compare those that share both")
    methods = [run.config.method for run in runs]
    return [
        (method if methods.count(method) == 1 else f"{method}, {run.folder.name}", _progress(run))
        for method, run in zip(methods, runs, strict=True)
    ]


def _progress(run: Run[Any]) -> pd.DataFrame:
    """The progress of a run that has ended, all repeats together."""
    progress_of = recipe_of(run).progress
    if progress_of is None:
        raise RunFolderError(f"{run.folder} holds no solver calls to compare: it selects no feature map")
    if not run.folder.exists(FOUND):
        raise RunFolderError(
            f"{run.folder} has not ended: its solver calls cannot be compared yet; continue it with "
            f"'archray resume {run.folder}'"
        )
    return progress_of(run)
