"""A bench in words: its tables for the terminal, for Markdown and for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from archray.platform.bench.bench_result import BenchResult
from archray.platform.quantities import MISSING, as_float, duration, signed, significant
from archray.plurals import count

CAVEAT = (
    "Paired differences of the result by seed; positive is better. In brackets the 95 % interval of Student's t for "
    "this row alone, then the one that holds for all rows of the table together (Bonferroni): of twenty intervals of "
    "the first kind one is expected to miss its mean. t takes the differences for roughly normal, which few seeds "
    "cannot show. A row that depends on no seed is one value beside all seeds of the other."
)


def decimals(values: np.ndarray, mode: str) -> int:
    """How many decimals tell a table's good values apart: two digits or more of the best quarter's deviation."""
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
    """What was asked, in a few sentences."""
    table, question = bench.table, bench.question
    roles = table.roles
    budget = " and ".join(map(str, question.budgets)) + " evaluations"
    if question.seconds is not None:
        budget = f"{duration(question.seconds)} of training"
    told, judged = roles.objective, roles.result or roles.objective
    text = f"{count(len(question.entrants), 'row')} on {count(len(table.rows), 'architecture')}, {budget} a search, "
    text += f"{count(question.seeds, 'seed')}. A search is told {told} ({_better(table.mode)} is better)"
    if judged == told:
        return f"{text}, and judged by it."
    return f"{text}; what it chooses, the best by that, is judged by {judged}."


def _better(mode: str) -> str:
    return "larger" if mode == "max" else "smaller"


def written_summary(bench: BenchResult, budget: int) -> pd.DataFrame:
    """A row per method, as text: result, worst, rank, worst rank, seeds, evaluations, costs."""
    summary = bench.summary()
    own = summary[summary["budget"] == budget]
    digits = decimals(bench.table.result, bench.table.mode)
    columns: dict[str, list[str]] = {"method": list(own["method"])}
    judged = str(bench.table.roles.result or bench.table.roles.objective)
    columns[judged] = [with_spread(*pair, digits) for pair in zip(own["result"], own["result_std"], strict=True)]
    columns["worst"] = [written(value, digits) for value in own["result_worst"]]
    columns["rank"] = [with_spread(*pair, 1) for pair in zip(own["rank"], own["rank_std"], strict=True)]
    columns["worst rank"] = [written(value, 0) for value in own["rank_worst"]]
    columns["seeds"] = [str(number) if number > 1 else "any" for number in own["seeds"]]
    columns["evaluations"] = [written(value, 0 if value == round(value) else 1) for value in own["evaluations"]]
    if own["seconds"].notna().any():
        columns["training time"] = [duration(value) for value in own["seconds"]]
    for cost in bench.table.costs:
        columns[cost] = [significant(value) for value in own[cost]]
    return pd.DataFrame(columns)


def written_differences(bench: BenchResult, budget: int, against: str) -> pd.DataFrame:
    """A row per method, as text: by how much it is better, the two intervals, in how many seeds."""
    told = bench.differences(against)
    own = told[told["budget"] == budget]
    digits = decimals(bench.table.result, bench.table.mode)

    def interval(low: object, high: object) -> str:
        if math.isnan(as_float(low)):
            return MISSING
        return f"[{written(low, digits)}, {written(high, digits)}]"

    return pd.DataFrame(
        {
            "method": list(own["method"]),
            f"better than {against} by": [written(value, digits) for value in own["difference"]],
            "95 %": [interval(*pair) for pair in zip(own["low"], own["high"], strict=True)],
            "95 %, all rows": [interval(*pair) for pair in zip(own["low_all"], own["high_all"], strict=True)],
            "seeds better": [f"{value:.0%}" for value in own["better"]],
        }
    )


def notes(bench: BenchResult) -> list[str]:
    """What a reader of the tables must know."""
    text = [
        (
            "“±” is the standard deviation over seeds (n - 1); “worst” is the worst seed. “Rank” is that of the chosen "
            "architecture's objective among all of the table, 1 the best. Costs are those of the chosen architecture."
        ),
        (
            "“X first” evaluates in the order of the column X, the largest first (of kappa the smallest), equal values "
            "in an order that the seed draws; where no values are equal it is the same for any seed, and run once."
        ),
    ]
    if bench.table.seconds is not None:
        text.append("Training time is the sum over the evaluations of a search, from the table.")
    return text


def markdown(bench: BenchResult, against: str) -> str:
    """All tables of a bench."""
    parts = ["# Bench", lead(bench)]
    for budget in bench.question.budgets:
        parts += [_heading(bench, budget), markdown_table(written_summary(bench, budget))]
        parts += [markdown_table(written_differences(bench, budget, against))]
    parts += [*notes(bench), CAVEAT]
    return "\n\n".join(parts) + "\n"


def _heading(bench: BenchResult, budget: int) -> str:
    return f"## {title_of(bench, budget)}"


def title_of(bench: BenchResult, budget: int) -> str:
    if bench.question.seconds is not None:
        return f"{duration(bench.question.seconds)} of training"
    return count(budget, "evaluation")


def markdown_table(words: pd.DataFrame) -> str:
    """A table of text in Markdown; all but the first column right-aligned."""
    rows: list[Sequence[str]] = [list(map(str, words.columns)), *words.astype(str).to_numpy().tolist()]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    lines.insert(1, f"|---|{'---:|' * (len(words.columns) - 1)}")
    return "\n".join(lines)
