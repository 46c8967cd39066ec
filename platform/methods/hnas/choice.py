"""Why this architecture: its place in the pool and among the trials, in words and numbers. Shu 2022, Eq. 7.7."""

from __future__ import annotations

import numpy as np

from archray.platform.methods.hnas.ranked_pool import rank, row_of, scored, values_by_architecture
from archray.platform.methods.hnas.trials_table import trial_numbers
from archray.platform.report.quantity import Quantity, count, significant
from archray.platform.report.section import Column, Section, paragraphs, table
from archray.platform.report.view import RunView, failures, numbers
from archray.searchers.hnas.scored_pool import Pool


def choice_section(view: RunView) -> Section | None:
    """How HNAS came to its choice. Nothing for a run that found nothing or was not HNAS."""
    best = view.best_trial()
    if view.architecture is None or best is None or view.objective is None or not values_by_architecture(view):
        return None
    pool = scored(view)
    sentences = [_search(view, best)]
    body = ""
    if pool is not None and (row := row_of(pool, view.architecture)) is not None:
        sentences.insert(0, _scoring(view, pool))
        body = _table(view, pool, row, best)
    return Section("choice", "Why this one", paragraphs(sentences) + body)


def _scoring(view: RunView, pool: Pool) -> str:
    return (
        f"All {count(len(pool), 'architecture')} of the pool were scored on one batch, untrained: M is {view.proxy}, "
        "κ the condition number of the neural tangent kernel. The objective κ/M + μ F(M² − ν) asks for a small "
        f"κ/M and an M near √ν. The table has this architecture's place in the pool."
    )


def _search(view: RunView, best: int) -> str:
    metric = Quantity.of(view.metric)
    known = values_by_architecture(view)
    values = sorted(known.values(), reverse=view.mode == "max")
    number = trial_numbers(view.evaluated)[best]
    which = "the one found" if np.isnan(number) else f"number {int(number)}"
    best_way = "highest" if view.mode == "max" else "lowest"
    text = (
        "What μ and ν should be, the score itself cannot say: a Bayesian optimiser tried values, and for each the "
        "objective's best architecture, or its best not known yet, was trained. Of "
        f"{count(len(known), 'architecture')} trained, {which} has the {best_way} {metric.label}, "
        f"{metric.show(values[0])}"
    )
    if len(values) > 1:
        text += f", ahead of {metric.show(values[1])}; their median is {metric.show(float(np.median(values)))}"
    failed = int(failures(view.evaluated).notna().sum())
    if failed:
        text += f". {count(failed, 'training')} failed and took no part"
    return text + "."


def _table(view: RunView, pool: Pool, row: int, best: int) -> str:
    assert view.objective is not None  # checked by the section
    rows: list[tuple[str, str, str, str]] = []

    def add(name: str, values: np.ndarray, low_is_good: bool) -> None:
        better = values < values[row] if low_is_good else values > values[row]
        rows.append((name, significant(values[row]), significant(np.median(values)), f"{int(better.sum()) + 1}"))

    add("M, over the pool's largest", pool.metric, low_is_good=False)
    add("κ", pool.kappa, low_is_good=True)
    add("κ/M", pool.kappa / (pool.metric + view.objective.epsilon), low_is_good=True)
    mu, nu = numbers(view.evaluated, "mu")[best], numbers(view.evaluated, "nu")[best]
    if mu > 0 and nu >= 0:
        values = rank(pool, float(mu), float(nu), view.objective)
        add(f"objective at μ = {significant(mu)}, ν = {significant(nu)}", values, low_is_good=True)
    columns = (
        Column("Score"),
        Column("this one", "number"),
        Column("pool's median", "number"),
        Column("rank", "number"),
    )
    return table(columns, rows, label="The scores of the found architecture in the pool")
