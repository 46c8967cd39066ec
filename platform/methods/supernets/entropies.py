"""How far the mixture has decided: the entropy of the edges' weights by epoch. GAEA, Li et al. 2021, Figure 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.supernets.search_seeds import Supernet, by_epoch, seed_legend, several_repeats, supernets
from archray.platform.report.plot import MUTED, Size, plot
from archray.platform.report.quantity import count
from archray.platform.report.section import Section, figure
from archray.platform.report.view import RunView, numbers

_WIDEST = 3  # panels in a row
_UNIFORM = 0.01  # operations that exp(entropy) may be from a whole number, for weights that are still uniform


@dataclass(frozen=True)
class Panel:
    """The edges of one group, or of all.

    Args:
        title: the group's name, or `all edges`.
        nets: a supernet per search seed; its rows hold `epoch` and `entropy`, the mean over the panel's edges.
        uniform: the mean entropy of uniform weights on these edges, in nats; NaN if it is not known.
        operations: that the edges weigh, distinct numbers in order; empty if they are not known.
    """

    title: str
    nets: list[Supernet]
    uniform: float
    operations: tuple[int, ...]


def entropies_section(view: RunView) -> Section | None:
    """A panel for all edges, and one per group where there are several. Nothing without a finite entropy."""
    panels = entropy_panels(view)
    if not panels:
        return None
    nets = panels[0].nets

    def draw(canvas: Figure, narrow: bool) -> None:
        columns = 1 if narrow else _columns(panels)
        grid = canvas.subplots(math.ceil(len(panels) / columns), columns, squeeze=False, sharey=True)
        for place, axes in enumerate(grid.flat):
            if place >= len(panels):
                axes.set_visible(False)
                continue
            _draw_panel(axes, panels[place])
            axes.tick_params(labelleft=True)
            if narrow or place % columns == 0:
                axes.set_ylabel("entropy (nats)")
            if place + columns >= len(panels):
                axes.set_xlabel("epoch")
        handles = seed_legend(nets)
        canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))

    ends = entropies_at_the_end(nets)
    drawing = plot(
        "entropies",
        draw,
        description=(
            f"Mean entropy of the edges' weights by epoch, of {count(len(nets), 'search seed')}; "
            f"at the end {_span(ends)} nats."
        ),
        wide=Size(760, 60 + 230 * math.ceil(len(panels) / _columns(panels))),
        narrow=Size(350, 60 + 200 * len(panels)),
    )
    return Section("entropies", "Has the mixture decided?", figure(drawing, _caption(view, panels, ends)))


def entropy_panels(view: RunView) -> list[Panel]:
    """All edges first, then the groups in their order if there are several; empty without a finite entropy."""
    frame = view.entropies
    if not {"trial_id", "epoch", "entropy"} <= set(frame.columns):
        return []
    frame = frame.assign(entropy=numbers(frame, "entropy"), epoch=numbers(frame, "epoch"))
    frame = frame[frame["entropy"].notna() & frame["epoch"].notna()]
    frame = frame.assign(group=frame.get("group", ""))
    if frame.empty:
        return []
    groups = list(dict.fromkeys(frame["group"]))
    parts = [("all edges", frame)]
    parts += [(str(group), frame[frame["group"] == group]) for group in groups] if len(groups) > 1 else []
    return [Panel(title, _means(view, part), *uniform_entropy(part)) for title, part in parts]


def entropies_at_the_end(nets: Sequence[Supernet]) -> list[float]:
    """The mean entropy in the last epoch of any; supernets that did not come as far, which failed, have none."""
    last = max(float(net.rows["epoch"].max()) for net in nets)
    return [float(net.rows["entropy"].iloc[-1]) for net in nets if net.rows["epoch"].iloc[-1] == last]


def _means(view: RunView, frame: pd.DataFrame) -> list[Supernet]:
    """A supernet per search seed with a row per epoch: the mean over edges."""
    return [
        Supernet(net.repeat, net.seed, net.rows.groupby("epoch")["entropy"].mean().reset_index(), net.chosen)
        for net in supernets(view, frame)
    ]


def uniform_entropy(entropies: pd.DataFrame) -> tuple[float, tuple[int, ...]]:
    """The mean entropy of uniform weights, in nats, and the numbers of operations; NaN and () if not known.

    They are told by the column `operations`, or by a first epoch in which the weights of no edge have moved, as in
    searches that begin with some epochs for the supernet's weights alone.
    """
    first = entropies[entropies["epoch"] == entropies["epoch"].min()]
    operations = numbers(first, "operations")
    if not operations.notna().all():
        told = np.exp(first["entropy"])
        operations = told.round().where((told - told.round()).abs() < _UNIFORM)
    if not operations.notna().all() or (operations < 1).any():
        return math.nan, ()
    return float(np.log(operations).mean()), tuple(sorted({int(number) for number in operations}))


def _draw_panel(axes: Axes, panel: Panel) -> None:
    by_epoch(axes, panel.nets, "entropy")
    highest = max(float(net.rows["entropy"].max()) for net in panel.nets)
    if math.isfinite(panel.uniform):
        axes.axhline(panel.uniform, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        highest = max(highest, panel.uniform)
    axes.set_ylim(0, max(1.08 * highest, axes.get_ylim()[1] if highest else 0.1))
    axes.set_title(panel.title)


def _columns(panels: Sequence[Panel]) -> int:
    """Panels in a row: as few as give no more rows than the most that fit."""
    return math.ceil(len(panels) / math.ceil(len(panels) / _WIDEST))


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _caption(view: RunView, panels: list[Panel], ends: list[float]) -> str:
    whole = panels[0]
    text = (
        "The entropy of an edge's weights over its operations, in nats, averaged over the edges; a line per search "
        f"seed{' of every repeat' if several_repeats(view.entropies) else ''}."
    )
    if any(math.isfinite(panel.uniform) for panel in panels):
        text += " Dashed: uniform weights, no decision at all"
        if len(whole.operations) == 1:
            text += f" (log {whole.operations[0]} = {whole.uniform:.2f})"
        text += "."
    text += (
        " At zero every edge puts its whole weight on one operation: the mixture has decided, and discretisation "
        "loses nothing, except in a space where it drops edges too. "
        f"At the end of the search it is {_span(ends)}. As Figure 1 of Li et al. 2021."
    )
    return text
