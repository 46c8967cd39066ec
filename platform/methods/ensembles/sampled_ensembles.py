"""The sampled ensembles: best so far against evaluations, and by delta; a table. Shu 2022, Figures 5.3, 5.7."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from archray.platform.methods.ensembles.ensemble_tables import (
    METRICS,
    chosen_ensemble,
    known_metrics,
    names_of,
    sampled_ensembles,
    sampled_texts,
)
from archray.platform.quantities import MISSING, quantity_of, signed, significant, whole_number
from archray.platform.report.figures import FOUND, INK, SURFACE, NothingToDraw, drawing, few_ticks, figure
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.repeat_spread import draw_spread, spread_words
from archray.platform.report.section import Column, Section, captioned, folded, numeric, paragraphs, table
from archray.platform.report.short_names import ShortNames
from archray.platform.run.run import Run
from archray.plurals import count

_BEST = 10  # ensembles in the table that is not folded
_DOTS = 300  # with more ensembles than this, only the lines are drawn


@figure(height=270)
def ensembles_best_so_far(run: Run[Any], canvas: Figure) -> None:
    """The best validation loss and accuracy so far of the sampled ensembles, by evaluations."""
    sampled = sampled_ensembles(run)
    if sampled.empty:
        raise NothingToDraw("this run has evaluated no ensemble with a finite loss")
    shown, chosen = known_metrics(sampled), chosen_ensemble(run, sampled)
    for axes, metric in zip(np.ravel(canvas.subplots(1, len(shown))), shown, strict=True):
        _draw_panel(axes, sampled, metric, chosen, names_of(run))


def ensembles_section(run: Run[Any]) -> Section:
    """The best so far, and the tables of ensembles and members."""
    canvas, sampled = ensembles_best_so_far(run), sampled_ensembles(run)
    chosen, rank = chosen_ensemble(run, sampled), known_metrics(sampled)[0]
    end = quantity_of(rank).show(best_so_far(sampled, rank)[0][-1])
    description = f"Best {quantity_of(rank).label} so far against evaluations; at the end {end}."
    content = drawing("ensembles", canvas, description=description)
    body = paragraphs([_sentence(sampled)]) + captioned(content, _caption(sampled, chosen))
    return Section("ensembles", "The ensembles that were sampled", body + _tables(run, sampled, chosen))


def best_so_far(sampled: pd.DataFrame, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over the repeats of `best_of_each`; (evaluations,) both.

    The mean is NaN until each repeat has a value, the deviation with one repeat.
    """
    values = best_of_each(sampled, metric)
    deviation = values.std(0, ddof=1) if len(values) > 1 else np.full(values.shape[1], math.nan)
    return values.mean(0), deviation


def best_of_each(sampled: pd.DataFrame, metric: str) -> np.ndarray:
    """The metric of the ensemble that ranks best until each evaluation, of each repeat: (repeats, evaluations)."""
    rank = known_metrics(sampled)[0]
    repeats = [rows for _, rows in sampled.groupby("repeat", sort=False)]
    values = np.full((len(repeats), int(sampled["evaluations"].max())), math.nan)  # (repeats, evaluations)
    for repeat, own in enumerate(repeats):
        best, lowest = math.nan, math.inf
        for place, (ranked, value) in enumerate(zip(own[rank], own[metric], strict=True)):
            if ranked < lowest:
                lowest, best = ranked, value
            values[repeat, place] = best
        values[repeat, len(own) :] = best  # a repeat that has ended keeps its last
    return values


