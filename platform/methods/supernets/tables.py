"""The search seeds of a run: the tables of their supernets, the lines that figures draw of each, what each found.

Accuracies are fractions; NaN where there is none. The curves of the search have `seed` and `shared_accuracy`, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archray.platform.quantities import MISSING, as_float, quantity_of, significant
from archray.platform.report.figures import FOUND, TRIAL, few_ticks, tell_line
from archray.platform.report.rounds import shown_candidates
from archray.platform.report.section import (
    Column,
    Section,
    ShortNames,
    failures,
    flags,
    numbers,
    numeric,
    paragraphs,
    short_names,
    table,
)
from archray.platform.run.run import Run
from archray.plurals import count

FOUND_CELLS = "found.parquet"  # of the search, a row per search seed; see `supernet_search.write_found`
ENTROPIES = "entropies.parquet"  # of the search; see `supernet_search.entropy_table`
SCORES = "scores.parquet"  # of the search: `trial_id`, `seed`, and what `score_with_shared_weights` says
SELECTED = "selected.parquet"  # of the selection; see `drop_selection.selection_table`

_SHARED, _MIXTURE = quantity_of("shared_accuracy"), quantity_of("mixture_accuracy")


@dataclass(frozen=True)
class Supernet:
    """One search seed of a run, and its rows of some table."""

    seed: str  # as it is shown
    rows: pd.DataFrame
    chosen: bool  # whether it found the architecture that the run chose


def names_of(run: Run[Any]) -> ShortNames:
    """The names of what was chosen, of what the search seeds found, by value, and of the candidates of rounds."""
    cells = run.best.table("search", FOUND_CELLS)
    value = numbers(cells, "shared_accuracy").sort_values(ascending=False, kind="stable")
    found: list[object] = [] if cells.empty else cells["architecture"].reindex(value.index).tolist()
    selected = run.best.table("selection", SELECTED).get("architecture", ())
    return short_names(run, (*found, *selected, *shown_candidates(run)))


def supernets(run: Run[Any], table: pd.DataFrame) -> list[Supernet]:
    """The supernets that have rows in `table`, one of the run with `trial_id` and `seed`, in order."""
    chosen = chosen_trials(run)
    return [
        Supernet(seed_words(rows["seed"].iloc[0]), rows, trial in chosen)
        for trial, rows in table.groupby("trial_id", sort=False)
    ]


def chosen_trials(run: Run[Any]) -> set[object]:
    """The trial of every supernet that found the chosen architecture; of equals there are several."""
    found = run.table("search", FOUND_CELLS)
    return set() if found.empty else set(found.loc[found["architecture"] == run.architecture, "trial_id"])


def seed_words(seed: object) -> str:
    """A seed as its user wrote it, without blanks: `2968811710`; a dash where it is not known."""
    number = as_float(seed)
    return MISSING if number != number else f"{number:.0f}"


def by_epoch(axes: Axes, nets: Sequence[Supernet], metric: str, factor: float = 1.0) -> None:
    """A line per supernet of its column `metric` over `epoch`; those that found what was chosen on top, in blue."""
    for net in sorted(nets, key=lambda net: net.chosen):
        rows = net.rows.assign(epoch=numbers(net.rows, "epoch")).sort_values("epoch")
        values = numbers(rows, metric) * factor
        if not values.notna().any():
            continue
        axes.plot(
            rows["epoch"],
            values,
            color=FOUND if net.chosen else TRIAL,
            linewidth=2.2 if net.chosen else 1.3,
            alpha=0.95 if net.chosen else 0.7,
            marker="o" if values.notna().sum() == 1 else None,
            markersize=4,
            clip_on=False,
            zorder=3,
        )
        last = values.last_valid_index()
        told = f"seed {net.seed}{', found the chosen one' if net.chosen else ''}\n"
        tell_line(
            axes,
            rows["epoch"].tolist(),
            values.tolist(),
            told + f"{significant(values[last])} in epoch {rows['epoch'][last]:.0f}",
        )
    few_ticks(axes, 6, integer=True)


def draw_seed_legend(canvas: Figure, nets: Sequence[Supernet]) -> None:
    """The legend above the panels: the search that found what was chosen, and the others."""
    handles = []
    if any(net.chosen for net in nets):
        handles.append(Line2D([], [], color=FOUND, linewidth=2.2, label="found the chosen one"))
    if not all(net.chosen for net in nets):
        handles.append(Line2D([], [], color=TRIAL, linewidth=1.3, label="other seeds" if handles else "search seeds"))
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def found_cells_section(run: Run[Any]) -> Section | None:
    """A row per search seed. Nothing for a run that trains no supernet."""
    names, run = names_of(run), run.best
    cells = run.table("search", FOUND_CELLS)
    if cells.empty:
        return None
    cells = cells.assign(failure=failures(cells), order=numbers(cells, "shared_accuracy"))
    cells = cells.sort_values("order", ascending=False, kind="stable", ignore_index=True)  # what has none comes last
    mixture, value = numbers(cells, "mixture_accuracy"), numbers(cells, "shared_accuracy")
    mixed = bool(mixture.notna().any())
    columns = [Column("Architecture", "name"), Column("Shared weights (%)", "number", "descending")]
    columns += [*numeric(*(["Mixture (%)"] if mixed else [])), Column("Outcome"), Column("Seed", "number")]
    chosen, known = run.architecture, fates(run)
    rows = []
    for i, row in enumerate(cells.to_dict("records")):
        name = row["architecture"] if isinstance(row["architecture"], str) else None
        note = row["failure"] or ("chosen" if name and name == chosen else known.get(name))
        rows.append(
            (
                names.of(name),
                _SHARED.bare(value[i]),
                *([_MIXTURE.bare(mixture[i])] if mixed else []),
                note or "",
                seed_words(row["seed"]),
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


def fates(run: Run[Any]) -> dict[str | None, str]:
    """What the selection did with an architecture, in words."""
    selected = run.table("selection", SELECTED)
    if selected.empty:
        return {}
    kept, epochs, reasons = flags(selected, "kept"), numbers(selected, "epochs"), failures(selected)
    words_of: dict[str | None, str] = {}
    for i, name in enumerate(selected["architecture"]):
        if reasons[i]:
            words = "failed in the selection"
        elif kept[i]:
            words = "trained to the end"
        else:
            words = "dropped" if math.isnan(epochs[i]) else f"dropped after epoch {epochs[i]:.0f}"
        words_of[name] = words
    return words_of


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
