"""Tables, figures and sections of NASI: accuracies in a table, agreement of trace norms, other constants.

Shu 2022, sections 6.4 and 6.6, Figures 6.3 to 6.6, Tables 6.5 and 6.7.
"""

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from archray.platform.methods.nasi.config import AGREEMENT, IN_TABLE, METRICS, REWARD, TABLE
from archray.platform.methods.supernets.tables import FOUND_CELLS, names_of
from archray.platform.quantities import significant
from archray.platform.report import figures
from archray.platform.report.figures import FOUND, GREEN, INK, MUTED, TRIAL, NothingToDraw, figure, figure_section
from archray.platform.report.section import Column, Section, failures, flags, numbers, numeric, paragraphs, table
from archray.platform.report.statistics import CORRELATION, MIN_POINTS, finite_pairs, kendall, pearson, spearman
from archray.platform.report.texts import texts_of
from archray.platform.run.run import Run
from archray.plurals import count
from archray.trainables.nasi.one_step import reward
from archray.trainables.proxies import low_is_good
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_space import canonical_string

_text = texts_of(__package__)


@dataclass(frozen=True)
class NASISearchRow:
    """The result of one search seed.

    Attributes:
        seed, architecture, nu, trace, reward: the found architecture and its values; nu is that of the last step.
        traces, nus: (T,) values of the samples, in the order of the steps.
        constants: a row per pair of constants for the same gradients: `nu` (of the first step), `mu`, `architecture`,
            `trace`, `parameters`.
    """

    seed: int
    architecture: str
    nu: float
    trace: float
    reward: float
    traces: np.ndarray
    nus: np.ndarray
    constants: pd.DataFrame


def searches(run: Run[Any]) -> list[NASISearchRow]:
    """The searches that finished without a failure, best reward first."""
    cells = run.table("search", FOUND_CELLS)
    if REWARD not in cells:  # empty, or a table of another method
        return []
    cells = cells[failures(cells).isna()].sort_values(REWARD, ascending=False, kind="stable")
    rows = []
    for row in cells.to_dict("records"):
        samples = json.loads(row["samples"])
        rows.append(
            NASISearchRow(
                int(row["seed"]),
                row["architecture"],
                float(row["nu"]),
                float(row["found_trace"]),
                float(row[REWARD]),
                np.array(samples["trace"]),
                np.array(samples["nu"]),
                pd.DataFrame(json.loads(row["constants"])),
            )
        )
    return rows


# Metrics and the accuracies of a table. Shu 2022, Figure 6.3, Table 6.5.

BINS, PER_BIN = 10, 5  # maximal number of bins, and minimal number of architectures per bin
ALL, WITHIN = "all", "within nu"


@dataclass(frozen=True)
class Accuracies:
    """Architectures of a table that were scored without training.

    Attributes:
        rows: `architecture`, `result` in the table, a column per metric, and `drawn` (drawn at random from the table).
        column: the table's column of the result.
        mode: `max` or `min`.
        best: best result of the whole table.
        nu: mean trace norm of the drawn architectures on the same networks and batch (Eq. 6.14).
    """

    rows: pd.DataFrame
    column: str
    mode: str
    best: float
    nu: float

    @property
    def drawn(self) -> pd.DataFrame:
        """The drawn rows with a trace norm; a network without a path from input to output has none."""
        return self.rows[self.rows["drawn"] & self.rows[METRICS[0]].notna()]

    @property
    def of(self) -> dict[str, float]:
        """canonical string -> result."""
        return dict(zip(self.rows["architecture"], self.rows["result"], strict=True))


def accuracies(run: Run[Any]) -> Accuracies | None:
    """The results of the stage `table` of a run; None without a table."""
    frame, document = run.table("table", IN_TABLE), run.document("table", TABLE)
    if frame.empty or document is None:
        return None
    values = {name: numbers(frame, name) for name in (*METRICS, "parameters", "result")}
    rows = frame.assign(**values, drawn=flags(frame, "drawn"))
    nu = float(rows.loc[rows["drawn"], METRICS[0]].mean())
    return Accuracies(rows, document["column"], document["mode"], float(document["best"]), nu)


@dataclass(frozen=True)
class MetricCorrelation:
    """The correlation of a metric with the results of the drawn architectures; positive if the metric is right.

    Attributes:
        metric: name of the metric.
        of: `all` architectures, or those with a trace norm `within nu`.
        spearman, kendall, pearson: NaN for fewer than three architectures, or for constant values.
        number: number of architectures.
    """

    metric: str
    of: str
    spearman: float
    kendall: float
    pearson: float
    number: int


