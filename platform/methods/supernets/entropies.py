"""How far the mixture has decided: the entropy of the edges' weights by epoch. GAEA, Li et al. 2021, Figure 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.supernets.search_seeds import Supernet, by_epoch, draw_seed_legend, supernets
from archray.platform.methods.supernets.supernet_tables import ENTROPIES
from archray.platform.report.figures import MUTED, NothingToDraw, drawing, figure, set_height
from archray.platform.report.quantity import count, numbers
from archray.platform.report.section import Section, captioned
from archray.platform.run.run import Run

_LEGEND, _ROW = 50, 210  # heights, of the legend and of a row of panels


@dataclass(frozen=True)
class Panel:
    """The edges of one group, or of all.

    Args:
        title: the group's name, or `all edges`.
        nets: a supernet per search seed; its rows hold `epoch` and `entropy`, the mean over the panel's edges.
        uniform: the mean entropy of uniform weights on these edges, in nats.
        operations: that the edges weigh, distinct numbers in order.
    """

    title: str
    nets: list[Supernet]
    uniform: float
    operations: tuple[int, ...]


def entropies_section(run: Run[Any]) -> Section:
    """A panel for all edges, and one per group where there are several."""
    panels = entropy_panels(run)
    nets = panels[0].nets
    ends = entropies_at_the_end(nets)
    shown = drawing(
        "entropies",
        supernet_entropies(run),
        description=(
            f"Mean entropy of the edges' weights by epoch, of {count(len(nets), 'search seed')}; "
            f"at the end {_span(ends)} nats."
        ),
    )
    return Section("entropies", "Has the mixture decided?", captioned(shown, _caption(panels, ends)))


@figure(height=_LEGEND + _ROW)
def supernet_entropies(run: Run[Any], canvas: Figure) -> None:
    """The mean entropy of the edges' weights by epoch, a line per search seed. Li et al. 2021, Figure 1.

    All edges first, then each group where there are several.
    """
    panels = entropy_panels(run)
    columns = min(2, len(panels))
    rows = math.ceil(len(panels) / columns)
    set_height(canvas, _LEGEND + _ROW * rows)
    grid = canvas.subplots(rows, columns, squeeze=False, sharey=True)
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.set_visible(False)
            continue
        _draw_panel(axes, panels[place])
        axes.tick_params(labelleft=True)
        if place % columns == 0:
            axes.set_ylabel("entropy (nats)")
        if place + columns >= len(panels):
            axes.set_xlabel("epoch")
    draw_seed_legend(canvas, panels[0].nets)


def entropy_panels(run: Run[Any]) -> list[Panel]:
    """All edges first, then the groups in their order if there are several.

    Raises: NothingToDraw without a finite entropy.
    """
    run = run.best
    table = run.table("search", ENTROPIES)
    table = table.assign(**{name: numbers(table, name) for name in ("entropy", "epoch")}, group=table.get("group", ""))
    table = table[table["entropy"].notna() & table["epoch"].notna()]
    if table.empty or "trial_id" not in table:
        raise NothingToDraw(
            "the run has no entropies of a mixture; they are of a search that learns an architecture, as darts"
        )
    groups = list(dict.fromkeys(table["group"]))
    parts = [("all edges", table)]
    parts += [(str(group), table[table["group"] == group]) for group in groups] if len(groups) > 1 else []
    return [Panel(title, _means(run, part), *uniform_entropy(part)) for title, part in parts]


def entropies_at_the_end(nets: Sequence[Supernet]) -> list[float]:
    """The mean entropy in the last epoch of any; supernets that did not come as far, which failed, have none."""
    last = max(float(net.rows["epoch"].max()) for net in nets)
    return [float(net.rows["entropy"].iloc[-1]) for net in nets if net.rows["epoch"].iloc[-1] == last]


def _means(run: Run[Any], table: pd.DataFrame) -> list[Supernet]:
    """A supernet per search seed with a row per epoch: the mean over edges."""
    return [
        replace(net, rows=net.rows.groupby("epoch")["entropy"].mean().reset_index()) for net in supernets(run, table)
    ]


def uniform_entropy(entropies: pd.DataFrame) -> tuple[float, tuple[int, ...]]:
    """The mean entropy of uniform weights, in nats, and the numbers of operations, distinct and in order."""
    operations = entropies.loc[entropies["epoch"] == entropies["epoch"].min(), "operations"].astype(int)
    return float(np.log(operations).mean()), tuple(sorted(set(operations)))


def _draw_panel(axes: Axes, panel: Panel) -> None:
    by_epoch(axes, panel.nets, "entropy")
    highest = max(panel.uniform, *(float(net.rows["entropy"].max()) for net in panel.nets))
    axes.axhline(panel.uniform, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    axes.set_ylim(0, max(1.08 * highest, axes.get_ylim()[1] if highest else 0.1))
    axes.set_title(panel.title)


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _caption(panels: Sequence[Panel], ends: Sequence[float]) -> str:
    whole = panels[0]
    text = (
        "The entropy of an edge's weights over its operations, in nats, averaged over the edges; a line per search "
        "seed. Dashed: uniform weights, no decision at all"
    )
    if len(whole.operations) == 1:
        text += f" (log {whole.operations[0]} = {whole.uniform:.2f})"
    text += (
        ". At zero every edge puts its whole weight on one operation: the mixture has decided, and discretisation "
        "loses nothing, except in a space where it drops edges too. "
        f"At the end of the search it is {_span(ends)}. As Figure 1 of Li et al. 2021."
    )
    return text
