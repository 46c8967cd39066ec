"""What the trace norm and other training-free metrics say of a table's accuracies. Shu 2022, Figure 6.3, Table 6.5."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.nasi.config import FEWEST
from archray.platform.methods.nasi.tables import AGREEMENT, IN_TABLE, METRICS, TABLE, searches
from archray.platform.methods.supernets.tables import names_of
from archray.platform.quantities import MISSING, signed, significant
from archray.platform.report.figures import (
    FOUND,
    GREEN,
    INDIGO,
    INK,
    MUTED,
    PINK,
    TRIAL,
    NothingToDraw,
    drawing,
    figure,
    logarithmic,
    plain,
    set_height,
    tell_points,
)
from archray.platform.report.section import (
    Column,
    Section,
    captioned,
    failures,
    flags,
    numbers,
    numeric,
    paragraphs,
    table,
)
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.nasi.one_step import reward
from archray.trainables.proxies import low_is_good
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_space import canonical_string

BINS, PER_BIN = 10, 5  # of the figure's means, at most and at least
ALL, WITHIN = "all", "within nu"


@dataclass(frozen=True)
class Accuracies:
    """Architectures that a table has, scored without training.

    Attributes:
        rows: `architecture`, `result` as the table has it, a column per metric, `drawn`: not chosen by the search.
        column: what the table calls the result. mode: `max` or `min`. best: of the whole table.
        nu: Eq. 6.14, the mean trace norm of those that are drawn, on the same networks and batch.
    """

    rows: pd.DataFrame
    column: str
    mode: str
    best: float
    nu: float

    @property
    def drawn(self) -> pd.DataFrame:
        """With a trace norm; a network without a path from input to output has none."""
        return self.rows[self.rows["drawn"] & self.rows[METRICS[0]].notna()]

    @property
    def of(self) -> dict[str, float]:
        """canonical string -> result."""
        return dict(zip(self.rows["architecture"], self.rows["result"], strict=True))


def accuracies(run: Run[Any]) -> Accuracies | None:
    """What the stage `table` of a run wrote; None where no table was given."""
    frame, known = run.table("table", IN_TABLE), run.document("table", TABLE)
    if frame.empty or known is None:
        return None
    values = {name: numbers(frame, name) for name in (*METRICS, "parameters", "result")}
    rows = frame.assign(**values, drawn=flags(frame, "drawn"))
    nu = float(rows.loc[rows["drawn"], METRICS[0]].mean())
    return Accuracies(rows, known["column"], known["mode"], float(known["best"]), nu)


@dataclass(frozen=True)
class MetricCorrelation:
    """How a metric goes with the results of the architectures that are drawn; positive where it is right.

    Attributes:
        of: `all` of them, or those `within nu`, of which the trace norm is no larger than nu.
        spearman, kendall, pearson: NaN of fewer than three, or where all are alike.
        number: n.
    """

    metric: str
    of: str
    spearman: float
    kendall: float
    pearson: float
    number: int


def correlations(known: Accuracies, mu: float) -> list[MetricCorrelation]:
    """Of the trace norm, its reward (Eq. 6.8), the other metrics and the size: of all, then within nu. Table 6.5."""
    drawn = known.drawn
    traces = drawn[METRICS[0]].to_numpy()
    promises = {
        "trace norm": drawn[METRICS[0]],
        "reward": pd.Series(reward(traces, known.nu, mu), index=drawn.index),
        **{name: -drawn[name] if low_is_good(name) else drawn[name] for name in (*METRICS[1:], "parameters")},
    }
    results = drawn["result"] if known.mode == "max" else -drawn["result"]
    masks = {ALL: np.ones(len(drawn), dtype=bool), WITHIN: traces <= known.nu}
    return [
        _correlation(metric, of, values[mask], results[mask])
        for of, mask in masks.items()
        for metric, values in promises.items()
        if (metric, of) != ("reward", WITHIN)  # where it is the trace norm
    ]


def _correlation(metric: str, of: str, values: pd.Series, results: pd.Series) -> MetricCorrelation:
    both = pd.DataFrame({"metric": values, "result": results}).dropna()
    few = len(both) < FEWEST or both.nunique().min() < 2
    spearman, kendall, pearson = (
        math.nan if few else float(both["metric"].corr(both["result"], method=method))
        for method in ("spearman", "kendall", "pearson")
    )
    return MetricCorrelation(metric, of, spearman, kendall, pearson, len(both))


@figure(height=340)
def nasi_against_accuracy(run: Run[Any], canvas: Figure) -> None:
    """What a table says of architectures against their trace norms, means of bins, nu, and what NASI found."""
    names, run = names_of(run), run.best
    known = accuracies(run)
    if known is None or known.drawn.empty:
        raise NothingToDraw("the run compares no trace norms with a table's accuracies; set its option agreement_table")
    axes, drawn = canvas.subplots(), known.drawn
    x, y = drawn[METRICS[0]], drawn["result"]
    axes.scatter(x, y, s=18, color=TRIAL, linewidths=0, alpha=0.7, label="architectures")
    middles, means, deviations = binned(x.to_numpy(), y.to_numpy())
    if len(middles):
        axes.errorbar(middles, means, deviations / 2, color=INK, linewidth=1.5, capsize=3, label="means of bins")
    axes.axvline(known.nu, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="nu")
    axes.axhline(known.best, color=GREEN, linewidth=1.2, label="best of the table")
    found = known.rows[known.rows["architecture"].isin(list(_found(run)))]
    if not found.empty:  # else the table has none of them
        axes.scatter(found[METRICS[0]], found["result"], s=60, color=FOUND, zorder=4, label="found")
    if (known.rows[METRICS[0]].dropna() > 0).all():
        axes.set_xscale("log")
        plain(axes.xaxis)
    axes.set_xlabel("trace norm")
    axes.set_ylabel(known.column)
    for rows in (drawn, found):
        texts = (
            f"{names.of(row['architecture'])}\n{known.column} {row['result']:.4g}\ntrace norm {row[METRICS[0]]:.4g}"
            for row in rows.to_dict("records")
        )
        tell_points(axes, rows[METRICS[0]], rows["result"], texts)
    canvas.legend(loc="outside upper left", ncols=3)


def binned(traces: np.ndarray, results: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of bins with equally many architectures, by trace norm: its mean, and mean and deviation of the results.

    traces, results: (n,). Empty where there are too few for two bins.
    """
    number = min(BINS, len(traces) // PER_BIN)
    if number < 2:
        return np.empty(0), np.empty(0), np.empty(0)
    bins = np.array_split(np.argsort(traces, kind="stable"), number)
    return (
        np.array([traces[each].mean() for each in bins]),
        np.array([results[each].mean() for each in bins]),
        np.array([results[each].std(ddof=1) for each in bins]),
    )


def _found(run: Run[Any]) -> Iterator[str]:
    """The canonical forms of what the search seeds found."""
    space = get_space(run.space)
    return (canonical_string(space, row.architecture) for row in searches(run))


def accuracies_section(run: Run[Any]) -> Section | None:
    """The scatter, and the correlations. Nothing where no table was given, or before it was looked at."""
    known = accuracies(run.best)
    if known is None or known.drawn.empty:
        return None
    drawn, mu = known.drawn, run.config.nasi.mu
    within = int((drawn[METRICS[0]] <= known.nu).sum())
    told = f"{known.column} of {count(len(drawn), 'architecture')} of the table against their trace norms"
    shown = drawing("nasi-accuracies", nasi_against_accuracy(run), description=f"{told}.")
    caption = (
        f"{told}; nu is their mean, {significant(known.nu)} (Eq. 6.14). Bins have equally many architectures, and "
    )
    caption += "a bar is one standard deviation of the results in all."
    text = (
        "Each architecture was scored as a network of its own, as wide and deep as the supernet, on one batch of the "
    )
    text += (
        "search's images and labels. Correlations are positive where a metric is right. NASI asks for a large trace "
    )
    text += (
        f"norm within nu, which {within} of {len(drawn)} have: so the thesis shows its metric on these only. “Reward” "
    )
    text += f"is what NASI maximises, the trace norm less {significant(mu)} times what it has above nu, of all."
    unscored = int(known.rows["drawn"].sum()) - len(drawn)
    if unscored:
        text += f" {count(unscored, 'architecture')} more had no trace norm and are left out."
    columns = [Column("Metric"), Column("Architectures"), *numeric("n", "Spearman", "Kendall", "Pearson")]
    rows = [
        (one.metric, one.of, one.number, *(_digits(value) for value in (one.spearman, one.kendall, one.pearson)))
        for one in correlations(known, mu)
    ]
    content = table(columns, rows, label=f"Correlation of metrics with {known.column}")
    return Section("accuracies", "Does it go with accuracy?", captioned(shown, caption) + paragraphs([text]) + content)


def _digits(value: float) -> str:
    return MISSING if np.isnan(value) else signed(f"{value:.2f}")


# Whether approximations of the trace norm agree with the exact one, and random labels and inputs with the data's.


_FEWEST = 3  # architectures that a correlation needs
_ROW = 230  # height of a row of two panels


@dataclass(frozen=True)
class Agreement:
    """Two trace norms of the same architectures.

    Attributes:
        other, reference: columns. words: what the first one is.
        pearson, spearman: of the architectures with both.
        rows: the two columns, finite.
    """

    other: str
    reference: str
    words: str
    pearson: float
    spearman: float
    rows: pd.DataFrame


def agreements(run: Run[Any]) -> list[Agreement]:
    """Of the run's comparison: the approximations with the exact trace norm, then what is random with what is true."""
    frame = run.table("agreement", AGREEMENT)
    if frame.empty:
        return []
    frame = frame[failures(frame).isna()]
    sizes = sorted(int(name[6:]) for name in frame.columns if name.startswith("batch_"))
    pairs = [("samples", "exact", "sum of samples")]
    pairs += [(f"batch_{size}", "exact", f"mini-batch of {size}") for size in sizes]
    pairs += [(f"random_{what}", "batch", f"random {what}") for what in ("labels", "inputs")]
    found = []
    for other, reference, words in pairs:
        both = pd.DataFrame({name: numbers(frame, name) for name in (other, reference)}).dropna()
        if len(both) >= _FEWEST:
            pearson = float(both[other].corr(both[reference]))
            spearman = float(both[other].corr(both[reference], method="spearman"))
            found.append(Agreement(other, reference, words, pearson, spearman, both))
    return found


@figure(height=_ROW)
def nasi_agreement(run: Run[Any], canvas: Figure) -> None:
    """Approximated trace norms of random architectures against the exact ones, and with random labels and inputs."""
    shown = _drawn(agreements(run.best))
    if not shown:
        raise NothingToDraw("the run compares no trace norms; set its option agreement")
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    set_height(canvas, _ROW * rows)
    grid = canvas.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(shown) :]:
        axes.set_visible(False)
    for axes, each in zip(grid.flat, shown, strict=False):
        x, y = each.rows[each.reference], each.rows[each.other]
        axes.scatter(x, y, s=18, color=FOUND, linewidths=0)
        axes.set_title(f"{each.words}, ρ = {each.pearson:.2f}")
        axes.set_xlabel("exact trace norm" if each.reference == "exact" else "labels and inputs of the data")
        tell_points(
            axes, x, y, (f"{each.words}\n{b:.4g} where the other is {a:.4g}" for a, b in zip(x, y, strict=True))
        )


