"""The report of a plain search: headline, best so far, reason for the selection, rungs and trials."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import rankdata

from archray.errors import DamagedFile
from archray.platform.engine.pool_scoring import POOL
from archray.platform.methods.plain.config import ZeroCostConfig
from archray.platform.methods.plain.tables import SUGGESTIONS, Trials, searcher_options
from archray.platform.methods.recipe import Report
from archray.platform.methods.report import list_trials, network_headline, network_sections
from archray.platform.methods.searchers import codes_of, signed
from archray.platform.quantities import Spread, quantity_of, significant
from archray.platform.report import figures, section
from archray.platform.report.curves import BASELINE, CURVES_HEIGHT, FINAL, OWN_SCHEDULE, SEARCH, TrainingCurves
from archray.platform.report.figures import FOUND, TRIAL, NothingToDraw, figure, figure_section
from archray.platform.report.measures import Measured, best_of_random, measured_networks
from archray.platform.report.page import Card, Headline, MakeSection
from archray.platform.report.run_sections import Tables, accuracy_cards, headline_cards
from archray.platform.report.section import Column, Section, failures, numbers, numeric, paragraphs, table
from archray.platform.report.statistics import spearman
from archray.platform.report.texts import texts_of
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.platform.run.run_summary import Listing
from archray.plurals import count
from archray.searchers.pool_file import PoolFile
from archray.searchers.rank_surrogate.search import load_metric_pool
from archray.searchers.rank_surrogate.surrogate import RankSurrogate, metric_scores
from archray.trainables.spaces import get_space
from archray.trainables.spaces.encodings import TOKENS
from archray.trainables.spaces.table_space import TableSpace
from archray.trainables.tabular import OBJECTIVE

_text = texts_of(__package__)


def names_of(run: Run[Any]) -> section.ShortNames:
    """Short names of the selected architecture and of all trained ones of the best repeat, by value."""
    trials = Trials.of(run.best)
    return section.short_names(run, () if trials.table.empty else trials.table["architecture"][trials.order])


_TABLES: Tables = {
    "scoring the pool": ("pool", POOL),
    "search": SUGGESTIONS,
    "final training": ("final", TRIALS),
    "other members of the front": ("members", TRIALS),
    "comparison": ("baseline", TRIALS),
}
HEADLINES = ("test_accuracy", "result")
_SECONDS = {
    "validation_accuracy": "time_total_s",
    "objective": "seconds",
}  # column of the time of a trial, by the column of its value
_CURVES = TrainingCurves((SEARCH, FINAL, BASELINE), of_both=OWN_SCHEDULE, names_of=names_of)
_MANY = 300  # number of trials above which points are drawn smaller
_MOST = 1000  # number of trials above which only some points are drawn
_FITTED = 1000  # number of trials above which the weights of the metrics are fitted to some; the fit takes O(n^3)


@figure(height=270)
def plain_best_so_far(run: Run[Any], canvas: Figure) -> None:
    """The validation accuracy of each trial of a plain search, in the order of suggestion, and the best so far."""
    names, curves = names_of(run), best_of_repeats(run)
    trials = Trials.of(run.best)
    quantity = trials.quantity
    values, number = trials.values * quantity.factor, np.arange(1, len(trials.values) + 1)
    axes = canvas.subplots()
    x, curves = np.arange(1, curves.shape[1] + 1), curves * quantity.factor
    mean = curves.mean(axis=0)
    if len(curves) > 1:
        figures.draw_spread(axes, x, curves, curves.std(axis=0, ddof=1), FOUND, -np.inf)
    else:
        size = 8 if len(values) > _MANY else 22
        improved = np.flatnonzero(np.diff(curves[0], prepend=np.nan) != 0)
        drawn = np.union1d(figures.evenly_spaced(len(values), _MOST), improved[np.isfinite(curves[0][improved])])
        number, values, architectures = number[drawn], values.iloc[drawn], trials.table["architecture"].iloc[drawn]
        axes.scatter(number, values, s=size, color=TRIAL, alpha=0.75, linewidth=0)
        texts = [
            f"{place}: {names.of(name)}\n{quantity.text(value / quantity.factor)}"
            for place, name, value in zip(number, architectures, values, strict=True)
        ]
        figures.add_tooltips(axes, number, values, texts)
    axes.step(x, mean, where="post", color=FOUND, linewidth=2, zorder=3)
    axes.plot(x[-1:], mean[-1:], "o", color=FOUND, markersize=4, zorder=3)
    figures.few_ticks(axes, 8, integer=True)
    axes.set(xlabel="training runs", ylabel=quantity.axis)


def best_of_repeats(run: Run[Any]) -> np.ndarray:
    """The best value so far after each trial of each repeat, (repeats, trials); NaN before the first value.

    A repeat with fewer trials keeps its last value. Raises: NothingToDraw if no trial has a value.
    """
    searched = [trials for one in run.repeats or [run] if not (trials := Trials.of(one)).table.empty]
    values = [trials.losses for trials in searched]
    if not any(losses.notna().any() for losses in values):
        raise NothingToDraw("no trial of this search has finished with a validation accuracy")
    length = max(map(len, values))
    rows = [pd.Series(losses.to_numpy()).cummin().ffill().reindex(range(length)).ffill() for losses in values]
    return np.array(rows, dtype=float) * (1 if searched[0].mode == "min" else -1)


def best_so_far_section(run: Run[Any]) -> Section:
    """The figure, and the number of trials until the best one."""
    curves = best_of_repeats(run)
    repeats, length = curves.shape
    trials = Trials.of(run.best)
    last = trials.quantity.spread(curves[:, -1])
    return figure_section(
        "progress",
        "Best so far",
        plain_best_so_far(run),
        description=f"Best {trials.quantity.label} so far over {count(length, 'training run')}; at the end {last}.",
        caption=_text(
            "progress",
            repeats=repeats,
            spread=figures.spread_words(repeats, "standard deviation"),
            best=1 + (trials.best or 0),
            training_runs=length,
            most=_MOST,
        ),
    )


@figure(height=CURVES_HEIGHT)
def plain_training_curves(run: Run[Any], canvas: Figure) -> None:
    """Accuracy and loss by epoch of all training runs of a plain search: search, final training, random baseline."""
    _CURVES.draw(run, canvas)


def curves_section(run: Run[Any]) -> Section:
    """The training curves of the run. None without a finite value."""
    return _CURVES.section(run, plain_training_curves(run))


def _thing(run: Run[Any]) -> str:
    return "lookup" if run.config.on_table else "training run"


def _found_row(run: Run[Any], trials: Trials) -> int | None:
    """The row of the selected architecture, one of the best; None if no row has a value."""
    number = (run.found or {}).get("number")
    return trials.best if number is None else int(number) - 1


def choice_section(run: Run[Any]) -> Section | None:
    """The reason for the selection: the rank among the trials. None for a run without a result."""
    names, run = names_of(run), run.best
    trials = Trials.of(run)
    best, quantity = _found_row(run, trials), trials.quantity
    if run.found is None or best is None:
        return None
    values = trials.values[trials.order].dropna()
    if values.empty:
        raise DamagedFile.at(f"{run.folder}/{'/'.join(SUGGESTIONS)}", f"it contains no {quantity.label}")
    reasons = failures(trials.table)
    text = _text(
        "choice",
        training_runs=count(len(values), _thing(run)),
        name=names.of(run.architecture),
        number=best + 1,
        extreme="lowest" if trials.mode == "min" else "highest",
        label=quantity.label,
        best=quantity.show(values.iloc[0]),
        second=quantity.show(values.iloc[1]) if len(values) > 1 else None,
        median=quantity.show(float(np.median(values))),
        stopped=int((reasons.isna() & trials.values.isna()).sum()),
        failures=int(reasons.notna().sum()),
    )
    return Section("choice", "Why this architecture", paragraphs([text, *_constraint(run)]))


def _constraint(run: Run[Any]) -> list[str]:
    """The constraint on the pool's metric in words; empty without a constraint, or before the pool is scored."""
    config, pool = run.config, run.table("pool", POOL)
    if not isinstance(config, ZeroCostConfig) or (penalty := config.penalty) is None or pool.empty:
        return []
    values = numbers(pool, config.proxy)
    values = values[np.isfinite(values)]
    nu = penalty.bound(values.to_numpy())
    choice = values[pool.loc[values.index, "architecture"] == run.architecture]
    text = _text(
        "constraint",
        metric=config.proxy,
        nu=nu,
        mu=penalty.mu,
        by_mean=penalty.nu is None,
        size=len(values),
        above=int((values > nu).sum()),
        choice=choice.iloc[0] if len(choice) else None,
    )
    return [text]


