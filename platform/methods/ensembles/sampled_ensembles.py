"""The sampled ensembles: best so far against evaluations, and a table of what they hold. Shu 2022, Figure 5.3."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.methods.ensembles.sampled_table import (
    METRICS,
    Look,
    chosen_ensemble,
    looks,
    ranked_by,
    sampled_ensembles,
)
from archray.platform.report.plot import INK, SURFACE, Size, plot
from archray.platform.report.quantity import MISSING, Quantity, count, signed, significant, whole_number
from archray.platform.report.section import Column, Section, escape, figure, paragraphs, table
from archray.platform.report.view import RunView

_BEST = 10  # ensembles in the table that is not folded
_DOTS = 300  # with more ensembles than this, only the lines are drawn


@dataclass(frozen=True)
class Progress:
    """The best so far of one sampler.

    Args:
        sampler: its name.
        mean: (evaluations,) over its repeats, of the metric of the ensemble that ranks best until then; NaN until
            every repeat has one.
        error: (evaluations,) the standard error of that mean; NaN with one repeat.
        repeats: how many there are.
    """

    sampler: str
    mean: np.ndarray
    error: np.ndarray
    repeats: int


def ensembles_section(view: RunView) -> Section | None:
    """A line per sampler, and the tables of ensembles and members. Nothing without a finite loss or error."""
    sampled = sampled_ensembles(view)
    if sampled.empty:
        return None
    shown = [name for name in METRICS if sampled[name].notna().any()]
    styles = looks(sampled["sampler"].unique())
    chosen = chosen_ensemble(view, sampled)

    def draw(canvas: Figure, narrow: bool) -> None:
        panels = np.ravel(canvas.subplots(len(shown), 1) if narrow else canvas.subplots(1, len(shown)))
        for axes, metric in zip(panels, shown, strict=True):
            _draw_panel(axes, sampled, metric, styles, chosen)
        handles = [
            Line2D([], [], color=colour, linestyle=dashes, linewidth=2, label=name)
            for name, (colour, dashes) in styles.items()
        ]
        canvas.legend(handles=handles, loc="outside upper left", ncols=2 if narrow else 5, handlelength=3)

    rank = Quantity.of(ranked_by(sampled))
    drawing = plot(
        "ensembles",
        draw,
        description=f"Best {rank.label} so far against evaluations; {_ends(sampled)}.",
        wide=Size(760, 330),
        narrow=Size(350, 60 + 230 * len(shown)),
    )
    body = paragraphs([_sentence(sampled)]) + figure(drawing, _caption(sampled, shown, chosen))
    return Section("ensembles", "The ensembles that were sampled", body + _tables(view, sampled, chosen))


def best_so_far(sampled: pd.DataFrame, metric: str) -> list[Progress]:
    """A line per sampler, in order. The ensembles are ranked by `ranked_by`, whatever `metric` is shown."""
    rank = ranked_by(sampled)
    lines = []
    for sampler, rows in sampled.groupby("sampler", sort=False):
        most = int(rows["evaluations"].max())
        values = np.full((rows["repeat"].nunique(), most), math.nan)  # (repeats, evaluations)
        for repeat, (_, own) in enumerate(rows.groupby("repeat", sort=False)):
            best, lowest = math.nan, math.inf
            for place, (ranked, value) in enumerate(zip(own[rank], own[metric], strict=True)):
                if ranked < lowest:
                    lowest, best = ranked, value
                values[repeat, place] = best
            values[repeat, len(own) :] = best  # a repeat that has ended keeps its last
        several = len(values) > 1
        error = values.std(0, ddof=1) / math.sqrt(len(values)) if several else np.full(most, math.nan)
        lines.append(Progress(str(sampler), values.mean(0), error, len(values)))
    return lines


def _draw_panel(axes: Axes, sampled: pd.DataFrame, metric: str, styles: dict[str, Look], chosen: int | None) -> None:
    quantity = Quantity.of(metric)
    for line in best_so_far(sampled, metric):
        colour, dashes = styles[line.sampler]
        x, mean, error = np.arange(1, line.mean.size + 1), *(quantity.factor * part for part in (line.mean, line.error))
        axes.step(x, mean, where="post", color=colour, linestyle=dashes, linewidth=2, zorder=3)
        axes.plot(x[-1:], mean[-1:], "o", color=colour, markersize=4, zorder=3)
        if line.repeats > 1:
            axes.fill_between(x, mean - error, mean + error, step="post", color=colour, alpha=0.15, linewidth=0)
        if line.repeats == 1 and len(sampled) <= _DOTS:
            own = sampled[sampled["sampler"] == line.sampler]
            axes.scatter(own["evaluations"], own[metric] * quantity.factor, s=12, color=colour, alpha=0.45, linewidth=0)
    if chosen is not None:
        place = (sampled["evaluations"][chosen], sampled[metric][chosen] * quantity.factor)
        axes.plot(
            *place, "o", markersize=9, markerfacecolor=SURFACE, markeredgecolor=INK, markeredgewidth=1.8, zorder=4
        )
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.set(xlabel="ensembles evaluated", ylabel=quantity.axis)


def _ends(sampled: pd.DataFrame) -> str:
    rank = ranked_by(sampled)
    return ", ".join(f"{line.sampler} {Quantity.of(rank).show(line.mean[-1])}" for line in best_so_far(sampled, rank))


def _sentence(sampled: pd.DataFrame) -> str:
    members = [member for row in sampled["members"] for member in row]
    text = f"{count(len(sampled), 'ensemble')} {'was' if len(sampled) == 1 else 'were'} evaluated"
    if members:
        text += f", of {count(len(set(members)), 'distinct architecture')}: so many forward passes over the "
        text += "validation data were needed, since an ensemble is the average of what its members predict"
    failed = int(sampled["failure"].notna().sum())
    return text + "." + (f" {count(failed, 'evaluation')} failed." if failed else "")


def _caption(sampled: pd.DataFrame, shown: list[str], chosen: int | None) -> str:
    rank = ranked_by(sampled)
    text = f"The lowest {Quantity.of(rank).label} so far, by the number of ensembles evaluated"
    if len(shown) > 1:
        text += "; and the error of that ensemble, which need not fall"
    repeats = int(sampled["repeat"].nunique())
    text += f". Means of {repeats} repeats, bands one standard error on either side." if repeats > 1 else "."
    if repeats == 1 and len(sampled) <= _DOTS:
        text += " A faint dot is one ensemble."
    text += " Ring: the ensemble that was chosen." if chosen is not None else ""
    return f"{text} As Figure 5.3 of Shu 2022, there with test errors."


def _tables(view: RunView, sampled: pd.DataFrame, chosen: int | None) -> str:
    names = member_numbers(view, sampled)
    best = sampled.sort_values(ranked_by(sampled), kind="stable").head(_BEST)
    body = _ensemble_table(best, names, chosen, f"The best {count(len(best), 'ensemble')}")
    if len(sampled) > len(best):
        summary = escape(f"All {count(len(sampled), 'ensemble')}, as they were sampled")
        whole = _ensemble_table(sampled, names, chosen, "All ensembles")
        body += f"<details><summary>{summary}</summary>{whole}</details>"
    if names:
        body += f"<details><summary>{count(len(names), 'member')}</summary>{_member_table(sampled, names)}</details>"
    return body


def member_numbers(view: RunView, sampled: pd.DataFrame) -> dict[str, int]:
    """A number for every member, from 1: those of the found ensemble first, then as they were sampled."""
    everyone = dict.fromkeys((*view.members, *(member for row in sampled["members"] for member in row)))
    return {member: number for number, member in enumerate(everyone, 1)}


def _ensemble_table(rows: pd.DataFrame, names: dict[str, int], chosen: int | None, label: str) -> str:
    several = rows["repeat"].nunique() > 1
    told = {name: rows[name].notna().any() for name in ("delta", "temperature", *METRICS)}
    failed = bool(rows["failure"].notna().any())
    headings = {"delta": "δ", "temperature": "Temperature", **{name: Quantity.of(name).heading for name in METRICS}}
    columns = [Column("Repeat", "number")] if several else []
    columns += [Column("No.", "number"), Column("Sampler")]
    columns += [Column(headings[name], "number") for name, shown in told.items() if shown]
    columns += [Column("Members"), *([Column("Failure")] if failed else [])]
    written = []
    for row in rows.to_dict("records"):
        values = {
            "delta": MISSING if math.isnan(row["delta"]) else signed(f"{row['delta']:.3g}"),
            "temperature": significant(row["temperature"], 2),
            **{name: Quantity.of(name).bare(row[name]) for name in METRICS},
        }
        written.append(
            (
                *([row["repeat"]] if several else []),
                whole_number(row["evaluations"]),
                row["sampler"],
                *(values[name] for name, shown in told.items() if shown),
                ", ".join(str(names[member]) for member in row["members"]) or MISSING,
                *([row["failure"] or ""] if failed else []),
            )
        )
    marked = list(rows.index).index(chosen) if chosen in rows.index else None
    return table(columns, written, label=label, marked=marked)


def _member_table(sampled: pd.DataFrame, names: dict[str, int]) -> str:
    drawn = Counter(member for row in sampled["members"] for member in row)
    columns = (Column("Member", "number"), Column("In ensembles", "number"), Column("Architecture", "code"))
    rows = [(number, whole_number(drawn[member]), member) for member, number in names.items()]
    return table(columns, rows, label="The members of the sampled ensembles")
