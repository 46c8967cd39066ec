"""What a search for a feature map shows: its report's view, and its rounds or solves in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
from rich.console import Console
from rich.table import Table

from archray.platform.methods.feature_maps.correlation import correlation_section
from archray.platform.methods.feature_maps.feature_map_config import feature_map_config
from archray.platform.methods.feature_maps.found_map import map_repeats_section
from archray.platform.methods.feature_maps.solve_stages import CORRELATION
from archray.platform.methods.feature_maps.solve_trials import METRIC
from archray.platform.methods.feature_maps.solver_calls import seconds_section, solver_calls_section
from archray.platform.methods.report_stage import PROGRESS, percent, read_table, run_view
from archray.platform.report.cell import cell_section
from archray.platform.report.failures import failures_section
from archray.platform.report.manifest_section import manifest_section
from archray.platform.report.page import MakeSection
from archray.platform.report.rounds import rounds_section
from archray.platform.report.view import RunView
from archray.platform.run.run import Run

FEATURE_MAP_SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    map_repeats_section,
    correlation_section,
    solver_calls_section,
    seconds_section,
    rounds_section,
    failures_section,
    manifest_section,
)


def feature_map_view(run: Run, progress_of: Sequence[str]) -> RunView:
    """What the report shows; of a run that has not ended, what there is.

    progress_of: the stages that write the progress; the first one that has is taken.
    """
    tables = [read_table(run.folder / stage, PROGRESS) for stage in progress_of]
    progress = next((table for table in tables if not table.empty), pd.DataFrame())
    correlation = read_table(run.folder / "correlation", CORRELATION)
    rounds = read_table(run.folder / "search", "rounds.parquet")
    return replace(
        run_view(run),
        metric=METRIC,
        mode=feature_map_config(run).mode,
        progress=progress.assign(repeat=0),
        correlation=correlation.assign(repeat=0),
        rounds=rounds.assign(repeat=0),
    )


def print_feature_map(run: Run, console: Console) -> None:
    """The solves of the search: one line a round, or one for each solve that was better than those before."""
    stages = ("oracle", "search")
    progress = next((t for t in (read_table(run.folder / s, PROGRESS) for s in stages) if not t.empty), None)
    if progress is None:
        return
    better = progress[progress["architecture"] != progress["architecture"].shift()]
    shown = progress if len(progress) <= 20 else better
    table = Table("solver calls", "seconds", "candidates", "dimension", "test error", box=None)
    table.add_column("best so far", overflow="fold")
    for row in shown.to_dict("records"):
        table.add_row(
            str(row["calls"]),
            f"{row['seconds']:.1f}",
            str(row["candidates"]),
            f"{row['dimension']:,}",
            percent(row["test_error"]),
            row["architecture"] or "-",
        )
    console.print(table)
