"""The supernets of a run, one per search seed: the rows of each, and which of them found what was chosen."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.report.plot import FOUND, TRIAL
from archray.platform.report.quantity import MISSING, as_float
from archray.platform.report.section import Column
from archray.platform.report.view import RunView, numbers


@dataclass(frozen=True)
class Supernet:
    """One search seed of one repeat.

    Args:
        seed: as it is shown.
        rows: of some frame of the view, those of this supernet.
        chosen: whether it found the architecture that the run chose.
    """

    repeat: object
    seed: str
    rows: pd.DataFrame
    chosen: bool


def supernets(view: RunView, frame: pd.DataFrame) -> list[Supernet]:
    """The supernets that have rows in `frame`, a frame of the view with `trial_id`, in order."""
    if frame.empty or "trial_id" not in frame:
        return []
    told = with_repeat(frame)
    chosen = chosen_trials(view)
    return [
        Supernet(repeat, seed_words(rows), rows, (repeat, trial) in chosen)
        for (repeat, trial), rows in told.groupby(["repeat", "trial_id"], sort=False)
    ]


def chosen_trials(view: RunView) -> set[tuple[object, object]]:
    """Repeat and trial of every supernet that found the chosen architecture; of equals there are several."""
    if view.architecture is None or not {"trial_id", "architecture"} <= set(view.found.columns):
        return set()
    found = with_repeat(view.found)
    found = found[found["architecture"] == view.architecture]
    return set(zip(found["repeat"], found["trial_id"], strict=True))


def with_repeat(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with a column `repeat`: 0 where it has none."""
    return frame if "repeat" in frame else frame.assign(repeat=0)


def several_repeats(frame: pd.DataFrame) -> bool:
    """Whether the rows are of more than one repeat of the run."""
    return bool(with_repeat(frame)["repeat"].nunique() > 1)


def seed_words(rows: pd.DataFrame) -> str:
    """The seed of the rows, which have one: `3`; a dash where it is not told."""
    return whole(rows["seed"].iloc[0]) if "seed" in rows else MISSING


def whole(seed: object) -> str:
    """A seed as its user wrote it, without blanks: `2968811710`."""
    number = as_float(seed)
    return MISSING if number != number else f"{number:.0f}"


def seed_columns(several: bool) -> list[Column]:
    """The columns that name a search: its seed, and its repeat where there are several."""
    return [*([Column("Repeat", "number")] if several else []), Column("Seed", "number")]


def by_epoch(axes: Axes, nets: list[Supernet], metric: str, factor: float = 1.0) -> None:
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
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))


def seed_legend(nets: list[Supernet]) -> list[Line2D]:
    """Handles of a legend: the search that found what was chosen, and the others."""
    handles = []
    if any(net.chosen for net in nets):
        handles.append(Line2D([], [], color=FOUND, linewidth=2.2, label="found the chosen one"))
    if not all(net.chosen for net in nets):
        handles.append(Line2D([], [], color=TRIAL, linewidth=1.3, label="other seeds" if handles else "search seeds"))
    return handles
