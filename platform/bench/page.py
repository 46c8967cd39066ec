"""Output of a bench: tables for the terminal and Markdown, and a self-contained page with figures."""

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from archray.platform.bench.question import RANDOM_SEARCH
from archray.platform.bench.result import BenchResult
from archray.platform.quantities import MISSING, as_float, duration, signed, significant
from archray.platform.report import figures
from archray.platform.report.figures import FOUND, RANDOM, TRIAL, figure
from archray.platform.report.page import write_page
from archray.platform.report.section import Column, Section, escape, flowing, paragraphs, table
from archray.platform.report.texts import texts_of
from archray.plurals import count

_text = texts_of(__package__)
CAVEAT = _text("differences")


def decimals(values: np.ndarray, mode: str) -> int:
    """Returns the number of decimals that shows at least two digits of the standard deviation of the best quarter."""
    order = np.sort(values) if mode == "min" else -np.sort(-values)
    spread = float(np.std(order[: math.ceil(len(order) / 4)])) if len(order) else 0.0
    return 2 if not spread > 0 else min(max(1 - math.floor(math.log10(spread)), 0), 6)


def written(value: object, digits: int) -> str:
    number = as_float(value)
    return MISSING if math.isnan(number) else signed(f"{number:,.{digits}f}")


def with_spread(mean: object, deviation: object, digits: int) -> str:
    text = written(mean, digits)
    return text if math.isnan(as_float(deviation)) else f"{text} ± {written(deviation, digits)}"


def lead(bench: BenchResult) -> str:
    """Describes the question in a few sentences."""
    table, question = bench.table, bench.question
    roles = table.roles
    budget = " and ".join(map(str, question.budgets)) + " evaluations"
    if question.seconds is not None:
        budget = f"{duration(question.seconds)} of training"
    return _text(
        "lead",
        rows=len(question.entrants),
        architectures=len(table.rows),
        budget=budget,
        seeds=question.seeds,
        objective=roles.objective,
        better="larger" if table.mode == "max" else "smaller",
        judged=roles.result or roles.objective,
    )


def written_summary(bench: BenchResult, budget: int) -> pd.DataFrame:
    """Formats a row per method: result, worst, rank, worst rank, seeds, evaluations, costs."""
    summary = bench.summary()
    rows = summary[summary["budget"] == budget]
    digits = decimals(bench.table.result, bench.table.mode)
    columns: dict[str, list[str]] = {"method": list(rows["method"])}
    judged = str(bench.table.roles.result or bench.table.roles.objective)
    columns[judged] = [with_spread(*pair, digits) for pair in zip(rows["result"], rows["result_std"], strict=True)]
    columns["worst"] = [written(value, digits) for value in rows["result_worst"]]
    columns["rank"] = [with_spread(*pair, 1) for pair in zip(rows["rank"], rows["rank_std"], strict=True)]
    columns["worst rank"] = [written(value, 0) for value in rows["rank_worst"]]
    columns["seeds"] = [str(number) if number > 1 else "any" for number in rows["seeds"]]
    columns["evaluations"] = [written(value, 0 if value == round(value) else 1) for value in rows["evaluations"]]
    if rows["seconds"].notna().any():
        columns["training time"] = [duration(value) for value in rows["seconds"]]
    for cost in bench.table.costs:
        columns[cost] = [significant(value) for value in rows[cost]]
    return pd.DataFrame(columns)


def written_differences(bench: BenchResult, budget: int, against: str) -> pd.DataFrame:
    """Formats a row per method: difference, two intervals, share of seeds in which the method is better."""
    differences = bench.differences(against)
    rows = differences[differences["budget"] == budget]
    digits = decimals(bench.table.result, bench.table.mode)

    def interval(low: object, high: object) -> str:
        if math.isnan(as_float(low)):
            return MISSING
        return f"[{written(low, digits)}, {written(high, digits)}]"

    return pd.DataFrame(
        {
            "method": list(rows["method"]),
            f"better than {against} by": [written(value, digits) for value in rows["difference"]],
            "95 %": [interval(*pair) for pair in zip(rows["low"], rows["high"], strict=True)],
            "95 %, all rows": [interval(*pair) for pair in zip(rows["low_all"], rows["high_all"], strict=True)],
            "seeds better": [f"{value:.0%}" for value in rows["better"]],
        }
    )