def metric_trust(run: Run[Any]) -> pd.DataFrame:
    """The weight of each metric in a search by several metrics, a row each, by weight.

    Returns: `metric`; `before` and `weight`, the weight of its normal score in the surrogate of `rank-surrogate` before
    and after the trials (the weights of RoBoT have another scale, so the same surrogate is used); `correlation`,
    Spearman's with the values of the trials (NaN with fewer than three); `rank` of the selected architecture in the
    pool by this metric, from 1. Of more than _FITTED trials the weights follow from _FITTED, evenly spaced by value.
    """
    table, trials = run.best.table("pool", POOL), Trials.of(run.best)
    proxies = searcher_options(run).get("proxies")
    proxies = proxies or [signed(column) for column in table.columns if column != "architecture"]
    names = [name for name in proxies if table[name.removeprefix("-")].nunique() > 1]
    space = get_space(run.space)
    encoding = codes_of(space, space.encoding if isinstance(space, TableSpace) else TOKENS)
    pool = load_metric_pool(PoolFile.of((run.best.folder / "pool" / POOL).uri), names, encoding)
    place = {name: row for row, name in enumerate(pool.architectures)}
    finite = trials.values.notna()
    rows = [place[name] for name in trials.table["architecture"][finite]]
    losses = trials.losses[finite].tolist()
    surrogate = RankSurrogate(metric_scores(pool.columns), pool.codes)
    best = rows[int(np.argmin(losses))]
    frame = pd.DataFrame({"metric": names, "before": surrogate.metric_weights([], [])})
    fitted = np.sort(np.argsort(losses, kind="stable")[figures.evenly_spaced(len(losses), _FITTED)])
    frame["weight"] = surrogate.metric_weights([rows[i] for i in fitted], [losses[i] for i in fitted])
    frame["correlation"] = [spearman(column[rows], -np.array(losses)) for column in pool.columns.T]
    columns = [-np.nan_to_num(column, nan=-np.inf) for column in pool.columns.T]
    frame["rank"] = [int(rankdata(column, method="min")[best]) for column in columns]
    return frame.sort_values("weight", ascending=False, kind="stable", ignore_index=True)


