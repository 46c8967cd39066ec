"""Why this architecture: its place in the pool and among the trials, in words and numbers. Shu 2022, Eq. 7.7."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from archray.platform.methods.hnas.hnas_tables import (
    ASKED,
    VALUE,
    Objective,
    best_trial,
    objective_of,
    row_of,
    trial_numbers,
    usable_pool,
    values_by_architecture,
)
from archray.platform.methods.hnas.ranked_pool import rank
from archray.platform.report.columns import failures
from archray.platform.report.quantity import as_float, count, significant
from archray.platform.report.section import Column, Section, numeric, paragraphs, table
from archray.platform.run.run import Run
from archray.searchers.hnas.scored_pool import Pool


def choice_section(run: Run[Any]) -> Section | None:
    """How HNAS came to its choice. Nothing for a run that found nothing."""
    run = run.best
    asked, objective = run.table(*ASKED), objective_of(run)
    best, known = best_trial(asked), values_by_architecture(asked)
    if run.found is None or best is None or objective is None or not known:
        return None
    pool = usable_pool(run)
    sentences, body = [_search(asked, best, known)], ""
    if pool is not None and (row := row_of(pool.architectures, run.architecture)) is not None:
        sentences.insert(0, _scoring(pool, run.config.metric))
        body = _table(pool, objective, row, asked.iloc[best])
    return Section("choice", "Why this one", paragraphs(sentences) + body)


def _scoring(pool: Pool, proxy: str) -> str:
    return (
        f"All {count(len(pool), 'architecture')} of the pool were scored on one batch, untrained: M is {proxy}, "
        "κ the condition number of the neural tangent kernel. The objective κ/M + μ F(M² − ν) asks for a small "
        f"κ/M and an M near √ν. The table has this architecture's place in the pool."
    )


def _search(asked: pd.DataFrame, best: int, known: dict[str, float]) -> str:
    values = sorted(known.values(), reverse=True)
    number = trial_numbers(asked)[best]
    which = "the one found" if np.isnan(number) else f"number {int(number)}"
    text = (
        "What μ and ν should be, the score itself cannot say: a Bayesian optimiser tried values, and for each the "
        "objective's best architecture, or its best not known yet, was trained. Of "
        f"{count(len(known), 'architecture')} trained, {which} has the highest {VALUE.label}, {VALUE.show(values[0])}"
    )
    if len(values) > 1:
        text += f", ahead of {VALUE.show(values[1])}; their median is {VALUE.show(float(np.median(values)))}"
    failed = int(failures(asked).notna().sum())
    if failed:
        text += f". {count(failed, 'training')} failed and took no part"
    return text + "."


def _table(pool: Pool, objective: Objective, row: int, best: pd.Series) -> str:
    rows: list[tuple[str, str, str, str]] = []

    def add(name: str, values: np.ndarray, low_is_good: bool) -> None:
        better = values < values[row] if low_is_good else values > values[row]
        rows.append((name, significant(values[row]), significant(np.median(values)), f"{int(better.sum()) + 1}"))

    add("M, over the pool's largest", pool.metric, low_is_good=False)
    add("κ", pool.kappa, low_is_good=True)
    add("κ/M", pool.kappa / (pool.metric + objective.epsilon), low_is_good=True)
    mu, nu = as_float(best.get("mu")), as_float(best.get("nu"))
    if mu > 0 and nu >= 0:
        values = rank(pool, mu, nu, objective)
        add(f"objective at μ = {significant(mu)}, ν = {significant(nu)}", values, low_is_good=True)
    columns = (Column("Score"), *numeric("this one", "pool's median", "rank"))
    return table(columns, rows, label="The scores of the found architecture in the pool")