def notes(bench: BenchResult) -> list[str]:
    """Returns the notes below the tables."""
    time = ["Training time is the sum of the table's training times over the evaluations of a search."]
    return [_text("ranks"), _text("columns_first"), *(time if bench.table.seconds is not None else [])]


def markdown(bench: BenchResult, against: str) -> str:
    """Returns all tables of a bench as Markdown."""
    parts = ["# Bench", lead(bench)]
    for budget in bench.question.budgets:
        parts += [f"## {title_of(bench, budget)}", markdown_table(written_summary(bench, budget))]
        parts += [markdown_table(written_differences(bench, budget, against))]
    parts += [*notes(bench), CAVEAT]
    return "\n\n".join(parts) + "\n"


def title_of(bench: BenchResult, budget: int) -> str:
    if bench.question.seconds is not None:
        return f"{duration(bench.question.seconds)} of training"
    return count(budget, "evaluation")


def markdown_table(words: pd.DataFrame) -> str:
    """Formats a table of text as Markdown; all columns except the first are right-aligned."""
    rows: list[Sequence[str]] = [list(map(str, words.columns)), *words.astype(str).to_numpy().tolist()]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    lines.insert(1, f"|---|{'---:|' * (len(words.columns) - 1)}")
    return "\n".join(lines)


_COLORS = (FOUND, figures.GREEN, figures.PINK, figures.INDIGO)
Dash: TypeAlias = Literal["-", "--", ":", "-."]
_DASHES: tuple[Dash, ...] = ("-", "--", ":", "-.")
_HEIGHT, _LINE = 390, 17  # heights of the two panels, and of a line of the legend
_POINTS = 200  # number of points of a curve over seconds
MIDDLE = (0.25, 0.75)  # quantiles of the band: the middle half of the seeds


