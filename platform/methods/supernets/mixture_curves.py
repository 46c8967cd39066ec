"""The mixture by epoch: how far it has decided, and what its discretisation costs. GAEA, Li et al. 2021, Figure 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.supernets.search_seeds import ENTROPIES, Supernet, by_epoch, draw_seed_legend, supernets
from archray.platform.quantities import points_between, quantity_of
from archray.platform.report.figures import MUTED, NothingToDraw, drawing, figure, set_height
from archray.platform.report.section import Section, captioned, numeric, table
from archray.platform.report.table_columns import finite_values, numbers
from archray.platform.run.layout import CURVES
from archray.platform.run.run import Run
from archray.plurals import count

_LEGEND, _ROW = 50, 210  # heights, of the legend and of a row of panels
_MIXTURE, _SHARED = quantity_of("mixture_accuracy"), quantity_of("shared_accuracy")
_DROP = quantity_of("discretisation_drop")
_PANELS = {"mixture_accuracy": "mixture", "shared_accuracy": "discretised"}


@dataclass(frozen=True)
class Panel:
    """The edges of one group, or of all."""

    title: str
    nets: list[Supernet]  # one per search seed; rows: `epoch` and `entropy`, the mean over the panel's edges
    uniform: float  # the mean entropy of uniform weights on these edges, in nats; NaN if it is not known
    operations: tuple[int, ...]  # that the edges weigh, distinct numbers in order; empty if they are not known

    @property
    def highest(self) -> float:
        """The largest entropy that is drawn."""
        drawn = max(float(net.rows["entropy"].max()) for net in self.nets)
        return max(self.uniform, drawn) if self.operations else drawn


def entropies_section(run: Run[Any]) -> Section:
    """A panel for all edges, and one per group where there are several."""
    panels = entropy_panels(run)
    nets = panels[0].nets
    last = max(float(net.rows["epoch"].max()) for net in nets)  # supernets that did not come as far, have failed
    ends = [float(net.rows["entropy"].iloc[-1]) for net in nets if net.rows["epoch"].iloc[-1] == last]
    shown = drawing(
        "entropies",
        supernet_entropies(run),
        description=(
            f"Mean entropy of the edges' weights by epoch, of {count(len(nets), 'search seed')}; "
            f"at the end {_span(ends)} nats."
        ),
    )
    return Section("entropies", "Has the mixture decided?", captioned(shown, _decided(panels, ends)))


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
        panel = panels[place]
        by_epoch(axes, panel.nets, "entropy")
        if panel.operations:
            axes.axhline(panel.uniform, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.set_title(panel.title)
        axes.tick_params(labelleft=True)
        if place % columns == 0:
            axes.set_ylabel("entropy (nats)")
        if place + columns >= len(panels):
            axes.set_xlabel("epoch")
    grid.flat[0].set_ylim(0, 1.08 * max(panel.highest for panel in panels))  # of all panels: they share it
    draw_seed_legend(canvas, panels[0].nets)


def entropy_panels(run: Run[Any]) -> list[Panel]:
    """All edges first, then the groups in their order if there are several.

    Raises: NothingToDraw without a finite entropy.
    """
    run = run.best
    edges = run.table("search", ENTROPIES)
    edges = edges[numbers(edges, "entropy").notna() & ~(numbers(edges, "operations") <= 1)]  # nothing to decide
    if edges.empty:
        raise NothingToDraw(
            "the run has no entropies of a mixture; they are of a search that learns an architecture, as darts"
        )
    parts = [("all edges", edges)]
    if edges["group"].nunique() > 1:
        parts += [(str(group), rows) for group, rows in edges.groupby("group", sort=False)]
    panels = []
    for title, part in parts:
        nets = supernets(run, part)
        means = [replace(net, rows=net.rows.groupby("epoch")["entropy"].mean().reset_index()) for net in nets]
        panels.append(Panel(title, means, *uniform_entropy(part)))
    return panels


def uniform_entropy(entropies: pd.DataFrame) -> tuple[float, tuple[int, ...]]:
    """The mean entropy of uniform weights, in nats, and the numbers of operations, distinct and in order.

    NaN and () for the decisions of a controller, which are of no one number.
    """
    operations = entropies.loc[entropies["epoch"] == entropies["epoch"].min(), "operations"]
    if operations.isna().any():
        return math.nan, ()
    operations = operations.astype(int)
    return float(np.log(operations).mean()), tuple(sorted(set(operations)))


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def _decided(panels: Sequence[Panel], ends: Sequence[float]) -> str:
    whole = panels[0]
    text = (
        "The entropy of an edge's weights over its operations, in nats, averaged over the edges; a line per search seed"
    )
    if whole.operations:
        text += ". Dashed: uniform weights, no decision at all"
    if len(whole.operations) == 1:
        text += f" (log {whole.operations[0]} = {whole.uniform:.2f})"
    text += (
        ". At zero every edge puts its whole weight on one operation: the mixture has decided, and discretisation "
        "loses nothing, except in a space where it drops edges too. "
        f"At the end of the search it is {_span(ends)}. As Figure 1 of Li et al. 2021."
    )
    return text


def discretisation_section(run: Run[Any]) -> Section:
    """Two panels over the epochs and a table of the last one."""
    nets = discretised_supernets(run)
    ends = [at_the_end(net) for net in nets]
    shown = drawing(
        "discretisation",
        supernet_discretisation(run),
        description=(
            f"Validation accuracy by epoch of {count(len(nets), 'supernet')}: of the mixture, at the end "
            f"{_MIXTURE.spread(mixture for mixture, _ in ends)}, and of the discretised architecture with the same "
            f"weights, {_SHARED.spread(discrete for _, discrete in ends)}."
        ),
    )
    body = captioned(shown, _lost(ends)) + _last_epoch(nets, ends)
    return Section("discretisation", "What does discretisation lose?", body)


@figure(height=270)
def supernet_discretisation(run: Run[Any], canvas: Figure) -> None:
    """Validation accuracy by epoch of each search seed's mixture, and of the architecture that it is discretised to."""
    nets = discretised_supernets(run)
    left, right = canvas.subplots(1, 2, sharex=True, sharey=True)
    for axes, (metric, title) in zip((left, right), _PANELS.items(), strict=True):
        by_epoch(axes, nets, metric, quantity_of(metric).factor)
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.tick_params(labelleft=True)
    left.set_ylabel("validation accuracy (%)")
    draw_seed_legend(canvas, nets)


