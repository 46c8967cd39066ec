"""What each search seed found, and which of it was chosen."""

from __future__ import annotations

import math

import pandas as pd

from archray.platform.methods.supernets.search_seeds import seed_columns, several_repeats, whole, with_repeat
from archray.platform.report.quantity import MISSING, Quantity, count
from archray.platform.report.section import Column, Section, paragraphs, table
from archray.platform.report.view import RunView, failures, flags, numbers

_ACCURACY = Quantity.of("validation_accuracy")


def found_cells_section(view: RunView) -> Section | None:
    """A row per search seed. Nothing for a run that trains no supernet."""
    if view.found.empty or "architecture" not in view.found:
        return None
    frame = with_repeat(view.found)
    frame = frame.assign(failure=failures(frame))
    several = several_repeats(frame)
    mixture, value = numbers(frame, "validation_accuracy"), numbers(frame, "value")
    columns = [*seed_columns(several), Column("Shared weights (%)", "number")]
    columns += [Column("Mixture (%)", "number")] if mixture.notna().any() else []
    columns += [Column("Note"), Column("Architecture", "code")]
    fates = _fates(view)
    rows = []
    for i, row in enumerate(frame.to_dict("records")):
        name = row["architecture"] if isinstance(row["architecture"], str) else None
        note = row["failure"] or ("chosen" if name and name == view.architecture else fates.get((row["repeat"], name)))
        rows.append(
            (
                *([row["repeat"]] if several else []),
                whole(row.get("seed")),
                _ACCURACY.bare(value[i]),
                *([_ACCURACY.bare(mixture[i])] if mixture.notna().any() else []),
                note or "",
                name or MISSING,
            )
        )
    chosen = frame.index[(frame["architecture"] == view.architecture) & frame["failure"].isna()]
    text = _sentences(frame, several, mixed=bool(mixture.notna().any()))
    return Section(
        "found-cells",
        "What each seed found",
        paragraphs([text])
        + table(
            columns,
            rows,
            label="What each search seed found",
            marked=int(chosen[0]) if len(chosen) else None,
            faint=frozenset(frame.index[frame["failure"].notna()]),
        ),
    )


def _fates(view: RunView) -> dict[tuple[object, object], str]:
    """What the selection did with an architecture of a repeat, in words."""
    if view.selection.empty or "architecture" not in view.selection:
        return {}
    frame = with_repeat(view.selection)
    kept, epochs, reasons = flags(frame, "kept"), numbers(frame, "epochs"), failures(frame)
    fates = {}
    for i, row in enumerate(frame.to_dict("records")):
        if reasons[i]:
            words = "failed in the selection"
        elif kept[i]:
            words = "trained to the end"
        else:
            words = "dropped" if math.isnan(epochs[i]) else f"dropped after epoch {epochs[i]:.0f}"
        fates[row["repeat"], row["architecture"]] = words
    return fates


def _sentences(found: pd.DataFrame, several: bool, *, mixed: bool) -> str:
    names = found.loc[found["failure"].isna(), "architecture"].dropna()
    text = f"{count(len(found), 'search', 'searches')}"
    if len(found) > 1:
        text += f", each from a seed of its own{', of all repeats' if several else ''},"
    text += f" found {count(names.nunique(), 'distinct architecture')}."
    if len(names) > 1 and names.nunique() == 1:
        text += " There was nothing to select from."
    failed = int(found["failure"].notna().sum())
    text += f" {count(failed, 'search', 'searches')} failed." if failed else ""
    text += " “Shared weights” is an architecture's validation accuracy with the weights of its supernet"
    return text + ("; “mixture” that of all operations together." if mixed else ".")