def curves(bench: BenchResult, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns x (k,), the evaluations or seconds spent, and the best objective so far of each seed (seeds, k).

    The curves are at the largest budget, and NaN before the first value.
    """
    trials = bench.trials
    trials_of_label = trials[(trials["method"] == label) & (trials["budget"] == bench.question.budgets[-1])]
    searches = [search for _, search in trials_of_label.groupby("seed")]
    best = [(bench.sign * search["objective"]).cummax().ffill().to_numpy() for search in searches]
    if bench.question.seconds is None:
        x = np.arange(1, max(map(len, best)) + 1, dtype=float)
        at = [np.arange(1, len(values) + 1, dtype=float) for values in best]
    else:
        x = np.linspace(0, bench.question.seconds, _POINTS)
        at = [search["seconds"].cumsum().to_numpy() for search in searches]
    places = [np.searchsorted(ends, x, side="right") - 1 for ends in at]
    shown = [np.where(place >= 0, values[place], np.nan) for place, values in zip(places, best, strict=True)]
    return x, bench.sign * np.array(shown)


@figure(height=_HEIGHT, of="bench")
def bench_regret(bench: BenchResult, canvas: Figure) -> None:
    """Regret and rank in the table of the best architecture so far, by budget: mean and middle half over seeds."""
    regret, rank = canvas.subplots(2, 1, sharex=True)
    methods = [entrant.label for entrant in bench.question.entrants if entrant.asked and entrant.label != RANDOM_SEARCH]
    handles = []
    behind = [label for label in bench.labels if label not in methods and label != RANDOM_SEARCH]
    for label in [*behind, RANDOM_SEARCH, *methods]:
        place = methods.index(label) if label in methods else 0
        color = RANDOM if label == RANDOM_SEARCH else TRIAL if label in behind else _COLORS[place % len(_COLORS)]
        dash = _DASHES[place // len(_COLORS) % len(_DASHES)]
        x, best = curves(bench, label)
        thin = label in behind
        for axes, values in ((regret, bench.sign * (bench.best_objective - best)), (rank, bench.ranks(best))):
            _draw(axes, x, values, label, color, dash, thin=thin)
        if not thin:
            handles.append(Line2D([], [], color=color, linestyle=dash, linewidth=2, label=label))
    if behind:
        handles.append(Line2D([], [], color=TRIAL, linewidth=1, alpha=0.6, label="baselines: one column first"))
    random_regret = bench.sign * (bench.best_objective - curves(bench, RANDOM_SEARCH)[1])
    largest = np.nanquantile(random_regret, 0.9)
    regret.set_ylim(0, largest * 1.05 if largest > 0 else None)
    regret.set_ylabel(f"regret in {bench.table.roles.objective}")
    rank.set_yscale("log")
    figures.plain(rank.yaxis)
    rank.set_ylabel("rank in the table")
    rank.set_xlabel("evaluations" if bench.question.seconds is None else "training seconds")
    regret.xaxis.set_major_locator(MaxNLocator(6, integer=bench.question.seconds is None))
    canvas.align_ylabels([regret, rank])
    figures.set_height(canvas, _HEIGHT + _LINE * len(handles))
    canvas.legend(handles=handles[::-1], loc="outside upper left", ncols=1)


def _draw(axes: Axes, x: np.ndarray, values: np.ndarray, label: str, color: str, dash: Dash, *, thin: bool) -> None:
    """Draws the mean and the band of a method.

    Args:
        values: (seeds, k).
    """
    finite = ~np.isnan(values).all(axis=0)
    x, values = x[finite], values[:, finite]
    mean = np.nanmean(values, axis=0)
    if not thin and len(values) > 2:
        low, high = np.nanquantile(values, MIDDLE, axis=0)
        axes.fill_between(x, low, high, step="post", color=color, alpha=0.14, linewidth=0)
    width, alpha = (1.0, 0.5) if thin else (2.0, 1.0)
    axes.step(x, mean, where="post", color=color, linestyle=dash, linewidth=width, alpha=alpha)
    if len(x):
        figures.add_line_tooltip(axes, x.tolist(), mean.tolist(), f"{label}\nat the end {significant(mean[-1])}")


def bench_page(bench: BenchResult, against: str) -> str:
    """Returns a self-contained HTML page with light and dark colors, which is complete without its script."""
    name = str(bench.question.table["location"]).rpartition("/")[2]
    words = f'<h1>{escape(name)}</h1><p class="lead">{flowing(lead(bench))}</p>'
    header = f'<p class="kicker">archray · bench</p>{words}'
    budgets, seeds = bench.question.budgets, bench.question.seeds
    description = f"Regret and rank of the best architecture so far, for {count(len(bench.labels), 'method')}."
    caption = _text("regret", budget=title_of(bench, budgets[-1]), seeds=seeds)
    regret = figures.figure_section("regret", "Regret", bench_regret(bench), description=description, caption=caption)
    sections = [_summary(bench, budget) for budget in budgets]
    sections += [regret, *(_differences(bench, budget, against) for budget in budgets)]
    return write_page(f"archray: bench on {name}", header, sections)


def _summary(bench: BenchResult, budget: int) -> Section:
    words = written_summary(bench, budget)
    summary = bench.summary()
    results = bench.sign * summary[summary["budget"] == budget]["result"].to_numpy()
    marked = int(np.nanargmax(results)) if np.isfinite(results).any() else None
    body = _table(words, f"Results with {title_of(bench, budget)}", marked)
    return Section(f"budget-{budget}", f"After {title_of(bench, budget)}", body + paragraphs(notes(bench)))


def _differences(bench: BenchResult, budget: int, against: str) -> Section:
    title = f"Differences from {against}, {title_of(bench, budget)}"
    body = _table(written_differences(bench, budget, against), title)
    return Section(f"against-{budget}", title, body + paragraphs([CAVEAT]))


def _table(words: pd.DataFrame, label: str, marked: int | None = None) -> str:
    first, *rest = map(str, words.columns)
    columns = [Column(first.capitalize()), *(Column(name[:1].upper() + name[1:], "number") for name in rest)]
    return table(columns, words.to_numpy().tolist(), label=label, marked=marked)