def discretised_supernets(run: Run[Any]) -> list[Supernet]:
    """The supernets with the curves of their search. Raises: NothingToDraw if none is of a mixture and discretised."""
    curves = run.best.table("search", CURVES)
    if "epoch" not in curves or any(numbers(curves, name).isna().all() for name in _PANELS):
        raise NothingToDraw(
            "no epoch of the run has the accuracies of a mixture and of what it is discretised to; it needs a search "
            "that learns an architecture, as darts"
        )
    return supernets(run.best, curves)


def at_the_end(net: Supernet) -> tuple[float, float]:
    """Validation accuracy of mixture and discretised architecture in the last epoch; NaN where it has none."""
    last = net.rows.assign(epoch=numbers(net.rows, "epoch")).sort_values("epoch").tail(1)
    mixture, discrete = (float(numbers(last, name).iloc[0]) for name in _PANELS)
    return mixture, discrete


def _lost(ends: Sequence[tuple[float, float]]) -> str:
    text = (
        "Validation accuracy of the supernets by epoch: of the mixture of all operations, and of the architecture that "
        "it is discretised to, with the weights that it shares with all others. The latter is not trained on its own."
    )
    lost = finite_values(mixture - discrete for mixture, discrete in ends)
    if lost.size:
        text += f" In the last epoch the mixture is {points_between(lost.mean())} the discretised architecture"
        text += f" on average over {count(lost.size, 'seed')}." if lost.size > 1 else "."
    return text


def _last_epoch(nets: Sequence[Supernet], ends: Sequence[tuple[float, float]]) -> str:
    rows = [
        (net.seed, _MIXTURE.bare(mixture), _SHARED.bare(discrete), _DROP.bare(mixture - discrete))
        for net, (mixture, discrete) in zip(nets, ends, strict=True)
    ]
    return table(
        numeric("Seed", "Mixture (%)", "Discretised (%)", "Drop (points)"),
        rows,
        label="Mixture and discretised architecture in the last epoch",
        marked=next((place for place, net in enumerate(nets) if net.chosen), None),
    )
