"""How often a larger alpha means a smaller risk: counts of pairs, where the condition holds and where it does not.

Roberts et al. 2022, Theorems 1, 4 and 7; notes U4 and U5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
from scipy.stats import binomtest

from archray.platform.methods.understanding.activations.activation_rows import BEST, PAIRS, SEARCHED
from archray.platform.methods.understanding.activations.teacher_stage import TEACHERS
from archray.platform.run.run import Run

THEOREMS = {2: "Theorem 1", 3: "Theorem 4"}  # of so many activations; Theorem 7 of any number


@dataclass(frozen=True)
class Share:
    """`holds` of `number` pairs, with Wilson's interval of 95 %, as if pairs were independent; those of one are not."""

    holds: int
    number: int

    @property
    def value(self) -> float:
        return self.holds / self.number

    @property
    def interval(self) -> tuple[float, float]:
        found = binomtest(self.holds, self.number).proportion_ci(0.95, method="wilson")
        return float(found.low), float(found.high)

    @classmethod
    def of(cls, conclusions: pd.Series) -> Share | None:
        """None of no pair."""
        return cls(int(conclusions.sum()), len(conclusions)) if len(conclusions) else None


@dataclass(frozen=True)
class TheoremCount:
    """The pairs of one kind.

    Attributes:
        words: whose they are. labels: their kind of labels; empty of teachers, with whose alpha it is.
        instances: of how many. activations: h.
        met: where the condition holds, how often the conclusion does. unmet: where it fails.
        margin: with condition and the margin of note U5.
        guaranteed: whether the conclusion follows from the condition.
    """

    words: str
    labels: str
    alpha_of: str
    instances: int
    activations: int
    met: Share | None
    unmet: Share | None
    margin: Share | None
    guaranteed: bool


def teacher_counts(run: Run[Any]) -> list[TheoremCount]:
    """Of the random teachers, by their number of activations."""
    table = run.table("teachers", TEACHERS)
    if table.empty:
        return []
    counts = []
    for h in run.config.sizes:
        words = f"{THEOREMS.get(h, 'Theorem 7')}, {h} activations"
        pairs = table[table["activations"].eq(h)]
        counts.append(_count(pairs, words, h, "", "teacher's", guaranteed=True))
    return counts


def search_counts(run: Run[Any], alpha_of: str = SEARCHED) -> list[TheoremCount]:
    """Of the searches, by their labels. alpha_of: `searched`, or `best` for the searched weights.

    Of the best alpha, pairs that it has both at zero are no case: they are not told apart.
    """
    table = run.table("shared", PAIRS)
    if table.empty:
        return []
    table = table[table["alpha_of"].eq(alpha_of)]
    if alpha_of == BEST:
        table = table[table["first_alpha"].gt(0) | table["second_alpha"].gt(0)]
    h = len(run.config.problem.activations)
    groups = table.groupby("labels", sort=False)
    order = [labels for labels in run.config.labels if labels in groups.groups]
    return [
        _count(
            groups.get_group(labels), f"{labels}, {alpha_of} alpha", h, labels, alpha_of, guaranteed=alpha_of == BEST
        )
        for labels in order
    ]


def _count(
    pairs: pd.DataFrame, words: str, activations: int, labels: str, alpha_of: str, *, guaranteed: bool
) -> TheoremCount:
    condition, conclusion = pairs["condition"].astype(bool), pairs["conclusion"].astype(bool)
    return TheoremCount(
        words=words,
        labels=labels,
        alpha_of=alpha_of,
        instances=int(pairs["number"].nunique()),
        activations=activations,
        met=Share.of(conclusion[condition]),
        unmet=Share.of(conclusion[~condition]),
        margin=Share.of(conclusion[condition & pairs["margin"].astype(bool)]),
        guaranteed=guaranteed,
    )


def all_counts(run: Run[Any]) -> Iterator[TheoremCount]:
    """Of teachers, of the searched alpha, of the best one."""
    yield from teacher_counts(run)
    yield from search_counts(run, SEARCHED)
    yield from search_counts(run, BEST)