def _draw_panel(axes: Axes, sampled: pd.DataFrame, metric: str, chosen: int | None, names: ShortNames) -> None:
    quantity = quantity_of(metric)
    mean, deviation = (quantity.factor * part for part in best_so_far(sampled, metric))
    x = np.arange(1, mean.size + 1)
    axes.step(x, mean, where="post", color=FOUND, linewidth=2, zorder=3)
    axes.plot(x[-1:], mean[-1:], "o", color=FOUND, markersize=4, zorder=3)
    if sampled["repeat"].nunique() > 1:
        draw_spread(axes, x, quantity.factor * best_of_each(sampled, metric), deviation, FOUND, -math.inf)
    elif len(sampled) <= _DOTS:
        axes.scatter(
            sampled["evaluations"], sampled[metric] * quantity.factor, s=14, color=FOUND, alpha=0.7, linewidth=0
        )
    if len(sampled) <= _DOTS:
        shown = sampled if sampled["repeat"].nunique() == 1 else sampled.loc[[] if chosen is None else [chosen]]
        tell_points(axes, shown["evaluations"], shown[metric] * quantity.factor, sampled_texts(shown, names))
    _draw_ring(axes, sampled, "evaluations", metric, chosen)
    few_ticks(axes, 5, integer=True)
    axes.set(xlabel="ensembles evaluated", ylabel=quantity.axis)


def _draw_ring(axes: Axes, rows: pd.DataFrame, x: str, metric: str, chosen: int | None) -> None:
    """Around the ensemble that was chosen."""
    if chosen is not None:
        place = (rows[x][chosen], rows[metric][chosen] * quantity_of(metric).factor)
        axes.plot(
            *place, "o", markersize=9, markerfacecolor=SURFACE, markeredgecolor=INK, markeredgewidth=1.8, zorder=4
        )


def _sentence(sampled: pd.DataFrame) -> str:
    members = [member for row in sampled["members"] for member in row]
    text = f"{count(len(sampled), 'ensemble')} {'was' if len(sampled) == 1 else 'were'} evaluated"
    if members:
        text += f", of {count(len(set(members)), 'distinct architecture')}: so many forward passes over the "
        text += "validation data were needed, since an ensemble is the average of what its members predict"
    failed = int(sampled["failure"].notna().sum())
    return text + "." + (f" {count(failed, 'evaluation')} failed." if failed else "")


def _caption(sampled: pd.DataFrame, chosen: int | None) -> str:
    rank, *others = known_metrics(sampled)
    text = f"The lowest {quantity_of(rank).label} so far, by the number of ensembles evaluated"
    if others:
        text += "; and the accuracy of that ensemble, which need not rise"
    repeats = int(sampled["repeat"].nunique())
    text += (
        f". Means of {count(repeats, 'repeat')}, {spread_words(repeats, 'standard deviation')}." if repeats > 1 else "."
    )
    if repeats == 1 and len(sampled) <= _DOTS:
        text += " A faint dot is one ensemble."
    text += " Ring: the ensemble that was chosen." if chosen is not None else ""
    return f"{text} As Figure 5.3 of Shu 2022, there on test data."


def _tables(run: Run[Any], sampled: pd.DataFrame, chosen: int | None) -> str:
    names = names_of(run)
    best = sampled.sort_values(known_metrics(sampled)[0], kind="stable").head(_BEST)
    body = _ensemble_table(best, names, chosen, f"The best {count(len(best), 'ensemble')}", by_value=True)
    if len(sampled) > len(best):
        whole = _ensemble_table(sampled, names, chosen, "All ensembles", by_value=False)
        body += folded(f"All {count(len(sampled), 'ensemble')}, as they were sampled", whole)
    return body


def _ensemble_table(rows: pd.DataFrame, names: ShortNames, chosen: int | None, label: str, by_value: bool) -> str:
    cells = pd.DataFrame(
        {
            "Members": [names.all_of(row) or MISSING for row in rows["members"]],
            **{quantity_of(name).heading: rows[name].map(quantity_of(name).bare) for name in METRICS},
            "δ": rows["delta"].map(lambda delta: MISSING if math.isnan(delta) else signed(f"{delta:.3g}")),
            "No.": rows["evaluations"].map(whole_number),
            "Repeat": rows["repeat"],
            "Sampler": rows["sampler"],
            "Temperature": rows["temperature"].map(lambda temperature: significant(temperature, 2)),
            "Failure": [reason or "" for reason in rows["failure"]],
        }
    )
    optional = {"δ": "delta", "Temperature": "temperature", "Failure": "failure"}
    optional |= {quantity_of(name).heading: name for name in METRICS}
    unknown = [heading for heading, name in optional.items() if rows[name].isna().all()]
    cells = cells.drop(columns=unknown if rows["repeat"].nunique() > 1 else ["Repeat", *unknown])
    kinds = {"Members": "name", "Sampler": "text", "Failure": "text"}
    ranks = quantity_of(known_metrics(rows)[0]).heading if by_value else None
    columns = [
        Column(heading, kinds.get(heading, "number"), "ascending" if heading == ranks else None)
        for heading in map(str, cells)
    ]
    marked = list(rows.index).index(chosen) if chosen in rows.index else None
    return table(columns, cells.itertuples(index=False), label=label, marked=marked)


