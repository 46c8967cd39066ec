"""Oracle test error over solver calls and over seconds: the arithmetic of Figures 2 and 3 of Khodak et al. 2020.

A search knows a best feature map after each solver call. Its oracle test error is that of the map solved on its own at
the full dimension; between two calls it is what it was after the first of them. `progress`: a `progress_of`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from archray.platform.quantities import quantity_of
from archray.platform.report.table_columns import numbers
from archray.platform.run.layout import PROGRESS
from archray.platform.run.run import Run

By = Literal["calls", "seconds"]

TEST = quantity_of("test_error")

_POINTS = 400  # of a curve: steps finer than this are not seen


def progress_of(run: Run[Any]) -> pd.DataFrame:
    """A row per solver call of a search, in order, of all repeats; no row before the search has ended.

    Columns: `repeat`, `calls` (so far), `seconds` (so far, of featurising, solving and scoring), `architecture` (the
    best so far), `dimension` (of this solve), `candidates` (that shared it), `score`, `test_error` (of the best so far;
    where solves are shared that of an oracle, which solves for it alone at the full dimension; NaN if not known),
    `final` (whether this is the standalone solve that ends the search).
    """
    repeats = []
    for number, repeat in enumerate(run.repeats or [run]):
        with_oracle = repeat.table("oracle", PROGRESS)
        progress = repeat.table("search", PROGRESS) if with_oracle.empty else with_oracle
        repeats.append(progress.assign(repeat=number))
    return pd.concat(repeats, ignore_index=True)


@dataclass(frozen=True)
class ErrorCurve:
    """The mean over repeats as a step curve: from each `x` on to the next, `mean` holds."""

    x: np.ndarray  # (k,) ascending calls or seconds, from where every repeat has an error to where the last has ended
    mean: np.ndarray  # (k,) fractions
    standard_error: np.ndarray  # (k,); NaN for a single repeat
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


def errors_at(progress: pd.DataFrame, by: By, x: np.ndarray) -> np.ndarray:
    """The oracle test error of each repeat at each `x`, (repeats, len(x)) fractions; NaN before a repeat's first.

    A row without a test error leaves the one before it standing. A repeat that has ended keeps its last one.
    """
    rows = []
    for _, frame in by_repeat(progress):
        at, error = numbers(frame, by).to_numpy(), numbers(frame, "test_error").to_numpy()
        known = np.isfinite(at) & np.isfinite(error)
        at, error = at[known], error[known]
        place = np.searchsorted(at, x, side="right")  # (len(x),) how many steps lie at or before each x
        rows.append(np.concatenate([[np.nan], error])[place])
    return np.array(rows) if rows else np.empty((0, len(x)))


def error_at(progress: pd.DataFrame, by: By = "calls", x: float = math.inf) -> tuple[float, float, int]:
    """Mean and standard error over repeats of the oracle test error after `x` solver calls, or seconds.

    By default at the end of each repeat. Only repeats that have an error by then count.

    Returns: mean (a fraction; NaN without a repeat), standard error (NaN with fewer than two), number of repeats.
    """
    errors = errors_at(progress, by, np.array([x], dtype=float))[:, 0]
    errors = errors[np.isfinite(errors)]
    mean, standard_error = _mean(errors[:, None])
    return float(mean[0]), float(standard_error[0]), errors.size


def with_error(mean: float, standard_error: float) -> str:
    """A test error and its standard error: `3.21 ± 0.10 %`; the mean alone where there is one repeat."""
    if not math.isfinite(standard_error):
        return TEST.show(mean)
    return f"{TEST.bare(mean)} ± {TEST.bare(standard_error)} {TEST.unit}"


def error_curve(progress: pd.DataFrame, by: By) -> ErrorCurve | None:
    """The mean over repeats on a grid of all their steps. Repeats without any test error are left out.

    None if there is no test error, or no x at which all others have one.
    """
    x = _steps(progress, by)
    if x.size == 0:
        return None
    x = np.unique(np.append(x, total(progress, by)))
    errors = errors_at(progress, by, x)  # (repeats, k)
    errors = errors[np.isfinite(errors[:, -1])]
    begun = np.isfinite(errors).all(axis=0)
    x, errors = x[begun], errors[:, begun]
    if x.size > _POINTS:
        kept = np.linspace(0, x.size - 1, _POINTS).round().astype(int)
        x, errors = x[kept], errors[:, kept]
    mean, standard_error = _mean(errors)
    return ErrorCurve(x, mean, standard_error, errors)


def reaches(progress: pd.DataFrame, error: float, by: By) -> float:
    """The solver calls or seconds from which on the mean over repeats stays at or below `error`; NaN if it does not."""
    x = _steps(progress, by)
    if x.size == 0:
        return math.nan
    good = errors_at(progress, by, x).mean(axis=0) <= error  # where a repeat has no error yet, the mean is NaN
    if not good[-1]:
        return math.nan
    late = np.flatnonzero(~good)
    return float(x[late[-1] + 1] if late.size else x[0])


def _steps(progress: pd.DataFrame, by: By) -> np.ndarray:
    """Every x at which some repeat's test error may change, ascending."""
    x, error = numbers(progress, by).to_numpy(), numbers(progress, "test_error").to_numpy()
    return np.unique(x[np.isfinite(x) & np.isfinite(error)])


def _mean(errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of (repeats, k) finite values, each (k,)."""
    count, size = errors.shape
    if count == 0:
        return np.full(size, np.nan), np.full(size, np.nan)
    spread = errors.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(size, np.nan)
    return errors.mean(axis=0), spread
