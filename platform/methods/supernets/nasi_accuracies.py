"""What the trace norm and other training-free metrics say of a table's accuracies. Shu 2022, Figure 6.3, Table 6.5."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.supernets.nasi_tables import IN_TABLE, METRICS, TABLE, searches
from archray.platform.methods.supernets.search_seeds import names_of
from archray.platform.methods.supernets.table_values import FEWEST
from archray.platform.quantities import MISSING, signed, significant
from archray.platform.report.figures import FOUND, GREEN, INK, MUTED, TRIAL, NothingToDraw, drawing, figure, plain
from archray.platform.report.pointed_at import tell_points
from archray.platform.report.section import Column, Section, captioned, numeric, paragraphs, table
from archray.platform.report.table_columns import flags, numbers
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.nasi.one_step import reward
from archray.trainables.proxies import low_is_good
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_base import canonical_string

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
