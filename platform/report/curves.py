"""Training curves: every trial of the search, the final trainings and the random architectures, by epoch."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.supernets.search_seeds import chosen_trials
from archray.platform.report.plot import FOUND, RANDOM, TRIAL, Size, plot
from archray.platform.report.quantity import Quantity, count
from archray.platform.report.section import Section, figure
from archray.platform.report.view import RunView, numbers

_IN_FULL = "final and random"  # trainings on the final schedule
_ROWS = ("validation_accuracy", "train_loss")
_STAGES = {"search": "search", "selection": _IN_FULL, "final": _IN_FULL, "baseline": _IN_FULL}
_THIN = 40  # with more curves than this in one panel, the lines are drawn lighter


def curves_section(view: RunView) -> Section | None:
    """A panel per metric and stage. Nothing if no curve has a finite value."""
    frame = view.curves
    if frame.empty or "epoch" not in frame or "trial_id" not in frame:
        return None
    metrics = [name for name in _ROWS if numbers(frame, name).notna().any()]
    if not metrics:
        return None
    frame = frame.assign(stage=frame.get("stage", "search"))
    frame = frame.assign(found=_found(view, frame))
    panels = [name for name in ("search", _IN_FULL) if (frame["stage"].map(_panel) == name).any()]

    def draw(canvas: Figure, narrow: bool) -> None:
        rows, columns = (len(metrics) * len(panels), 1) if narrow else (len(metrics), len(panels))
        grid = canvas.subplots(rows, columns, squeeze=False, sharey="none" if narrow else "row")
        for i, metric in enumerate(metrics):
            for j, panel in enumerate(panels):
                axes = grid[i * len(panels) + j, 0] if narrow else grid[i, j]
                _draw_panel(axes, frame[frame["stage"].map(_panel) == panel], metric)
                if narrow or i == 0:
                    name = (
                        f"selection, {panel}" if panel == _IN_FULL and (frame["stage"] == "selection").any() else panel
                    )
                    axes.set_title(name if not narrow else f"{name}: {Quantity.of(metric).label}")
                if narrow or i == len(metrics) - 1:
                    axes.set_xlabel("epoch")
                axes.set_ylabel(Quantity.of(metric).axis if not narrow else Quantity.of(metric).unit or "loss")
        handles = _legend(frame, view)
        canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))

    trials = frame["trial_id"].nunique()
    drawing = plot(
        "curves",
        draw,
        description=f"Training curves of {count(trials, 'training')} by epoch.",
        wide=Size(760, 70 + 200 * len(metrics)),
        narrow=Size(350, 60 + 200 * len(metrics) * len(panels)),
    )
    return Section("curves", "Training curves", figure(drawing, _caption(frame, view)))


def _panel(stage: object) -> str:
    return _STAGES.get(str(stage), "search")


def _found(view: RunView, frame: pd.DataFrame) -> pd.Series:
    """Which rows are of the found architecture, or of a supernet that found it."""
    none = pd.Series(False, index=frame.index)
    own = frame["architecture"] == view.architecture if view.architecture and "architecture" in frame else none
    if view.found.empty:
        return own
    chosen = {trial for _, trial in chosen_trials(view)}
    return frame["trial_id"].isin(chosen).where(frame["stage"] == "search", own)


def _draw_panel(axes: Axes, frame: pd.DataFrame, metric: str) -> None:
    quantity = Quantity.of(metric)
    groups = list(frame.groupby("trial_id", sort=False))
    for _, curve in sorted(groups, key=lambda group: bool(group[1]["found"].iloc[0])):
        curve = curve.sort_values("epoch")
        values = numbers(curve, metric) * quantity.factor
        if not values.notna().any():
            continue
        colour, width = _look(curve)
        axes.plot(
            numbers(curve, "epoch"),
            values,
            color=colour,
            linewidth=width,
            marker="o" if values.notna().sum() == 1 else None,
            markersize=4,
            alpha=0.95 if width > 1.5 else 0.3 if len(groups) > _THIN else 0.6,
        )
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    if metric == "train_loss":
        axes.set_ylim(bottom=0)


def _look(curve: pd.DataFrame) -> tuple[str, float]:
    stage = str(curve["stage"].iloc[0])
    if stage == "baseline":
        return RANDOM, 1.2
    if stage == "final" or curve["found"].iloc[0]:
        return FOUND, 2.2
    return TRIAL, 1.2


def _legend(frame: pd.DataFrame, view: RunView) -> list[Line2D]:
    stages = set(frame["stage"].astype(str))
    handles = [Line2D([], [], color=FOUND, linewidth=2.2, label="found")]
    if stages & {"search", "selection"}:
        handles.append(
            Line2D(
                [],
                [],
                color=TRIAL,
                linewidth=1.4,
                label="other supernets" if len(view.found) and "selection" not in stages else "other trials",
            )
        )
    if "baseline" in stages:
        handles.append(Line2D([], [], color=RANDOM, linewidth=1.4, label="random"))
    return handles


def _caption(frame: pd.DataFrame, view: RunView) -> str:
    supernets = not view.found.empty
    kinds = frame.drop_duplicates("trial_id")["stage"].astype(str).value_counts()
    named = {
        "search": ("of a supernet" if kinds.get("search") == 1 else "of supernets") if supernets else "of the search",
        "selection": "in the selection",
        "final": "of the ensemble's members in full" if view.members else "of the found architecture in full",
        "baseline": "of random architectures",
    }
    parts = [f"{kinds[stage]} {words}" for stage, words in named.items() if stage in kinds]
    text = f"One line per training: {', '.join(parts)}." if parts else "One line per training."
    if supernets and "search" in kinds:
        text += (
            " A supernet holds all architectures of the space, which share its weights; its accuracy is not that of "
            "one architecture trained alone, and blue is the supernet that found what was chosen."
        )
    elif "search" in kinds and len(kinds) > 1:
        text += (
            " A training of the search has a learning rate schedule of its own, shorter than the final one: "
            "the two columns are not one curve continued."
        )
    broken = sum(_broken(curve) for _, curve in frame.groupby("trial_id"))
    if broken:
        text += f" {count(broken, 'curve')} ended in a loss that is not finite."
    return text


def _broken(curve: pd.DataFrame) -> bool:
    return bool("train_loss" in curve and numbers(curve.sort_values("epoch"), "train_loss").isna().iloc[-1])