def trust_section(run: Run[Any]) -> Section | None:
    """The table of `metric_trust`. None before a trial has a value."""
    trials = Trials.of(run.best)
    if trials.table.empty or trials.best is None:
        return None
    trust, size = metric_trust(run), len(run.best.table("pool", POOL))
    headings = numeric("Weight", "Spearman correlation", f"Rank of the selected architecture (of {size})")
    columns, rows = [Column("Metric", "name"), *headings], []
    for row in trust.to_dict("records"):
        rho = "" if np.isnan(row["correlation"]) else f"{row['correlation']:.2f}"
        rows.append((row["metric"], f"{row['weight']:.2f}", rho, row["rank"]))
    content = table(columns, rows, label="Weight of each metric after the search")
    training_runs = int(trials.values.notna().sum())
    caption = _text("trust", training_runs=training_runs, fitted=_FITTED, before=f"{trust['before'][0]:.2f}")
    return Section("trust", "Weights of the metrics", section.captioned(content, caption))


def rungs_section(run: Run[Any]) -> Section | None:
    """The number and results of trials by their last epoch. None if all trials have equally many epochs."""
    trials = Trials.of(run.best)
    if trials.table.empty:
        return None
    epochs = numbers(trials.table, "epoch")[failures(trials.table).isna()].dropna()
    if epochs.nunique() < 2:
        return None
    reached, bare = numbers(trials.table, trials.key), trials.quantity.bare
    rows = []
    for epoch, ends in epochs.groupby(epochs):
        values = reached[ends.index]
        training_runs = (int((epochs >= epoch).sum()), len(ends))
        rows.append((f"{epoch:.0f}", *training_runs, bare(values.max()), bare(values.median())))
    headings = numeric("Epoch", "Reached", "Stopped", "Best", "Median")
    content = table(headings, rows, label="Trials by their last epoch")
    caption = _text("rungs", axis=trials.quantity.axis)
    return Section("rungs", "Trials by their last epoch", section.captioned(content, caption))


