"""The constraint on a pool's metric, in words: nu, mu, and how many architectures are above it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.errors import DamagedFile
from archray.platform.engine.pool_scoring import POOL
from archray.platform.methods.plain.config import ZeroCostConfig
from archray.platform.methods.report import list_trials, pool_bounds_section
from archray.platform.quantities import Quantity, Spread, quantity_of, significant
from archray.platform.report.cell import cell_section
from archray.platform.report.cost_sections import cost_sections
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, OWN_SCHEDULE, SEARCH, TrainingCurves
from archray.platform.report.figures import (
    FOUND,
    TRIAL,
    NothingToDraw,
    draw_spread,
    drawing,
    few_ticks,
    figure,
    spread_words,
    tell_points,
)
from archray.platform.report.page import Card, Headline, MakeSection, network_size
from archray.platform.report.run_sections import (
    Measured,
    Tables,
    accuracy_cards,
    accuracy_lead,
    comparison_section,
    failed,
    failures_section,
    headline_cards,
    manifest_section,
    measured_networks,
    repeats_section,
)
from archray.platform.report.section import (
    Column,
    Section,
    ShortNames,
    captioned,
    failures,
    names_section,
    numbers,
    numeric,
    paragraphs,
    short_names,
    table,
)
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count
from archray.trainables.tabular import OBJECTIVE


def constraint_words(run: Run[Any]) -> str | None:
    """Of one run, a few sentences; None of a search without a constraint, or whose pool is not scored."""
    config, pool = run.config, run.table("pool", POOL)
    if not isinstance(config, ZeroCostConfig) or (penalty := config.penalty) is None or pool.empty:
        return None
    values = numbers(pool, config.proxy)
    values = values[np.isfinite(values)]
    nu = penalty.bound(values.to_numpy())
    of_nu = f"the mean of {count(len(values), 'architecture')}" if penalty.nu is None else "as asked for"
    text = f"The pool was ordered by {config.proxy} under a constraint (Shu 2022, Eq. 6.8): what exceeds ν = "
    text += f"{significant(nu)} ({of_nu}) was subtracted μ = {significant(penalty.mu)} times. "
    text += f"{int((values > nu).sum())} of {count(len(values), 'architecture')} are above ν"
    own = values[pool.loc[values.index, "architecture"] == run.architecture]
    return text + (f"; the one that was chosen has {significant(own.iloc[0])}." if len(own) else ".")


# The trials of a plain search: what they are compared by, their order, which is best, and their names.


ASKED = ("search", TRIALS)  # in the order in which the searcher asked for them
ACCURACY = "validation_accuracy"


@dataclass(frozen=True)
class Trials:
    """The trials of a search, in the order in which it asked for them.

    Args:
        table: a row for each.
        mode: whether the larger or the smaller value is better.
    """

    table: pd.DataFrame
    mode: str = "max"

    @classmethod
    def of(cls, run: Run[Any]) -> Trials:
        """Of one run, not of its repeats."""
        return cls(run.table(*ASKED), (run.document("search") or {}).get("mode", "max"))

    @property
    def key(self) -> str:
        """What they are compared by: a validation accuracy, or what a table says."""
        return OBJECTIVE if OBJECTIVE in self.table else ACCURACY

    @property
    def quantity(self) -> Quantity:
        return quantity_of(self.key)

    @cached_property
    def values(self) -> pd.Series:
        """The value of each; NaN of one that failed, or that was stopped before the others' last epoch.

        Only what was trained equally long is compared: a scheduler stops trials early.
        """
        epochs = numbers(self.table, "epoch")
        values = numbers(self.table, self.key).where(failures(self.table).isna())
        return values.where(epochs.isna() | (epochs == epochs.where(values.notna()).max()))

    @cached_property
    def losses(self) -> pd.Series:
        """The values as something to minimise."""
        return self.values if self.mode == "min" else -self.values

    @property
    def order(self) -> pd.Index:
        """The rows, the best first, the earliest of equals; last those without a value."""
        return self.losses.sort_values(kind="stable", na_position="last").index

    @property
    def best(self) -> int | None:
        """The row with the best value, the earliest of equals; None if there is none."""
        return int(self.order[0]) if self.values.notna().any() else None


def names_of(run: Run[Any]) -> ShortNames:
    """The names of what was found, and of what the best repeat trained, by value; last what has none."""
    trials = Trials.of(run.best)
    return short_names(run, () if trials.table.empty else trials.table["architecture"][trials.order])


# The trials of a plain search in the order in which it asked for them, and the best so far, as a figure.


_MANY = 300  # with more trials than this, their points are drawn smaller


@figure(height=270)
def plain_best_so_far(run: Run[Any], canvas: Figure) -> None:
    """The validation accuracy of each training of a plain search, in the order of suggestion, and the best so far."""
    names, curves = names_of(run), best_of_repeats(run)
    trials = Trials.of(run.best)
    quantity = trials.quantity
    values = trials.values * quantity.factor
    axes = canvas.subplots()
    x = np.arange(1, curves.shape[1] + 1)
    mean = curves.mean(axis=0) * quantity.factor
    if len(curves) > 1:
        draw_spread(axes, x, curves * quantity.factor, curves.std(axis=0, ddof=1) * quantity.factor, FOUND, -np.inf)
    else:
        axes.scatter(
            np.arange(1, len(values) + 1),
            values,
            s=8 if len(values) > _MANY else 22,
            color=TRIAL,
            alpha=0.75,
            linewidth=0,
        )
        texts = [
            f"{number}: {names.of(name)}\n{quantity.told(value / quantity.factor)}"
            for number, (name, value) in enumerate(zip(trials.table["architecture"], values, strict=True), start=1)
        ]
        tell_points(axes, np.arange(1, len(values) + 1), values, texts)
    axes.step(x, mean, where="post", color=FOUND, linewidth=2, zorder=3)
    axes.plot(x[-1:], mean[-1:], "o", color=FOUND, markersize=4, zorder=3)
    few_ticks(axes, 8, integer=True)
    axes.set(xlabel="trainings", ylabel=quantity.axis)


def best_of_repeats(run: Run[Any]) -> np.ndarray:
    """The best value so far after each training, of each repeat: (repeats, trainings); NaN before the first value.

    A repeat with fewer trainings keeps its last. Raises: NothingToDraw if no training has a value.
    """
    searched = [trials for one in run.repeats or [run] if not (trials := Trials.of(one)).table.empty]
    values = [trials.losses for trials in searched]
    if not any(each.notna().any() for each in values):
        raise NothingToDraw("no training of this search has ended with a validation accuracy")
    length = max(map(len, values))
    rows = [pd.Series(each.to_numpy()).cummin().ffill().reindex(range(length)).ffill() for each in values]
    return np.array(rows, dtype=float) * (1 if searched[0].mode == "min" else -1)


def best_so_far_section(run: Run[Any]) -> Section:
    """The figure, and how many trainings it took."""
    canvas, curves = plain_best_so_far(run), best_of_repeats(run)
    last = curves[:, -1]
    trials = Trials.of(run.best)
    quantity, first = trials.quantity, 1 + (trials.best or 0)
    description = (
        f"Best {quantity.label} so far over {count(curves.shape[1], 'training')}; at the end {quantity.spread(last)}."
    )
    caption = "The line is the best so far"
    if len(curves) > 1:
        caption += f", the mean of {count(len(curves), 'repeat')}; {spread_words(len(curves), 'standard deviation')}."
    else:
        caption += f"; points are the trainings, in the order in which they were asked for. Training {first} of "
        caption += f"{curves.shape[1]} is the best one."
    content = drawing("progress", canvas, description=description)
    return Section("progress", "The best so far", captioned(content, caption))


# What a plain search shows: its report, and its trials in the terminal.


_TABLES: Tables = {
    "search": ASKED,
    "final training": ("final", TRIALS),
    "further members": ("members", TRIALS),
    "random architectures": ("baseline", TRIALS),
}
HEADLINES = ("test_accuracy", "result")
_SECONDS = {"validation_accuracy": "time_total_s", "objective": "seconds"}  # of a trial, by what is compared
_CURVES = TrainingCurves((SEARCH, FINAL, BASELINE), of_both=OWN_SCHEDULE, names_of=names_of)


@figure(height=CURVES_HEIGHT)
def plain_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of every training of a plain search: in the search, of what was found, at random."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    """The training curves of the run. Nothing without a finite value."""
    return _CURVES.section(run, plain_training_curves(run))


def _thing(run: Run[Any]) -> str:
    return "look-up" if run.config.on_table else "training"


def _found_row(run: Run[Any], trials: Trials) -> int | None:
    """The row of what was found, one of those with the best value; None if no row has a value."""
    number = (run.found or {}).get("number")
    return trials.best if number is None else int(number) - 1


def choice_section(run: Run[Any]) -> Section | None:
    """Why what was found was chosen: its place among the trials. Nothing for a run that found nothing."""
    names, run = names_of(run), run.best
    trials = Trials.of(run)
    best, quantity = _found_row(run, trials), trials.quantity
    if run.found is None or best is None:
        return None
    values = trials.values[trials.order].dropna()
    if values.empty:
        raise DamagedFile.at(f"{run.folder}/{'/'.join(ASKED)}", f"it has no {quantity.label}")
    name, extreme = names.of(run.architecture), "lowest" if trials.mode == "min" else "highest"
    text = f"Of {count(len(values), _thing(run))} that can be compared, that of {name}, number {best + 1}, has the "
    text += f"{extreme} {quantity.label}, {quantity.show(values.iloc[0])}"
    if len(values) > 1:
        text += f", ahead of {quantity.show(values.iloc[1])}; their median is {quantity.show(float(np.median(values)))}"
    stopped = int((failures(trials.table).isna() & trials.values.isna()).sum())
    if stopped:
        text += f". {count(stopped, 'training')} ended before the last epoch and took no part"
    if broken := int(failures(trials.table).notna().sum()):
        text += f". {count(broken, 'training')} failed and took no part"
    constraint = constraint_words(run)
    return Section("choice", "Why this one", paragraphs([f"{text}.", *([constraint] if constraint else [])]))


def rungs_section(run: Run[Any]) -> Section | None:
    """How many trainings ended after which epoch, and how good they were. Nothing where all were equally long."""
    trials = Trials.of(run.best)
    if trials.table.empty:
        return None
    epochs = numbers(trials.table, "epoch")[failures(trials.table).isna()].dropna()
    if epochs.nunique() < 2:
        return None
    reached, bare = numbers(trials.table, trials.key), trials.quantity.bare
    rows = []
    for epoch, ended in epochs.groupby(epochs):
        values = reached[ended.index]
        rows.append(
            (f"{epoch:.0f}", int((epochs >= epoch).sum()), len(ended), bare(values.max()), bare(values.median()))
        )
    headings = numeric("Epoch", "Reached it", "Ended there", "Best", "Median")
    caption = "Trainings by the epoch after which they ended, without those that failed. Best and median: "
    caption += f"{trials.quantity.axis}, of those that ended there; those of the last epoch were compared in the end."
    content = table(headings, rows, label="Where trainings ended")
    return Section("rungs", "Where trainings ended", captioned(content, caption))


def trials_section(run: Run[Any]) -> Section | None:
    """The trainings, the best first. Nothing without trials."""
    names, run = names_of(run), run.best
    trials = Trials.of(run)
    if trials.table.empty:
        return None
    values, reasons, epochs = trials.values, failures(trials.table), numbers(trials.table, "epoch")
    reached, seconds = numbers(trials.table, trials.key), numbers(trials.table, _SECONDS[trials.key])
    order, best, several, timed = trials.order, _found_row(run, trials), epochs.nunique() > 1, seconds.notna().any()
    sorted_so = "ascending" if trials.mode == "min" else "descending"
    columns = [Column("Architecture", "name"), Column(trials.quantity.heading, "number", sorted_so)]
    columns += numeric("No.", *(["Epochs"] if several else []), *(["Seconds"] if timed else []))
    columns += [Column("Note")]
    rows = []
    for row in order:
        note = reasons[row] or ("best" if row == best else "stopped early" if np.isnan(values[row]) else "")
        of_it = [row + 1, *([f"{epochs[row]:.0f}"] if several else []), *([significant(seconds[row])] if timed else [])]
        rows.append((names.of(trials.table["architecture"][row]), trials.quantity.bare(reached[row]), *of_it, note))
    text = f"{count(len(trials.table), _thing(run))}, the best first."
    body = table(
        columns,
        rows,
        label="The trials of the search",
        marked=None if best is None else list(order).index(best),
        faint=frozenset(place for place, row in enumerate(order) if np.isnan(values[row])),
    )
    return Section("trials", "Trials of the search", paragraphs([text]) + body)


SECTIONS: tuple[MakeSection, ...] = (
    cell_section,
    comparison_section,
    repeats_section,
    choice_section,
    best_so_far_section,
    pool_bounds_section,
    curves_section,
    rungs_section,
    trials_section,
    *cost_sections(names_of),
    names_section(names_of, "architectures", "in the order of the value they were trained to"),
    failures_section(_TABLES),
    manifest_section,
)


def measured_plain(run: Run[Any]) -> Measured:
    """Of one run: the final trainings and random architectures beside them; of a table, what that says of both."""
    if not run.config.on_table:
        return measured_networks(run)
    spreads = {
        "result": Spread.of(numbers(run.table("final", TRIALS), "result"), ""),
        "random_result": Spread.of(numbers(run.table("baseline", TRIALS), "result"), "random architecture"),
    }
    return {key: spread for key, spread in spreads.items() if spread}


def _table_lead(run: Run[Any]) -> str:
    """What a search on a table chose, and what the table says of it, in a sentence or two."""
    measured = measured_plain(run)
    if "result" not in measured:
        return "The search on a table has not ended."
    text = "The search chose the architecture below, by what a table of trained architectures told it; nothing was "
    text += f"trained. In the end the table says {quantity_of('result').show(measured['result'].mean)} of it"
    if (random := measured.get("random_result")) is not None:
        text += f", and {quantity_of('result').spread(random)} of {count(random.number, random.each)}"
    return f"{text}."


def headline(run: Run[Any]) -> Headline:
    """The test accuracies, and how much was trained for them."""
    best_run = run.best
    trials = Trials.of(best_run)
    on_table, best = run.config.on_table, trials.best
    cards = headline_cards(measured_plain(run), HEADLINES) if on_table else accuracy_cards(run)
    if best is not None:
        value = trials.quantity.show(trials.values[best])
        cards.append(Card("trial", value, f"best search trial, {trials.quantity.label}"))
    return Headline(
        thing="architecture",
        lead=_table_lead(run) if on_table else accuracy_lead(run),
        names=() if best_run.architecture is None else (best_run.architecture,),
        cards=cards,
        facts={
            "Table": f"SHA-256 {run.manifest['data_checksum'][:12]}" if on_table else None,
            "Search": count(len(trials.table), _thing(run)) if len(trials.table) else None,
            "Network": network_size(best_run.table("final", TRIALS)),
            "Failures": failed(run, _TABLES),
        },
    )


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The trials of the search, best first."""
    trials = Trials.of(run)
    least = trials.mode == "min"
    return list_trials(trials.table, "trials of the search", trials.key, [run.architecture], least_first=least)
