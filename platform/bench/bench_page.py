"""The page of a bench: its tables and its figure in one self-contained file."""

from __future__ import annotations

import numpy as np
import pandas as pd

from archray.platform.bench.bench_result import BenchResult
from archray.platform.bench.bench_tables import (
    CAVEAT,
    lead,
    notes,
    title_of,
    written_differences,
    written_summary,
)
from archray.platform.bench.regret_figure import regret_section
from archray.platform.report.page import write_page
from archray.platform.report.section import Column, Section, escape, flowing, paragraphs, table


def bench_page(bench: BenchResult, against: str) -> str:
    """HTML: light and dark, whole without its script, without a request."""
    name = str(bench.question.table["location"]).rpartition("/")[2]
    words = f'<h1>{escape(name)}</h1><p class="lead">{flowing(lead(bench))}</p>'
    header = f'<p class="kicker">archray · bench</p>{words}'
    sections = [
        *(_summary(bench, budget) for budget in bench.question.budgets),
        regret_section(bench),
        *(_differences(bench, budget, against) for budget in bench.question.budgets),
    ]
    return write_page(f"archray: bench on {name}", header, sections)


def _summary(bench: BenchResult, budget: int) -> Section:
    words = written_summary(bench, budget)
    summary = bench.summary()
    own = bench.sign * summary[summary["budget"] == budget]["result"].to_numpy()
    marked = int(np.nanargmax(own)) if np.isfinite(own).any() else None
    body = _table(words, f"What was found with {title_of(bench, budget)}", marked)
    return Section(f"budget-{budget}", f"After {title_of(bench, budget)}", body + paragraphs(notes(bench)))


def _differences(bench: BenchResult, budget: int, against: str) -> Section:
    title = f"Against {against}, {title_of(bench, budget)}"
    body = _table(written_differences(bench, budget, against), title)
    return Section(f"against-{budget}", title, body + paragraphs([CAVEAT]))


def _table(words: pd.DataFrame, label: str, marked: int | None = None) -> str:
    first, *rest = map(str, words.columns)
    columns = [Column(first.capitalize()), *(Column(name[:1].upper() + name[1:], "number") for name in rest)]
    return table(columns, words.to_numpy().tolist(), label=label, marked=marked)
