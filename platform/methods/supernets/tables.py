"""The search seeds of a run: the tables of their supernets, the lines that figures draw of each, what each found.

Accuracies are fractions; NaN where there is none. The curves of the search have `seed` and `shared_accuracy`, too.
"""

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
from archray.platform.report.texts import texts_of
from archray.platform.run.run import Run

_text = texts_of(__package__)
FOUND_CELLS = "found.parquet"  # of the search, a row per search seed; see `stages.write_found`
ENTROPIES = "entropies.parquet"  # of the search; see `stages.entropy_table`
SCORES = "scores.parquet"  # of the search: `trial_id`, `seed`, and what `score_with_shared_weights` says
SELECTED = "selected.parquet"  # of the selection; see `stages.selection_table`
ORDER = "in the order of their accuracy with shared weights"  # of `names_of`, in words

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
    architectures: list[object] = [] if cells.empty else cells["architecture"].reindex(value.index).tolist()
    selection = run.best.table("selection", SELECTED).get("architecture", ())
    return short_names(run, (*architectures, *selection, *shown_candidates(run)))


def supernets(run: Run[Any], table: pd.DataFrame) -> list[Supernet]:
    """The supernets that have rows in `table`, one of the run with `trial_id` and `seed`, in order."""
    trial_ids = chosen_trials(run)
    return [
        Supernet(seed_words(rows["seed"].iloc[0]), rows, trial in trial_ids)
        for trial, rows in table.groupby("trial_id", sort=False)
    ]


def chosen_trials(run: Run[Any]) -> set[object]:
    """The trial of every supernet that found the chosen architecture; of equals there are several."""
    cells = run.table("search", FOUND_CELLS)
    return set() if cells.empty else set(cells.loc[cells["architecture"] == run.architecture, "trial_id"])


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
        text = f"seed {net.seed}{', found the chosen one' if net.chosen else ''}\n"
        text += f"{significant(values[last])} in epoch {rows['epoch'][last]:.0f}"
        tell_line(axes, rows["epoch"].tolist(), values.tolist(), text)
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
    outcomes = outcomes_of(run)
    rows = []
    for i, row in enumerate(cells.to_dict("records")):
        name = row["architecture"] if isinstance(row["architecture"], str) else None
        accuracies = [_SHARED.bare(value[i]), *([_MIXTURE.bare(mixture[i])] if mixed else [])]
        outcome = row["failure"] or outcomes.get(name, "")
        rows.append((names.of(name), *accuracies, outcome, seed_words(row["seed"])))
    marked = cells.index[(cells["architecture"] == run.architecture) & cells["failure"].isna()]
    seeds = table(
        columns,
        rows,
        label="What each search seed found",
        marked=int(marked[0]) if len(marked) else None,
        faint=frozenset(cells.index[cells["failure"].notna()]),
    )
    architectures = cells.loc[cells["failure"].isna(), "architecture"].dropna()
    text = _text(
        "found_cells",
        searches=len(cells),
        failures=int(cells["failure"].notna().sum()),
        architectures=len(architectures),
        distinct=architectures.nunique(),
        mixed=mixed,
    )
    return Section("found-cells", "What each seed found", paragraphs([text]) + seeds)


def outcomes_of(run: Run[Any]) -> dict[str | None, str]:
    """What became of an architecture in the selection, in words, or that it was `chosen`."""
    outcomes: dict[str | None, str] = {}
    selection = run.table("selection", SELECTED)
    if not selection.empty:
        kept, epochs, reasons = flags(selection, "kept"), numbers(selection, "epochs"), failures(selection)
        for i, name in enumerate(selection["architecture"]):
            if reasons[i]:
                outcomes[name] = "failed in the selection"
            elif kept[i]:
                outcomes[name] = "trained to the end"
            else:
                outcomes[name] = "dropped" if math.isnan(epochs[i]) else f"dropped after epoch {epochs[i]:.0f}"
    if run.architecture is not None:
        outcomes[run.architecture] = "chosen"
    return outcomes