# By delta


@figure(height=270)
def ensembles_by_delta(run: Run[Any], canvas: Figure) -> None:
    """The validation loss and accuracy of the sampled ensembles against the delta they were sampled at."""
    rows, means, best = swept_delta(run)
    shown, chosen = known_metrics(rows), chosen_ensemble(run, rows)
    for axes, metric in zip(np.ravel(canvas.subplots(1, len(shown))), shown, strict=True):
        quantity = quantity_of(metric)
        axes.plot(means.index, means[metric] * quantity.factor, color=FOUND, linewidth=1.8)
        axes.scatter(rows["delta"], rows[metric] * quantity.factor, s=18, color=FOUND, alpha=0.7, linewidth=0, zorder=3)
        axes.axvline(best, color=FOUND, linestyle=(0, (1, 3)), linewidth=1.2, zorder=1)
        tell_points(axes, rows["delta"], rows[metric] * quantity.factor, sampled_texts(rows, names_of(run)))
        few_ticks(axes, 5)
        axes.set(xlabel="δ", ylabel=quantity.axis)
        _draw_ring(axes, rows, "delta", metric, chosen)


def ensemble_delta_section(run: Run[Any]) -> Section:
    """A panel per metric, and the best delta."""
    canvas, (rows, means, best) = ensembles_by_delta(run), swept_delta(run)
    description = f"Validation performance against delta of {count(len(rows), 'ensemble')}."
    text = "Ensembles by the δ at which SVGD-RD sampled them, with shared weights; a dot is one ensemble"
    text += ", a line goes through the means of one δ." if len(rows) > len(means) else "."
    temperature = float(rows["temperature"].iloc[0])
    if math.isfinite(temperature) and temperature != 1:
        text += f" The posterior's temperature is {significant(temperature, 2)}: the higher, the flatter it is."
    text += " Dotted: the best δ."
    text += " Ring: the ensemble that was chosen." if chosen_ensemble(run, rows) is not None else ""
    body = captioned(
        drawing("ensemble-delta", canvas, description=description),
        f"{text} As Figure 5.7 of Shu 2022, there on test data.",
    )
    quantities = {name: quantity_of(name) for name in known_metrics(rows)}
    columns = numeric("Ensembles", "Deltas", "Best δ", *(quantity.heading for quantity in quantities.values()))
    values = [quantity.bare(means[name][best]) for name, quantity in quantities.items()]
    row = (whole_number(len(rows)), whole_number(len(means)), signed(f"{best:.3g}"), *values)
    return Section("ensemble-delta", "How much diversity?", body + table(columns, [row], label="The best delta"))


def swept_delta(run: Run[Any]) -> tuple[pd.DataFrame, pd.DataFrame, float]:
    """The ensembles that were sampled at a delta and did not fail; the metrics' means by delta; the best delta.

    Raises: NothingToDraw for fewer than two deltas.
    """
    rows = sampled_ensembles(run)
    if len(rows):
        rank = known_metrics(rows)[0]
        rows = rows[rows["delta"].notna() & rows[rank].notna()]
    if rows.empty or rows["delta"].nunique() < 2:
        raise NothingToDraw("this run sampled ensembles at fewer than two deltas; choose --delta grid or bo")
    means = rows.groupby("delta")[list(METRICS)].mean()
    return rows, means, float(means.index[int(means[rank].to_numpy().argmin())])
