"""Figures of supernet searches and their sections: mixture, discretization, selection, scores with shared weights.

GAEA, Li et al. 2021, Figure 1 and Appendix C.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from archray.platform.methods.supernets import tables
from archray.platform.methods.supernets.tables import Supernet
from archray.platform.quantities import as_float, points_between, quantity_of, significant, whole_number
from archray.platform.report import figures, section
from archray.platform.report.figures import DASHED, FOUND, INDIGO, MUTED, SURFACE, TRIAL, NothingToDraw, figure
from archray.platform.report.section import Section, numbers
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import CURVES
from archray.platform.run.run import Run
from archray.plurals import count

_text = texts_of(__package__)
_LEGEND, _ROW = 50, 210  # heights of the legend and of a row of panels
_MIXTURE, _SHARED = quantity_of("mixture_accuracy"), quantity_of("shared_accuracy")
_DROP, _SELECTION_ACCURACY = quantity_of("discretization_drop"), quantity_of("selection_accuracy")
_PANELS = {"mixture_accuracy": "mixture", "shared_accuracy": "discretized"}


def by_epoch(axes: Axes, nets: Sequence[Supernet], metric: str, factor: float = 1.0) -> None:
    """Draws a line per supernet of `metric` by `epoch`; supernets that found the selected architecture are blue."""
    for net in sorted(nets, key=lambda net: net.chosen):
        rows = net.rows.assign(epoch=numbers(net.rows, "epoch")).sort_values("epoch")
        values = numbers(rows, metric) * factor
        if not values.notna().any():
            continue
        color, width, alpha = (FOUND, 2.2, 0.95) if net.chosen else (TRIAL, 1.3, 0.7)
        look: dict[str, Any] = {"color": color, "linewidth": width, "alpha": alpha, "clip_on": False, "zorder": 3}
        axes.plot(rows["epoch"], values, marker="o" if values.notna().sum() == 1 else None, markersize=4, **look)
        last = values.last_valid_index()
        text = f"seed {net.seed}{', found the selected architecture' if net.chosen else ''}\n"
        text += f"{significant(values[last])} in epoch {rows['epoch'][last]:.0f}"
        figures.add_line_tooltip(axes, rows["epoch"].tolist(), values.tolist(), text)
    figures.few_ticks(axes, 6, integer=True)


def draw_seed_legend(canvas: Figure, nets: Sequence[Supernet]) -> None:
    """Draws the legend above the panels: seeds that found the selected architecture, and other seeds."""
    handles = []
    if any(net.chosen for net in nets):
        handles.append(Line2D([], [], color=FOUND, linewidth=2.2, label="found the selected architecture"))
    if not all(net.chosen for net in nets):
        handles.append(Line2D([], [], color=TRIAL, linewidth=1.3, label="other seeds" if handles else "search seeds"))
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))


@dataclass(frozen=True)
class Panel:
    """The edges of one group, or all edges."""

    title: str
    nets: list[Supernet]  # one per search seed; rows: `epoch` and `entropy`, the mean over the panel's edges
    uniform: float  # the mean entropy of uniform weights on these edges in nats; NaN if unknown
    operations: tuple[int, ...]  # distinct numbers of operations of the edges, sorted; empty if unknown

    @property
    def highest(self) -> float:
        """The largest entropy in the panel."""
        drawn = max(float(net.rows["entropy"].max()) for net in self.nets)
        return max(self.uniform, drawn) if self.operations else drawn


def entropies_section(run: Run[Any]) -> Section:
    """A panel for all edges, and one per group if there are several groups."""
    groups = entropy_panels(run)
    nets = groups[0].nets
    last = max(float(net.rows["epoch"].max()) for net in nets)  # supernets with fewer epochs have failed
    ends = [float(net.rows["entropy"].iloc[-1]) for net in nets if net.rows["epoch"].iloc[-1] == last]
    low, high = f"{min(ends):.2f}", f"{max(ends):.2f}"
    end = low if low == high else f"{low} to {high}"
    number = count(len(nets), "search seed")
    return figures.figure_section(
        "entropies",
        "Entropy of the mixture",
        supernet_entropies(run),
        description=f"Mean entropy of the edges' weights by epoch for {number}; at the end {end} nats.",
        caption=_text("entropies", operations=groups[0].operations, uniform=groups[0].uniform, end=end),
    )


@figure(height=_LEGEND + _ROW)
def supernet_entropies(run: Run[Any], canvas: Figure) -> None:
    """The mean entropy of the edges' weights by epoch, a line per search seed. Li et al. 2021, Figure 1.

    The first panel has all edges, the others one group each.
    """
    groups = entropy_panels(run)
    grid = figures.panels(canvas, len(groups), 2, row=_ROW, head=_LEGEND, sharey=True)
    for axes, panel in zip(grid, groups, strict=True):
        by_epoch(axes, panel.nets, "entropy")
        if panel.operations:
            axes.axhline(panel.uniform, zorder=1, **DASHED)
        axes.set_title(panel.title)
        axes.tick_params(labelleft=True)
    for axes in grid[::2]:
        axes.set_ylabel("entropy (nats)")
    for axes in grid[-2:]:
        axes.set_xlabel("epoch")
    grid[0].set_ylim(0, 1.08 * max(panel.highest for panel in groups))  # shared by all panels
    draw_seed_legend(canvas, groups[0].nets)


def entropy_panels(run: Run[Any]) -> list[Panel]:
    """All edges first, then the groups in order if there are several.

    Raises: NothingToDraw without a finite entropy.
    """
    run = run.best
    edges = run.table("search", tables.ENTROPIES)
    edges = edges[
        numbers(edges, "entropy").notna() & ~(numbers(edges, "operations") <= 1)
    ]  # one operation: no decision
    if edges.empty:
        raise NothingToDraw("the run has no entropies of a mixture. Run a method that learns a mixture, such as darts")
    parts = [("all edges", edges)]
    if edges["group"].nunique() > 1:
        parts += [(str(group), rows) for group, rows in edges.groupby("group", sort=False)]
    groups = []
    for title, part in parts:
        nets = tables.supernets(run, part)
        means = [replace(net, rows=net.rows.groupby("epoch")["entropy"].mean().reset_index()) for net in nets]
        groups.append(Panel(title, means, *uniform_entropy(part)))
    return groups


def uniform_entropy(entropies: pd.DataFrame) -> tuple[float, tuple[int, ...]]:
    """The mean entropy of uniform weights in nats, and the distinct numbers of operations, sorted.

    NaN and () for the decisions of a controller, which have no fixed number of choices.
    """
    operations = entropies.loc[entropies["epoch"] == entropies["epoch"].min(), "operations"]
    if operations.isna().any():
        return math.nan, ()
    operations = operations.astype(int)
    return float(np.log(operations).mean()), tuple(sorted(set(operations)))


def discretization_section(run: Run[Any]) -> Section:
    """Two panels over the epochs and a table of the last one."""
    nets = discretized_supernets(run)
    ends = [at_the_end(net) for net in nets]
    drops = section.finite_values(mixture - discrete for mixture, discrete in ends)
    return figures.figure_section(
        "discretization",
        "Accuracy lost by discretization",
        supernet_discretization(run),
        description=_text(
            "discretization_description",
            number=len(nets),
            mixture=_MIXTURE.spread(mixture for mixture, _ in ends),
            discrete=_SHARED.spread(discrete for _, discrete in ends),
        ),
        caption=_text("discretization", drop=points_between(drops.mean()) if drops.size else None, seeds=drops.size),
        below=_last_epoch(nets, ends),
    )


@figure(height=270)
def supernet_discretization(run: Run[Any], canvas: Figure) -> None:
    """Validation accuracy by epoch of the mixture of each search seed, and of its discretized architecture."""
    nets = discretized_supernets(run)
    left, right = canvas.subplots(1, 2, sharex=True, sharey=True)
    for axes, (metric, title) in zip((left, right), _PANELS.items(), strict=True):
        by_epoch(axes, nets, metric, quantity_of(metric).factor)
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.tick_params(labelleft=True)
    left.set_ylabel("validation accuracy (%)")
    draw_seed_legend(canvas, nets)


def discretized_supernets(run: Run[Any]) -> list[Supernet]:
    """The supernets with the curves of their search. Raises: NothingToDraw without curves of a mixture."""
    curves = run.best.table("search", CURVES)
    if "epoch" not in curves or any(numbers(curves, name).isna().all() for name in _PANELS):
        raise NothingToDraw(
            "the run has no accuracies of a mixture and of its discretized architecture. Run a method that learns a "
            "mixture, such as darts"
        )
    return tables.supernets(run.best, curves)


def at_the_end(net: Supernet) -> tuple[float, float]:
    """Validation accuracy of mixture and discretized architecture in the last epoch; NaN if missing."""
    last = net.rows.assign(epoch=numbers(net.rows, "epoch")).sort_values("epoch").tail(1)
    mixture, discrete = (float(numbers(last, name).iloc[0]) for name in _PANELS)
    return mixture, discrete


def _last_epoch(nets: Sequence[Supernet], ends: Sequence[tuple[float, float]]) -> str:
    rows = [
        (net.seed, _MIXTURE.bare(mixture), _SHARED.bare(discrete), _DROP.bare(mixture - discrete))
        for net, (mixture, discrete) in zip(nets, ends, strict=True)
    ]
    return section.table(
        section.numeric("Seed", "Mixture (%)", "Discretized (%)", "Drop (percentage points)"),
        rows,
        label="Mixture and discretized architecture in the last epoch",
        marked=next((place for place, net in enumerate(nets) if net.chosen), None),
    )


# The selection among the architectures of the seeds, trained with the final schedule. Li et al. 2021, App. C.1.

# Color, width and alpha of a line.
_LOOKS = {"chosen": (FOUND, 2.4, 0.95), "kept": (INDIGO, 1.8, 0.9), "dropped": (TRIAL, 1.2, 0.8)}
Line = tuple[str, pd.DataFrame]  # a key of _LOOKS, and the curve of a training run


def selection_section(run: Run[Any]) -> Section | None:
    """The curves of the selection, and a table of the outcomes. None without a selection."""
    names, run = tables.names_of(run), run.best
    selection = run.table("selection", tables.SELECTED)
    if selection.empty:
        return None
    cut, lines = cut_epoch(selection), selection_lines(run)
    above = _text("selection", number=len(selection), cut=cut, kept=int(section.flags(selection, "kept").sum()))
    above, below = section.paragraphs([above]), _selection_table(selection, run.architecture, cut, names)
    if not lines:
        return Section("selection", "Selection", above + below)
    return figures.figure_section(
        "selection",
        "Selection",
        selection_curves(run),
        description=f"Validation accuracy by epoch of {count(len(lines), 'architecture')} in the selection.",
        caption=_text("selection_caption", number=len(lines), cut=cut),
        above=above,
        below=below,
    )


@figure(height=310)
def selection_curves(run: Run[Any], canvas: Figure) -> None:
    """Validation accuracy by epoch of the found architectures in the selection. Li et al. 2021, C.1."""
    lines, names = selection_lines(run), tables.names_of(run)
    if not lines:
        raise NothingToDraw("the run has no selection, as its search seeds found fewer than two architectures")
    axes = canvas.subplots()
    for name, curve in lines:
        color, width, alpha = _LOOKS[name]
        values = curve["shown"] * _SELECTION_ACCURACY.factor
        marker = "o" if curve["shown"].notna().sum() == 1 else None
        axes.plot(curve["epoch"], values, marker=marker, markersize=4, color=color, linewidth=width, alpha=alpha)
        last = values.last_valid_index()
        text = f"{names.of(curve['architecture'][last])}, {name}\n{_SELECTION_ACCURACY.show(curve['shown'][last])}"
        figures.add_line_tooltip(
            axes, curve["epoch"].tolist(), values.tolist(), f"{text} in epoch {curve['epoch'][last]:.0f}"
        )
    cut = cut_epoch(run.best.table("selection", tables.SELECTED))
    if cut is not None:
        axes.axvline(cut, zorder=1, **DASHED)
        place: dict[str, Any] = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        axes.annotate(f"epoch {cut}", (cut, 0), xytext=(4, 4), fontsize=11, color=MUTED, **place)
    figures.few_ticks(axes, 6, integer=True)
    axes.set_xlabel("epoch")
    axes.set_ylabel(_SELECTION_ACCURACY.axis)
    handles = [
        Line2D([], [], color=color, linewidth=width, alpha=alpha, label=name)
        for name, (color, width, alpha) in _LOOKS.items()
        if any(name == outcome for outcome, _ in lines)
    ]
    canvas.legend(handles=handles, loc="outside upper left", ncols=len(handles))


def cut_epoch(selection: pd.DataFrame) -> int | None:
    """The epoch after which the worst were dropped; None if none was dropped."""
    dropped = ~section.flags(selection, "kept") & section.failures(selection).isna()
    epochs = numbers(selection, "epochs")[dropped].dropna()
    return int(epochs.max()) if len(epochs) else None


def fate(row: pd.Series, chosen: str | None) -> str:
    """The outcome of a row of the selection: `chosen`, `kept` or `dropped`."""
    if chosen is not None and row["architecture"] == chosen:
        return "chosen"
    return "kept" if row["kept"] else "dropped"


def selection_lines(run: Run[Any]) -> list[Line]:
    """Outcome and curve of each training run with a finite accuracy, the most important last."""
    run = run.best
    selection, curves = run.table("selection", tables.SELECTED), run.table("selection", CURVES)
    if selection.empty or curves.empty:
        return []
    curves = curves.assign(epoch=numbers(curves, "epoch"), shown=numbers(curves, "validation_accuracy"))
    lines, chosen = [], run.architecture
    for _, row in selection.iterrows():
        curve = curves[curves["architecture"] == row["architecture"]]
        if curve["shown"].notna().any():
            lines.append((fate(row, chosen), curve.sort_values("epoch")))
    return sorted(lines, key=lambda line: list(_LOOKS).index(line[0]), reverse=True)


def _selection_table(selection: pd.DataFrame, chosen: str | None, cut: int | None, names: section.ShortNames) -> str:
    """The table of outcomes, best first."""
    frame = selection.assign(
        end=numbers(selection, "selection_accuracy"),
        cut=numbers(selection, "accuracy_at_cut"),
        epochs=numbers(selection, "epochs"),
        kept=section.flags(selection, "kept"),
        reason=section.failures(selection),
    ).sort_values(["kept", "end"], ascending=[False, False], ignore_index=True)
    fates = [fate(row, chosen) for _, row in frame.iterrows()]
    headings = ["Final (%)", "Epochs", *([f"At epoch {cut} (%)"] if cut is not None else [])]
    columns = [section.Column("Architecture", "name"), *section.numeric(*headings), section.Column("Outcome")]
    rows = [
        (
            names.of(row["architecture"]),
            _SELECTION_ACCURACY.bare(row["end"]),
            whole_number(row["epochs"]),
            *([_SELECTION_ACCURACY.bare(row["cut"])] if cut is not None else []),
            row["reason"] or name,
        )
        for name, (_, row) in zip(fates, frame.iterrows(), strict=True)
    ]
    return section.table(
        columns,
        rows,
        label="Architectures of the selection",
        marked=fates.index("chosen") if "chosen" in fates else None,
        faint=frozenset(place for place, name in enumerate(fates) if name == "dropped"),
    )


# The distribution of accuracies with shared weights, and the accuracy of the found architecture.

_MOST = 10  # maximal number of supernets in the figure; the table has all
_BINS = 40
_AXIS, _SHARED_ROW = 85, 56  # heights of the axis and of a supernet's row


@dataclass(frozen=True)
class Scored:
    """The scores of one supernet."""

    seed: str
    accuracies: np.ndarray  # (n,) finite values, fractions
    lost: int  # number of architectures without a score
    found: float  # the accuracy of the architecture that this search found; NaN if it has no score
    chosen: bool  # whether the run selected that architecture


def shared_scores_section(run: Run[Any]) -> Section:
    """A stack of histograms, one per supernet, and a table."""
    scored = scored_supernets(run)
    nets = _drawn(scored)
    size = sum(supernet.accuracies.size for supernet in nets)
    return figures.figure_section(
        "shared-scores",
        "Scores with shared weights",
        supernet_shared_scores(run),
        description=f"Accuracy with shared weights of {count(size, 'scored architecture')}, by search seed.",
        caption=_text(
            "shared_scores",
            rows=len(nets),
            supernets=len(scored),
            found=any(math.isfinite(supernet.found) for supernet in nets),
        ),
        below=_shared_table(scored),
    )


@figure(height=_AXIS + 150)
def supernet_shared_scores(run: Run[Any], canvas: Figure) -> None:
    """The distribution of accuracies with shared weights, a histogram per supernet."""
    nets = _drawn(scored_supernets(run))
    figures.set_height(canvas, _AXIS + max(_SHARED_ROW * len(nets), 150))
    values = np.concatenate([supernet.accuracies for supernet in nets]) * _SHARED.factor  # in percent
    margin = max(0.02 * float(np.ptp(values)), 0.25)
    edges = np.linspace(float(values.min()) - margin, float(values.max()) + margin, _BINS + 1)
    rows = np.ravel(canvas.subplots(len(nets), 1, sharex=True))
    for axes, supernet in zip(rows, nets, strict=True):
        heights, _ = np.histogram(supernet.accuracies * _SHARED.factor, edges)
        axes.stairs(heights, edges, fill=True, color=TRIAL, alpha=0.55, linewidth=0)
        if math.isfinite(supernet.found):
            place = supernet.found * _SHARED.factor
            axes.axvline(place, color=FOUND, linewidth=1.2, alpha=0.95 if supernet.chosen else 0.6, zorder=2)
            axes.plot([place], [0], "o", markersize=7, color=FOUND, markeredgecolor=SURFACE, clip_on=False, zorder=3)
            figures.add_tooltips(axes, [place], [0], [f"found by seed {supernet.seed}\n{_SHARED.label} {place:.2f} %"])
        axes.set(ylim=(0, 1.05 * max(int(heights.max()), 1)), xlim=(edges[0], edges[-1]), yticks=[])
        axes.grid(False, axis="y")
        axes.spines["left"].set_visible(False)
        if len(nets) > 1:
            axes.set_ylabel(supernet.seed, rotation=0, ha="right", va="center", fontsize=11)
    rows[-1].set_xlabel(_SHARED.axis)


def scored_supernets(run: Run[Any]) -> list[Scored]:
    """The scores of each supernet in order; empty for a method without scores."""
    run = run.best
    scores, cells = run.table("search", tables.SCORES), run.table("search", tables.FOUND_CELLS)
    if scores.empty:
        return []
    firsts = cells.drop_duplicates("trial_id")  # the best of several candidates of one supernet
    best = dict(zip(firsts["trial_id"], firsts["architecture"], strict=True))
    scored = []
    for net in tables.supernets(run, scores):
        accuracy = numbers(net.rows, "shared_accuracy")
        of_best = accuracy[net.rows["architecture"] == best.get(net.rows["trial_id"].iloc[0])].dropna()
        found = as_float(of_best.iloc[0]) if len(of_best) else math.nan
        lost = int(accuracy.isna().sum())
        scored.append(Scored(net.seed, section.finite_values(accuracy), lost, found, net.chosen))
    return scored


def _drawn(scored: Sequence[Scored]) -> list[Scored]:
    """The supernets in the figure. Raises: NothingToDraw without a finite accuracy."""
    nets = [supernet for supernet in scored if supernet.accuracies.size][:_MOST]
    if not nets:
        raise NothingToDraw("the run has no scores with shared weights. Run rs-ws or sliced-supernet")
    return nets


def _shared_table(scored: Sequence[Scored]) -> str:
    lost = any(supernet.lost for supernet in scored)
    headings = ("Seed", "Scored", *(["Failed"] if lost else []), "Median (%)", "Best (%)", "Found (%)")
    rows = [
        (
            supernet.seed,
            whole_number(supernet.accuracies.size),
            *([whole_number(supernet.lost)] if lost else []),
            _SHARED.bare(np.median(supernet.accuracies) if supernet.accuracies.size else math.nan),
            _SHARED.bare(supernet.accuracies.max() if supernet.accuracies.size else math.nan),
            _SHARED.bare(supernet.found),
        )
        for supernet in scored
    ]
    marked = next((place for place, supernet in enumerate(scored) if supernet.chosen), None)
    columns, label = section.numeric(*headings), "Scores with shared weights by search seed"
    return section.table(columns, rows, label=label, marked=marked)
