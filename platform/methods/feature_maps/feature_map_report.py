"""What a search for a feature map shows: its report, and its solver calls in the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from archray.platform.methods.feature_maps.correlation import correlation_section
from archray.platform.methods.feature_maps.found_map import TEST, cards, facts, lead, map_repeats_section
from archray.platform.methods.feature_maps.oracle_error import progress_of
from archray.platform.methods.feature_maps.solver_calls import seconds_section, solver_calls_section
from archray.platform.report.cell import cell_section
from archray.platform.report.failures import Tables, failed, failures_section
from archray.platform.report.header import Headline
from archray.platform.report.manifest_section import manifest_section
from archray.platform.report.page import MakeSection
from archray.platform.report.rounds import Halving
from archray.platform.run.layout import ROUNDS, TRIALS
from archray.platform.run.run import Run

_TABLES: Tables = {"rounds of halving": ("search", ROUNDS), "final training": ("final", TRIALS)}
_LINES = 20  # solver calls that are printed one by one

rounds_section = Halving("Feature map", "solve", "Features", ending="The last solve is of the winner alone.").section
SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    map_repeats_section,
    correlation_section,
    solver_calls_section,
    seconds_section,
    rounds_section,
    failures_section(_TABLES),
    manifest_section,
)


def headline(run: Run[Any]) -> Headline:
    """Test error, solver calls and seconds; of repeats, their means, and what the best of them found."""
    architecture, progress = run.best.architecture, progress_of(run)
    if progress.empty or architecture is None:
        text = "The run found no feature map; the failures below say why."
    else:
        text = lead(run, progress)
    return Headline(
        thing="feature map",
        lead=text,
        names=() if architecture is None else (architecture,),
        cards=() if progress.empty else cards(progress),
        facts={**({} if progress.empty else facts(progress)), "Failures": failed(run, _TABLES)},
    )


def show(run: Run[Any], console: Console) -> None:
    """The solver calls of the search: one line each, or one for each that was better than those before."""
    progress = progress_of(run)
    if progress.empty:
        return
    better = progress[progress["architecture"] != progress["architecture"].shift()]
    table = Table("solver calls", "seconds", "candidates", "dimension", "test error", box=None)
    table.add_column("best so far", overflow="fold")
    for row in (progress if len(progress) <= _LINES else better).to_dict("records"):
        table.add_row(
            str(row["calls"]),
            f"{row['seconds']:.1f}",
            str(row["candidates"]),
            f"{row['dimension']:,}",
            TEST.show(row["test_error"]),
            row["architecture"] or "-",
        )
    console.print(table)
