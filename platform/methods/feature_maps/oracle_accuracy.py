"""Test accuracy of the best so far over calls and seconds: the arithmetic of Figures 2 and 3 of Khodak et al. 2020.

A search knows a best feature map after each solver call. Its test accuracy is that of the map solved on its own at the
full dimension, by an oracle where the search has not done so; between two calls it is what it was after the first
of them. `progress`: a `progress_of`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from archray.platform.quantities import quantity_of
from archray.platform.report.rounds import shown_candidates
from archray.platform.report.short_names import ShortNames, short_names
from archray.platform.report.table_columns import numbers
from archray.platform.run.layout import PROGRESS
from archray.platform.run.run import Run

By = Literal["calls", "seconds"]

TEST = quantity_of("search_test_accuracy")

LETTER = "F"  # of the short names of feature maps
_POINTS = 400  # of a curve: steps finer than this are not seen


def progress_of(run: Run[Any]) -> pd.DataFrame:
    """A row per solver call of a search, in order, of all repeats; no row before the search has ended.

    Columns: `repeat`, `calls` (so far), `seconds` (so far, of featurising, solving and scoring), `architecture` (the
    best so far), `dimension` (of this solve), `candidates` (that shared it), `score`, `search_test_accuracy` (of the
    best so far; where solves are shared that of an oracle, which solves for it alone at the full dimension; NaN if not
    known), `final` (whether this is the standalone solve that ends the search).
    """
    repeats = []
    for number, repeat in enumerate(run.repeats or [run]):
        with_oracle = repeat.table("oracle", PROGRESS)
        progress = repeat.table("search", PROGRESS) if with_oracle.empty else with_oracle
        repeats.append(progress.assign(repeat=number))
    return pd.concat(repeats, ignore_index=True)


def names_of(run: Run[Any]) -> ShortNames:
    """The names of the maps found, of those that some search held for the best, by accuracy, and of those in rounds."""
    progress = progress_of(run)
    best = numbers(progress, "search_test_accuracy").sort_values(ascending=False, kind="stable").index
    held = progress["architecture"].reindex(best) if "architecture" in progress else ()
    return short_names(run, (*held, *shown_candidates(run)), LETTER)


@dataclass(frozen=True)
class AccuracyCurve:
    """The mean over repeats as a step curve: from each `x` on to the next, `mean` holds."""

    x: np.ndarray  # (k,) ascending calls or seconds, from where every repeat has one to where the last has ended
    mean: np.ndarray  # (k,) fractions
    deviation: np.ndarray  # (k,); NaN for a single repeat
    each: np.ndarray  # (repeats, k) the curves that the mean is over

    @property
    def repeats(self) -> int:
        return len(self.each)


def by_repeat(progress: pd.DataFrame) -> list[tuple[object, pd.DataFrame]]:
    """The repeats of a progress table, each with its rows in the order of its solver calls."""
    if progress.empty:
        return []
    ordered = progress.sort_values("calls", kind="stable") if "calls" in progress else progress
    return list(ordered.groupby("repeat")) if "repeat" in ordered else [(0, ordered)]


def last_rows(progress: pd.DataFrame) -> pd.DataFrame:
    """A row per repeat: its last solver call, with what the search chose."""
    return pd.DataFrame([rows.iloc[-1] for _, rows in by_repeat(progress)]).reset_index(drop=True)


def found_repeat(run: Run[Any], progress: pd.DataFrame) -> tuple[object, pd.DataFrame]:
    """The first repeat that ended with the found feature map, else the first one: its number and its rows.

    The index of the rows counts from 0. `progress`, the run's `progress_of`, has a row.
    """
    repeats = [(repeat, rows.reset_index(drop=True)) for repeat, rows in by_repeat(progress)]
    architecture = run.best.architecture
    ended = [(repeat, rows) for repeat, rows in repeats if map_in(rows, len(rows) - 1) == architecture]
    return (ended or repeats)[0]


def map_in(frame: pd.DataFrame, row: int) -> str | None:
    name = frame["architecture"][row] if "architecture" in frame else None
    return name if isinstance(name, str) else None


def shares_solves(progress: pd.DataFrame) -> bool:
    """Whether several feature maps shared some solve, as in halving."""
    return bool((numbers(progress, "candidates") > 1).any())


def total(progress: pd.DataFrame, by: By) -> float:
    """The solver calls or seconds after which every repeat has ended; NaN if none is known."""
    return float(numbers(progress, by).max())


def accuracies_at(progress: pd.DataFrame, by: By, x: np.ndarray) -> np.ndarray:
    """The test accuracy of each repeat at each `x`, (repeats, len(x)) fractions; NaN before a repeat's first.

    A row without one leaves the one before it standing. A repeat that has ended keeps its last one.
    """
    rows = []
    for _, frame in by_repeat(progress):
        at, accuracy = numbers(frame, by).to_numpy(), numbers(frame, "search_test_accuracy").to_numpy()
        known = np.isfinite(at) & np.isfinite(accuracy)
        at, accuracy = at[known], accuracy[known]
        place = np.searchsorted(at, x, side="right")  # (len(x),) how many steps lie at or before each x
        rows.append(np.concatenate([[np.nan], accuracy])[place])
    return np.array(rows) if rows else np.empty((0, len(x)))


def accuracy_at(progress: pd.DataFrame, by: By = "calls", x: float = math.inf) -> tuple[float, float, int]:
    """Mean and standard deviation over repeats of the test accuracy after `x` solver calls, or seconds.

    By default at the end of each repeat. Only repeats that have one by then count.

    Returns: mean (a fraction; NaN without a repeat), standard deviation (NaN with fewer than two), number of repeats.
    """
    accuracies = accuracies_at(progress, by, np.array([x], dtype=float))[:, 0]
    accuracies = accuracies[np.isfinite(accuracies)]
    mean, deviation = _mean(accuracies[:, None])
    return float(mean[0]), float(deviation[0]), accuracies.size


def with_deviation(mean: float, deviation: float) -> str:
    """A test accuracy and its standard deviation: `96.79 ± 0.10 %`; the mean alone where there is one repeat."""
    if not math.isfinite(deviation):
        return TEST.show(mean)
    return f"{TEST.bare(mean)} ± {TEST.bare(deviation)} {TEST.unit}"


def accuracy_curve(progress: pd.DataFrame, by: By) -> AccuracyCurve | None:
    """The mean over repeats on a grid of all their steps. Repeats without any are left out.

    None if there is no test accuracy, or no x at which all others have one.
    """
    x = _steps(progress, by)
    if x.size == 0:
        return None
    x = np.unique(np.append(x, total(progress, by)))
    accuracies = accuracies_at(progress, by, x)  # (repeats, k)
    accuracies = accuracies[np.isfinite(accuracies[:, -1])]
    begun = np.isfinite(accuracies).all(axis=0)
    x, accuracies = x[begun], accuracies[:, begun]
    if x.size > _POINTS:
        kept = np.linspace(0, x.size - 1, _POINTS).round().astype(int)
        x, accuracies = x[kept], accuracies[:, kept]
    mean, deviation = _mean(accuracies)
    return AccuracyCurve(x, mean, deviation, accuracies)


def reaches(progress: pd.DataFrame, accuracy: float, by: By) -> float:
    """The solver calls or seconds from which on the mean over repeats is at or above `accuracy`; NaN if it is not."""
    x = _steps(progress, by)
    if x.size == 0:
        return math.nan
    good = accuracies_at(progress, by, x).mean(axis=0) >= accuracy  # where a repeat has none yet, the mean is NaN
    if not good[-1]:
        return math.nan
    late = np.flatnonzero(~good)
    return float(x[late[-1] + 1] if late.size else x[0])


def _steps(progress: pd.DataFrame, by: By) -> np.ndarray:
    """Every x at which some repeat's test accuracy may change, ascending."""
    x, accuracy = numbers(progress, by).to_numpy(), numbers(progress, "search_test_accuracy").to_numpy()
    return np.unique(x[np.isfinite(x) & np.isfinite(accuracy)])


def _mean(accuracies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of (repeats, k) finite values, each (k,)."""
    count, size = accuracies.shape
    if count == 0:
        return np.full(size, np.nan), np.full(size, np.nan)
    spread = accuracies.std(axis=0, ddof=1) if count > 1 else np.full(size, np.nan)
    return accuracies.mean(axis=0), spread