def _drawn(each: list[Agreement]) -> list[Agreement]:
    """The sum of samples, the largest mini-batch, and what is random."""
    batches = [one.other for one in each if one.other.startswith("batch_")]
    return [one for one in each if not one.other.startswith("batch_") or one.other == batches[-1]]


def agreement_section(run: Run[Any]) -> Section | None:
    """A scatter of each, and the table of all correlations. Nothing where it was not asked for."""
    each = agreements(run.best)
    if not each:
        return None
    number = len(each[0].rows)
    told = f"Trace norms of {count(number, 'random architecture')} at the same initial weights"
    shown = drawing("nasi-agreement", nasi_agreement(run), description=f"{told}, one against another.")
    caption = f"{told}. Where labels or inputs are random, the mini-batch is otherwise the same."
    columns = [Column("Trace norm"), Column("Against"), *numeric("Pearson", "Spearman")]
    rows = [(one.words, one.reference, f"{one.pearson:.2f}", f"{one.spearman:.2f}") for one in each]
    content = table(columns, rows, label="How trace norms agree", sortable=False)
    return Section("agreement", "Do the approximations agree?", captioned(shown, caption) + content)


# What other nu and mu select from the same gradients, and how good that is. Shu 2022, Figures 6.4 and 6.6.


_CONSTANTS_ROW = 190  # height of a panel
_LINES = (MUTED, FOUND, PINK, INDIGO, INK)  # of the values of mu
RESULT = "result"