def trials_section(run: Run[Any]) -> Section | None:
    """The trials, best first. None without trials."""
    names, run = names_of(run), run.best
    trials = Trials.of(run)
    if trials.table.empty:
        return None
    values, reasons, epochs = trials.values, failures(trials.table), numbers(trials.table, "epoch")
    reached, seconds = numbers(trials.table, trials.key), numbers(trials.table, _SECONDS[trials.key])
    order, best, several, timed = trials.order, _found_row(run, trials), epochs.nunique() > 1, seconds.notna().any()
    sorted_so = "ascending" if trials.mode == "min" else "descending"
    columns = [Column("Architecture", "name"), Column(trials.quantity.heading, "number", sorted_so)]
    decisions = tuple(run.config.training_decisions)
    columns += numeric(*decisions, "No.", *(["Epochs"] if several else []), *(["Seconds"] if timed else []))
    columns += [Column("Note")]
    rows = []
    for row in order:
        note = reasons[row] or ("best" if row == best else "stopped early" if np.isnan(values[row]) else "")
        name = trials.table["architecture"][row]
        cells = [row + 1, *([f"{epochs[row]:.0f}"] if several else []), *([significant(seconds[row])] if timed else [])]
        decided = [json.dumps(value) for value in run.config.parts(name)[1].values()]
        rows.append((names.of(name), trials.quantity.bare(reached[row]), *decided, *cells, note))
    text = f"{count(len(trials.table), _thing(run))}, best first."
    body = table(
        columns,
        rows,
        label="Trials of the search",
        marked=None if best is None else list(order).index(best),
        faint=frozenset(place for place, row in enumerate(order) if np.isnan(values[row])),
    )
    return Section("trials", "Trials of the search", paragraphs([text]) + body)


def plain_sections(*sections: MakeSection) -> tuple[MakeSection, ...]:
    """The sections of a report, with additional sections before the best so far."""
    return network_sections(
        choice_section,
        *sections,
        best_so_far_section,
        curves_section,
        rungs_section,
        trials_section,
        tables=_TABLES,
        names_of=names_of,
        order="in the order of their value in the search",
    )


def measured_plain(run: Run[Any]) -> Measured:
    """The results of a single run: final training and random architectures; for a table, lookups of both."""
    if not run.config.on_table:
        return measured_networks(run)
    trials, random = Trials.of(run), run.table("baseline", TRIALS)
    spreads = {
        "result": Spread.of(numbers(run.table("final", TRIALS), "result"), ""),
        "random_result": Spread.of(numbers(random, "result"), "random architecture"),
        "best_random_result": best_of_random(random, (OBJECTIVE, trials.mode), "result", len(trials.table)),
    }
    return {key: spread for key, spread in spreads.items() if spread}


def _table_lead(run: Run[Any]) -> str:
    """The selected architecture of a search on a table, and its result, in one or two sentences."""
    measured = measured_plain(run)
    if "result" not in measured:
        return "The search on a table has not finished."
    result, random, best = quantity_of("result"), measured.get("random_result"), measured.get("best_random_result")
    return _text(
        "table_lead",
        result=result.show(measured["result"].mean),
        random=random and f"{result.spread(random)} of {count(random.number, random.noun)}",
        best=best and f"{result.show(best.mean)} of the best of them by objective",
    )


def headline(run: Run[Any]) -> Headline:
    """The test accuracies, and the number of training runs."""
    trials, on_table = Trials.of(run.best), run.config.on_table
    cards = headline_cards(measured_plain(run), HEADLINES) if on_table else accuracy_cards(run)
    if trials.best is not None:
        value = trials.quantity.show(trials.values[trials.best])
        cards.append(Card("trial", value, f"best search trial, {trials.quantity.label}"))
    architecture = (run.best.result or {}).get("architecture")
    training = run.config.parts(architecture)[1] if architecture else {}
    facts = {
        "Decided": ", ".join(f"{key} = {json.dumps(value)}" for key, value in training.items()) or None,
        "Table": f"SHA-256 {run.manifest['data_checksum'][:12]}" if on_table else None,
        "Search": count(len(trials.table), _thing(run)) if len(trials.table) else None,
    }
    return network_headline(run, _TABLES, facts, cards=cards, lead=_table_lead(run) if on_table else None)


def listings(run: Run[Any]) -> Sequence[Listing]:
    """The trials of the search, best first."""
    trials = Trials.of(run)
    least = trials.mode == "min"
    return list_trials(trials.table, "trials of the search", trials.key, [run.architecture], least_first=least)


REPORT = Report[Any](
    measured=measured_plain, headlines=HEADLINES, headline=headline, sections=plain_sections(), listings=listings
)
TRUST_REPORT = replace(REPORT, sections=plain_sections(trust_section))
