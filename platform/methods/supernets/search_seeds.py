"""The supernets of a run, one per search seed: the rows of each, and which of them found what was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archray.platform.methods.supernets.supernet_tables import FOUND_CELLS
from archray.platform.report.figures import FOUND, TRIAL, few_ticks
from archray.platform.report.quantity import MISSING, as_float, numbers
from archray.platform.run.run import Run


@dataclass(frozen=True)
class Supernet:
    """One search seed of a run.

    Args:
        seed: as it is shown.
        rows: of some table of the run, those of this supernet.
        chosen: whether it found the architecture that the run chose.
    """

    seed: str
    rows: pd.DataFrame
    chosen: bool


def supernets(run: Run[Any], table: pd.DataFrame) -> list[Supernet]:
    """The supernets that have rows in `table`, a table of the run with `trial_id`, in order."""
    if table.empty or "trial_id" not in table:
        return []
    chosen = chosen_trials(run)
    return [
        Supernet(seed_words(rows["seed"].iloc[0]) if "seed" in rows else MISSING, rows, trial in chosen)
        for trial, rows in table.groupby("trial_id", sort=False)
    ]


def chosen_trials(run: Run[Any]) -> set[object]:
    """The trial of every supernet that found the chosen architecture; of equals there are several."""
    found, chosen = run.table("search", FOUND_CELLS), run.architecture
    if chosen is None or not {"trial_id", "architecture"} <= set(found.columns):
        return set()
    return set(found.loc[found["architecture"] == chosen, "trial_id"])


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
    few_ticks(axes, 6, integer=True)


def draw_seed_legend(canvas: Figure, nets: Sequence[Supernet]) -> None:
    """The legend above the panels: the search that found what was chosen, and the others."""
    handles = []
    if any(net.chosen for net in nets):
        handles.append(Line2D([], [], color=FOUND, linewidth=2.2, label="found the chosen one"))
    if not all(net.chosen for net in nets):
        handles.append(Line2D([], [], color=TRIAL, linewidth=1.3, label="other seeds" if handles else "search seeds"))
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))