def correlations(scores: Accuracies, mu: float) -> list[MetricCorrelation]:
    """Correlations of trace norm, reward (Eq. 6.8), other metrics and size: for all, then within nu. Table 6.5."""
    sample = scores.drawn
    traces = sample[METRICS[0]].to_numpy()
    predictors = {
        "trace norm": traces,
        "reward": reward(traces, scores.nu, mu),
        **{name: (-1 if low_is_good(name) else 1) * sample[name].to_numpy() for name in (*METRICS[1:], "parameters")},
    }
    results = (1 if scores.mode == "max" else -1) * sample["result"].to_numpy()
    masks = {ALL: np.ones(len(sample), dtype=bool), WITHIN: traces <= scores.nu}
    pairs = {
        (metric, of): finite_pairs(values[mask], results[mask])
        for of, mask in masks.items()
        for metric, values in predictors.items()
        if (metric, of) != ("reward", WITHIN)  # within nu, the reward equals the trace norm
    }
    return [
        MetricCorrelation(metric, of, spearman(x, y), kendall(x, y), pearson(x, y), len(x))
        for (metric, of), (x, y) in pairs.items()
    ]


@figure(height=340)
def nasi_against_accuracy(run: Run[Any], canvas: Figure) -> None:
    """Results of a table by trace norm, with the means of bins, nu, and the architectures that NASI found."""
    names, run = names_of(run), run.best
    scores = accuracies(run)
    if scores is None or scores.drawn.empty:
        raise NothingToDraw("the run does not compare trace norms with a table's accuracies. Set agreement_table")
    axes, sample = canvas.subplots(), scores.drawn
    x, y = sample[METRICS[0]], sample["result"]
    axes.scatter(x, y, s=18, color=TRIAL, linewidths=0, alpha=0.7, label="architectures")
    middles, means, deviations = binned(x.to_numpy(), y.to_numpy())
    if len(middles):
        axes.errorbar(middles, means, deviations / 2, color=INK, linewidth=1.5, capsize=3, label="means of bins")
    axes.axvline(scores.nu, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), label="nu")
    axes.axhline(scores.best, color=GREEN, linewidth=1.2, label="best of the table")
    space = get_space(run.space)
    selections = [canonical_string(space, row.architecture) for row in searches(run)]
    selection = scores.rows[scores.rows["architecture"].isin(selections)]
    if not selection.empty:  # otherwise the table contains none of them
        axes.scatter(selection[METRICS[0]], selection["result"], s=60, color=FOUND, zorder=4, label="found")
    if (scores.rows[METRICS[0]].dropna() > 0).all():
        axes.set_xscale("log")
        figures.plain(axes.xaxis)
    axes.set_xlabel("trace norm")
    axes.set_ylabel(scores.column)
    for rows in (sample, selection):
        texts = (
            f"{names.of(row['architecture'])}\n{scores.column} {row['result']:.4g}\ntrace norm {row[METRICS[0]]:.4g}"
            for row in rows.to_dict("records")
        )
        figures.add_tooltips(axes, rows[METRICS[0]], rows["result"], texts)
    canvas.legend(loc="outside upper left", ncols=3)


