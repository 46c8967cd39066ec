"""What each search seed found, and which of it was chosen."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from archray.platform.methods.supernets.search_seeds import seed_words
from archray.platform.methods.supernets.supernet_tables import FOUND_CELLS, SELECTED
from archray.platform.report.quantity import MISSING, Quantity, count, failures, flags, numbers
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.run.run import Run

_ACCURACY = Quantity.of("validation_accuracy")


def found_cells_section(run: Run[Any]) -> Section | None:
    """A row per search seed. Nothing for a run that trains no supernet."""
    run = run.best
    cells = run.table("search", FOUND_CELLS)
    if cells.empty or "architecture" not in cells:
        return None
    cells = cells.assign(failure=failures(cells))
    mixture, value = numbers(cells, "validation_accuracy"), numbers(cells, "value")
    mixed = bool(mixture.notna().any())
    columns = numeric("Seed", "Shared weights (%)", *(["Mixture (%)"] if mixed else []))
    columns += [Column("Note"), Column("Architecture", "code")]
    chosen, fates = run.architecture, _fates(run)
    rows = []
    for i, row in enumerate(cells.to_dict("records")):
        name = row["architecture"] if isinstance(row["architecture"], str) else None
        note = row["failure"] or ("chosen" if name and name == chosen else fates.get(name))
        rows.append(
            (
                seed_words(row.get("seed")),
                _ACCURACY.bare(value[i]),
                *([_ACCURACY.bare(mixture[i])] if mixed else []),
                note or "",
                name or MISSING,
            )
        )
    marked = cells.index[(cells["architecture"] == chosen) & cells["failure"].isna()]
    seeds = table(
        columns,
        rows,
        label="What each search seed found",
        marked=int(marked[0]) if len(marked) else None,
        faint=frozenset(cells.index[cells["failure"].notna()]),
    )
    return Section("found-cells", "What each seed found", paragraphs([_sentences(cells, mixed=mixed)]) + seeds)


def _fates(run: Run[Any]) -> dict[str | None, str]:
    """What the selection did with an architecture, in words."""
    selected = run.table("selection", SELECTED)
    if selected.empty or "architecture" not in selected:
        return {}
    kept, epochs, reasons = flags(selected, "kept"), numbers(selected, "epochs"), failures(selected)
    fates = {}
    for i, name in enumerate(selected["architecture"]):
        if reasons[i]:
            words = "failed in the selection"
        elif kept[i]:
            words = "trained to the end"
        else:
            words = "dropped" if math.isnan(epochs[i]) else f"dropped after epoch {epochs[i]:.0f}"
        fates[name] = words
    return fates


def _sentences(cells: pd.DataFrame, *, mixed: bool) -> str:
    names = cells.loc[cells["failure"].isna(), "architecture"].dropna()
    text = f"{count(len(cells), 'search', 'searches')}"
    text += ", each from a seed of its own," if len(cells) > 1 else ""
    text += f" found {count(names.nunique(), 'distinct architecture')}."
    if len(names) > 1 and names.nunique() == 1:
        text += " There was nothing to select from."
    failed = int(cells["failure"].notna().sum())
    text += f" {count(failed, 'search', 'searches')} failed." if failed else ""
    text += " “Shared weights” is an architecture's validation accuracy with the weights of its supernet"
    return text + ("; “mixture” that of all operations together." if mixed else ".")