def constants_of(run: Run[Any], known: Accuracies | None) -> pd.DataFrame:
    """Of the best seed a row per pair: `nu`, `mu`, `architecture`, `trace`, `parameters`, and the table's `result`.

    What the table does not have, or what is nothing, has no result. Empty before the search.
    """
    rows = searches(run)
    if not rows:
        return pd.DataFrame()
    space, values = get_space(run.space), known.of if known else {}
    results = [
        values.get(canonical_string(space, name), float("nan")) if isinstance(name, str) else float("nan")
        for name in rows[0].constants["architecture"]
    ]
    return rows[0].constants.assign(**{RESULT: results})


def _measures(tried: pd.DataFrame, known: Accuracies | None) -> dict[str, str]:
    """Column -> words, of what is known of the architectures."""
    words = {"trace": "trace norm", "parameters": "parameters", RESULT: known.column if known else ""}
    return {column: label for column, label in words.items() if column in tried and tried[column].notna().any()}


@figure(height=_CONSTANTS_ROW)
def nasi_constants(run: Run[Any], canvas: Figure) -> None:
    """Trace norm, size and a table's result of what NASI would have selected with other constraints and penalties."""
    run = run.best
    known = accuracies(run)
    tried = constants_of(run, known)
    measures = _measures(tried, known)
    if not measures:
        raise NothingToDraw("no search of the run has ended; what other constants select is known then")
    set_height(canvas, _CONSTANTS_ROW * len(measures))
    panels = canvas.subplots(len(measures), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (column, label) in zip(panels, measures.items(), strict=True):
        for number, (mu, rows) in enumerate(tried.groupby("mu")):
            ordered = rows.sort_values("nu")
            colour, name = _LINES[number % len(_LINES)], f"mu {significant(mu)}"
            axes.plot(ordered["nu"], ordered[column], color=colour, linewidth=1.4, marker="o", ms=4, label=name)
            texts = [
                f"nu {significant(nu)}, {name}\n{label} {significant(value)}"
                for nu, value in zip(ordered["nu"], ordered[column], strict=True)
            ]
            tell_points(axes, ordered["nu"], ordered[column], texts)
        axes.set_ylabel(label)
    panels[0].set_xscale("log")
    logarithmic(panels[-1].xaxis)
    panels[-1].set_xlabel("nu, of the first step")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper left", ncols=len(labels))


def constants_section(run: Run[Any]) -> Section | None:
    """What other nu and mu make of the same gradients, as figure and tables. Nothing before the search."""
    names, best = names_of(run), run.best
    known = accuracies(best)
    tried = constants_of(best, known)
    measures = _measures(tried, known)
    if not measures:
        return None
    [found, *_] = searches(best)
    same = int((tried["architecture"] == found.architecture).sum())
    text = f"The gradients of the best seed, once more with other constants: {count(len(tried), 'pair')} of nu (of the "
    text += f"first step) and mu select {count(tried['architecture'].nunique(), 'architecture')}; {same} of the pairs "
    text += (
        f"select what it found, {names.of(found.architecture)}. The looser the constraint, the larger the trace norm "
    )
    text += "may be. Nothing is found where every sample is above nu and mu is 1."
    if RESULT not in measures:
        text += " How accurate they are, a table of trained architectures would say (agreement_table)."
    shown = drawing("nasi-constants", nasi_constants(run), description="What is selected, against nu, a line per mu.")
    caption = f"{', '.join(measures.values())} of what is selected, against nu; parameters are those of a network as "
    caption += "wide and deep as the supernet."
    content = "".join(_grid(tried, column, label) for column, label in measures.items())
    return Section("constants", "What nu and mu do", paragraphs([text]) + captioned(shown, caption) + content)


def _grid(tried: pd.DataFrame, column: str, label: str) -> str:
    """A table with a row per mu and a column per nu."""
    nus, of_pair = sorted(tried["nu"].unique()), tried.set_index(["mu", "nu"])
    rows = []
    for mu in sorted(tried["mu"].unique()):
        cells = [of_pair.loc[(mu, nu)] for nu in nus]
        words = ["nothing" if pd.isna(cell["architecture"]) else significant(cell[column]) for cell in cells]
        rows.append((significant(mu), *words))
    columns = [Column(f"{label}: mu \\ nu"), *numeric(*map(significant, nus))]
    return table(columns, rows, label=f"{label} of what other constants select", sortable=False)