def binned(traces: np.ndarray, results: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bins with equally many architectures, by trace norm: its mean, and mean and deviation of the results.

    traces, results: (n,). The arrays are empty if there are too few architectures for two bins.
    """
    number = min(BINS, len(traces) // PER_BIN)
    bins = np.array_split(np.argsort(traces, kind="stable"), number) if number > 1 else []
    means = [(traces[rows].mean(), results[rows].mean(), results[rows].std(ddof=1)) for rows in bins]
    middles, heights, deviations = np.array(means).reshape(-1, 3).T
    return middles, heights, deviations


def accuracies_section(run: Run[Any]) -> Section | None:
    """The scatter plot and the correlations. None without a table, or before its stage has finished."""
    scores = accuracies(run.best)
    if scores is None or scores.drawn.empty:
        return None
    sample, mu = scores.drawn, run.config.nasi.mu
    columns = [Column("Metric"), Column("Architectures"), *numeric("n", "Spearman", "Kendall", "Pearson")]
    rows = [
        (
            row.metric,
            row.of,
            row.number,
            *(CORRELATION.bare(value) for value in (row.spearman, row.kendall, row.pearson)),
        )
        for row in correlations(scores, mu)
    ]
    text = _text(
        "accuracies_text",
        within=int((sample[METRICS[0]] <= scores.nu).sum()),
        number=len(sample),
        mu=mu,
        unscored=int(scores.rows["drawn"].sum()) - len(sample),
    )
    subject = _text("accuracies", column=scores.column, number=len(sample))
    return figure_section(
        "accuracies",
        "Trace norm and accuracy",
        nasi_against_accuracy(run),
        description=f"{subject}.",
        caption=_text("accuracies_caption", subject=subject, nu=scores.nu),
        below=paragraphs([text]) + table(columns, rows, label=f"Correlation of metrics with {scores.column}"),
    )


# Approximations of the trace norm and the exact one; random labels and inputs and those of the data. Figure 6.1.

_ROW = 230  # height of a row of two panels


@dataclass(frozen=True)
class TraceNorms:
    """Two trace norms of the same architectures.

    Attributes:
        other, reference: columns.
        words: description of `other`.
        rows: the two columns of the architectures with both values.
    """

    other: str
    reference: str
    words: str
    rows: pd.DataFrame

    @property
    def pearson(self) -> float:
        return pearson(self.rows[self.other], self.rows[self.reference])


def agreements(run: Run[Any]) -> list[TraceNorms]:
    """The pairs of a run: approximations with the exact trace norm, then random labels and inputs with real ones."""
    frame = run.table("agreement", AGREEMENT)
    if frame.empty:
        return []
    frame = frame[failures(frame).isna()]
    sizes = sorted(int(name[6:]) for name in frame.columns if name.startswith("batch_"))
    pairs = [("samples", "exact", "sum of samples")]
    pairs += [(f"batch_{size}", "exact", f"mini-batch of {size}") for size in sizes]
    pairs += [(f"random_{what}", "batch", f"random {what}") for what in ("labels", "inputs")]
    norms = (
        TraceNorms(other, reference, words, pd.DataFrame({name: numbers(frame, name) for name in (other, reference)}))
        for other, reference, words in pairs
    )
    complete = (replace(pair, rows=pair.rows.dropna()) for pair in norms)
    return [pair for pair in complete if len(pair.rows) >= MIN_POINTS]


@figure(height=_ROW)
def nasi_agreement(run: Run[Any], canvas: Figure) -> None:
    """Approximate trace norms of random architectures compared with exact ones, also with random labels and inputs."""
    pairs = agreements(run.best)
    if not pairs:
        raise NothingToDraw("the run does not compare trace norms. Set agreement")
    batches = [pair.other for pair in pairs if pair.other.startswith("batch_")]
    pairs = [pair for pair in pairs if pair.other not in batches[:-1]]  # only the largest mini-batch
    for axes, pair in zip(figures.panels(canvas, len(pairs), 2, row=_ROW), pairs, strict=True):
        x, y = pair.rows[pair.reference], pair.rows[pair.other]
        axes.scatter(x, y, s=18, color=FOUND, linewidths=0)
        axes.set_title(f"{pair.words}, ρ = {pair.pearson:.2f}")
        axes.set_xlabel(
            "exact trace norm" if pair.reference == "exact" else "trace norm with labels and inputs of the data"
        )
        texts = (f"{pair.words}\n{b:.4g}, reference {a:.4g}" for a, b in zip(x, y, strict=True))
        figures.add_tooltips(axes, x, y, texts)


def agreement_section(run: Run[Any]) -> Section | None:
    """A scatter plot per pair, and the table of all correlations. None without a comparison."""
    pairs = agreements(run.best)
    if not pairs:
        return None
    subject = f"Trace norms of {count(len(pairs[0].rows), 'random architecture')} at the same initial weights"
    columns = [Column("Trace norm"), Column("Reference"), *numeric("Pearson", "Spearman")]
    rows = []
    for pair in pairs:
        rho = spearman(pair.rows[pair.other], pair.rows[pair.reference])
        rows.append((pair.words, pair.reference, f"{pair.pearson:.2f}", f"{rho:.2f}"))
    return figure_section(
        "agreement",
        "Agreement of trace norms",
        nasi_agreement(run),
        description=f"{subject}, compared in pairs.",
        caption=_text("agreement_caption", subject=subject),
        below=table(columns, rows, label="Correlation of trace norms", sortable=False),
    )


# Architectures that other nu and mu select with the same gradients. Shu 2022, Figures 6.4 and 6.6.

_CONSTANTS_ROW = 190  # height of a panel
_LINES = (MUTED, FOUND, figures.PINK, figures.INDIGO, INK)  # colors of the values of mu
RESULT = "result"


def constants_of(run: Run[Any], scores: Accuracies | None) -> pd.DataFrame:
    """A row per pair of constants for the best seed: `nu`, `mu`, `architecture`, `trace`, `parameters`, `result`.

    `result` is NaN without an architecture, or if the table does not contain it. Empty before the search has finished.
    """
    rows = searches(run)
    if not rows:
        return pd.DataFrame()
    space, values = get_space(run.space), scores.of if scores else {}
    results = [
        values.get(canonical_string(space, name), math.nan) if isinstance(name, str) else math.nan
        for name in rows[0].constants["architecture"]
    ]
    return rows[0].constants.assign(**{RESULT: results})


def _measures(selections: pd.DataFrame, scores: Accuracies | None) -> dict[str, str]:
    """Column -> label, for the columns with values."""
    words = {"trace": "trace norm", "parameters": "parameters", RESULT: scores.column if scores else ""}
    return {
        column: label for column, label in words.items() if column in selections and selections[column].notna().any()
    }


@figure(height=_CONSTANTS_ROW)
def nasi_constants(run: Run[Any], canvas: Figure) -> None:
    """Trace norm, size and table result of the architectures that NASI selects with other constraints and penalties."""
    run = run.best
    scores = accuracies(run)
    selections = constants_of(run, scores)
    measures = _measures(selections, scores)
    if not measures:
        raise NothingToDraw("the run has no results for other constants. Wait until a search has finished")
    rows = figures.panels(canvas, len(measures), 1, row=_CONSTANTS_ROW, sharex=True)
    for axes, (column, label) in zip(rows, measures.items(), strict=True):
        for number, (mu, line) in enumerate(selections.groupby("mu")):
            line = line.sort_values("nu")
            color, name = _LINES[number % len(_LINES)], f"mu {significant(mu)}"
            axes.plot(line["nu"], line[column], color=color, linewidth=1.4, marker="o", ms=4, label=name)
            texts = [
                f"nu {significant(nu)}, {name}\n{label} {significant(value)}"
                for nu, value in zip(line["nu"], line[column], strict=True)
            ]
            figures.add_tooltips(axes, line["nu"], line[column], texts)
        axes.set_ylabel(label)
    rows[0].set_xscale("log")
    figures.logarithmic(rows[-1].xaxis)
    rows[-1].set_xlabel("nu of the first step")
    handles, labels = rows[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside upper left", ncols=len(labels))


def constants_section(run: Run[Any]) -> Section | None:
    """Figure and tables of the architectures that other nu and mu select. None before the search has finished."""
    names, best = names_of(run), run.best
    scores = accuracies(best)
    selections = constants_of(best, scores)
    measures = _measures(selections, scores)
    if not measures:
        return None
    architecture = searches(best)[0].architecture
    text = _text(
        "constants_text",
        pairs=len(selections),
        architectures=selections["architecture"].nunique(),
        same=int((selections["architecture"] == architecture).sum()),
        name=names.of(architecture),
        with_result=RESULT in measures,
    )
    return figure_section(
        "constants",
        "Effect of nu and mu",
        nasi_constants(run),
        description="The selected architecture by nu, a line per mu.",
        caption=_text("constants_caption", measures=measures.values()),
        above=paragraphs([text]),
        below="".join(_grid(selections, column, label) for column, label in measures.items()),
    )


def _grid(selections: pd.DataFrame, column: str, label: str) -> str:
    """A table with a row per mu and a column per nu."""
    nus, of_pair = sorted(selections["nu"].unique()), selections.set_index(["mu", "nu"])
    rows = []
    for mu in sorted(selections["mu"].unique()):
        cells = [of_pair.loc[(mu, nu)] for nu in nus]
        words = ["none" if pd.isna(cell["architecture"]) else significant(cell[column]) for cell in cells]
        rows.append((significant(mu), *words))
    columns = [Column(f"{label}: mu \\ nu"), *numeric(*map(significant, nus))]
    return table(columns, rows, label=f"{label} by nu and mu", sortable=False)


COMPARISONS = (constants_section, agreement_section, accuracies_section)
