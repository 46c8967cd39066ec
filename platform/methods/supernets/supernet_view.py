"""What a search by a supernet shows: its report's view, and the architectures that were found in the terminal."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from rich.console import Console

from archray.files import Folder
from archray.platform.methods.report_stage import percent, read_table, run_view
from archray.platform.methods.supernets.drop_selection import SELECTED
from archray.platform.methods.supernets.supernet_config import supernet_config
from archray.platform.methods.supernets.supernet_search import ENTROPIES, FOUND
from archray.platform.report.view import RunView
from archray.platform.run.run import Run


def supernet_view(run: Run) -> RunView:
    """What the report shows; of a run that has not ended, what there is."""
    search, selection = run.folder / "search", run.folder / "selection"
    return replace(
        run_view(run),
        mode=supernet_config(run).mode,
        found=_table(search, FOUND),
        entropies=_table(search, ENTROPIES),
        scores=_table(search, "scores.parquet"),
        rounds=_table(search, "rounds.parquet"),
        selection=_table(selection, SELECTED),
        selection_curves=_table(selection, "curves.parquet"),
    )


def _table(stage: Folder, name: str) -> pd.DataFrame:
    return read_table(stage, name).assign(repeat=0)


def print_found(run: Run, console: Console) -> None:
    """What every search seed found, best first, and how far it was trained."""
    found = read_table(run.folder / "search", FOUND)
    if found.empty:
        return
    selected = read_table(run.folder / "selection", SELECTED)
    epochs = {} if selected.empty else dict(zip(selected["architecture"], selected["epochs"], strict=True))
    console.print("found by the search seeds (validation accuracy with shared weights), best first:")
    for row in found.sort_values("value", ascending=False).to_dict("records"):
        if pd.isna(row["value"]):
            console.print(f"    failed: {row['failure']}", soft_wrap=True, highlight=False, markup=False)
            continue
        trained = f", {epochs[row['architecture']]:.0f} epochs on its own" if row["architecture"] in epochs else ""
        console.print(
            f"    {percent(row['value']):>8}  {row['architecture']}{trained}",
            soft_wrap=True,
            highlight=False,
            markup=False,
        )
