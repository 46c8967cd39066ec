"""The search seeds of a run: their tables, supernets, architectures, and the outcomes of the selection.

Accuracies are fractions; NaN if missing. The curves of the search also have `seed` and `shared_accuracy`.
"""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from archray.platform.quantities import MISSING, as_float
from archray.platform.report.rounds import shown_candidates
from archray.platform.report.section import ShortNames, failures, flags, numbers, short_names
from archray.platform.run.run import Run

FOUND_CELLS = "found.parquet"  # of the search, a row per search seed; see `stages.write_found`
ENTROPIES = "entropies.parquet"  # of the search; see `stages.entropy_table`
SCORES = "scores.parquet"  # of the search: `trial_id`, `seed`, and the columns of `score_with_shared_weights`
SELECTED = "selected.parquet"  # of the selection; see `stages.selection_table`
ORDER = "in the order of their accuracy with shared weights"  # the order of `names_of`


@dataclass(frozen=True)
class Supernet:
    """One search seed of a run, and its rows of a table."""

    seed: str  # as displayed
    rows: pd.DataFrame
    chosen: bool  # whether it found the architecture that the run selected


def names_of(run: Run[Any]) -> ShortNames:
    """Returns short names: of the selected architecture, of the search seeds by value, and of candidates of rounds."""
    cells = run.best.table("search", FOUND_CELLS)
    value = numbers(cells, "shared_accuracy").sort_values(ascending=False, kind="stable")
    architectures: list[object] = [] if cells.empty else cells["architecture"].reindex(value.index).tolist()
    selection = run.best.table("selection", SELECTED).get("architecture", ())
    return short_names(run, (*architectures, *selection, *shown_candidates(run)))


def supernets(run: Run[Any], table: pd.DataFrame) -> list[Supernet]:
    """The supernets with rows in `table`, a table of the run with `trial_id` and `seed`, in order."""
    trial_ids = chosen_trials(run)
    return [
        Supernet(seed_words(rows["seed"].iloc[0]), rows, trial in trial_ids)
        for trial, rows in table.groupby("trial_id", sort=False)
    ]


def chosen_trials(run: Run[Any]) -> set[object]:
    """The trials of the supernets that found the selected architecture."""
    cells = run.table("search", FOUND_CELLS)
    return set() if cells.empty else set(cells.loc[cells["architecture"] == run.architecture, "trial_id"])


def seed_words(seed: object) -> str:
    """A seed without spaces between its digits: `2968811710`; a dash if it is missing."""
    number = as_float(seed)
    return MISSING if number != number else f"{number:.0f}"


def outcomes_of(run: Run[Any]) -> dict[str | None, str]:
    """The outcome of each architecture of the selection in words; `chosen` for the selected one."""
    outcomes: dict[str | None, str] = {}
    selection = run.table("selection", SELECTED)
    if not selection.empty:
        survivors, epochs, reasons = flags(selection, "kept"), numbers(selection, "epochs"), failures(selection)
        for i, name in enumerate(selection["architecture"]):
            if reasons[i]:
                outcomes[name] = "failed in the selection"
            elif survivors[i]:
                outcomes[name] = "trained to the end"
            else:
                outcomes[name] = "dropped" if math.isnan(epochs[i]) else f"dropped after epoch {epochs[i]:.0f}"
    if run.architecture is not None:
        outcomes[run.architecture] = "chosen"
    return outcomes
