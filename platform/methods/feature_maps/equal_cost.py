"""Test accuracies of several searches at equal solver calls and equal seconds, a table. Khodak et al. 2020 (note W6).

A run is a label and its `progress_of`, which also says what the run's solver calls are: full solves, shared or of
one map each, or many small ones. The caller sees to it that runs are of one space, one data set and one machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from archray.errors import InvalidInput
from archray.platform.methods.feature_maps.oracle_accuracy import (
    TEST,
    By,
    accuracy_at,
    last_rows,
    reaches,
    shares_solves,
    total,
    with_deviation,
)
from archray.platform.quantities import MISSING, significant
from archray.platform.report.table_columns import numbers
from archray.plurals import count

Progress = tuple[str, pd.DataFrame]

RUN, END, REACHED = "run", "at the end", "to random search's accuracy"


def is_random_search(progress: pd.DataFrame) -> bool:
    """Whether every solver call is a full solve of one feature map."""
    return _of_one_size(progress) and not shares_solves(progress)


def comparable_by_calls(progress: pd.DataFrame) -> bool:
    """Whether a run's solver calls can be held against those of others (note W6): full solves, shared or not.

    Halving whose dimension grows counts with them; the other methods' solves are smaller, and many more.
    """
    return _of_one_size(progress) or shares_solves(progress)


def growing(progress: pd.DataFrame) -> bool:
    """Whether solves are shared, and the later ones have more features: fast halving."""
    return shares_solves(progress) and not _of_one_size(progress)


def _of_one_size(progress: pd.DataFrame) -> bool:
    return bool(numbers(progress, "dimension").nunique() == 1)


def comparison_table(runs: Sequence[Progress]) -> pd.DataFrame:
    """A row per run. Test accuracies are fractions; NaN where a run has none, or is not to be compared there.

    Columns, in two levels:
        `run`: `solver calls` and `seconds`, means over the repeats, and the number of `repeats`.
        `at N solver calls`, for a quarter of random search's and for the fewest of the runs comparable by calls,
        `at N s`, for the time in which the fastest run ends, and random search, with all of their repeats,
        `at the end`: of each the `mean` and the `standard deviation` over the repeats that have one by then, and
        their number, `repeats`.
        `to random search's accuracy`: the `solver calls` and `seconds` from which on the mean stays at or above that
        which random search ends with; only with one run of random search.

    Raises: InvalidInput without runs, or with a label twice.
    """
    labels = [label for label, _ in runs]
    if not labels:
        raise InvalidInput("expected runs to compare, got none; name the folder of at least one")
    twice = {label for label in labels if labels.count(label) > 1}
    if twice:
        raise InvalidInput(f"expected a label of its own for each run, got {', '.join(sorted(twice))} more than once")
    calls, seconds, reference = calls_compared(runs), seconds_compared(runs), reference_accuracy(runs)
    rows: list[dict[tuple[str, str], float]] = []
    for _, progress in runs:
        last = last_rows(progress)
        counted = progress if comparable_by_calls(progress) else progress.head(0)
        row: dict[tuple[str, str], float] = {
            (RUN, "solver calls"): float(numbers(last, "calls").mean()),
            (RUN, "seconds"): float(numbers(last, "seconds").mean()),
            (RUN, "repeats"): len(last),
        }
        for number in calls:
            row |= _cells(f"at {count(number, 'solver call')}", accuracy_at(counted, "calls", number))
        for second in seconds:
            row |= _cells(f"at {significant(second)} s", accuracy_at(progress, "seconds", second))
        row |= _cells(END, accuracy_at(progress))
        if reference is not None:
            row[REACHED, "solver calls"] = reaches(counted, reference, "calls")
            row[REACHED, "seconds"] = reaches(progress, reference, "seconds")
        rows.append(row)
    columns = pd.MultiIndex.from_tuples(list(rows[0]))
    return pd.DataFrame([list(row.values()) for row in rows], labels, columns, dtype=float)


def written(comparison: pd.DataFrame) -> pd.DataFrame:
    """A comparison table in words, a column per comparison: `96.79 ± 0.10` in percent, a dash where there is nothing.

    Where fewer repeats have one than there are, it says so: `96.79 ± 0.10 (7 of 10)`.
    """
    columns: dict[str, list[str]] = {}
    for name in dict.fromkeys(comparison.columns.get_level_values(0)):
        part = comparison[name]
        if name == RUN:
            columns |= {str(heading): [_short(value) for value in part[heading]] for heading in part}
        elif name == REACHED:
            columns |= {f"{heading} {name}": [_short(value) for value in part[heading]] for heading in part}
        else:
            cells = zip(
                part["mean"], part["standard deviation"], part["repeats"], comparison[RUN, "repeats"], strict=True
            )
            columns[f"{name} (%)"] = [_accuracy(*cell) for cell in cells]
    return pd.DataFrame(columns, index=comparison.index)


def reference_accuracy(runs: Sequence[Progress]) -> float | None:
    """The mean test accuracy that random search ends with; None without exactly one run of it that has one."""
    random = _random_searches(runs)
    if len(random) != 1:
        return None
    mean, _, repeats = accuracy_at(random[0])
    return mean if repeats else None


def calls_compared(runs: Sequence[Progress]) -> list[int]:
    """Numbers of solver calls to compare at, ascending; none with fewer than two runs that can be."""
    totals = _totals([progress for _, progress in runs if comparable_by_calls(progress)], "calls")
    if len(totals) < 2:
        return []
    quarters = [calls // 4 for calls in _totals(_random_searches(runs), "calls") if calls >= 4]
    return sorted({int(calls) for calls in (*quarters, min(totals))})


def seconds_compared(runs: Sequence[Progress]) -> list[float]:
    """Seconds to compare at, ascending, of three digits and not shorter than the runs they are of."""
    totals = _totals([progress for _, progress in runs], "seconds")
    if len(totals) < 2:
        return []
    return sorted({_rounded_up(seconds) for seconds in (*_totals(_random_searches(runs), "seconds"), min(totals))})


def _random_searches(runs: Sequence[Progress]) -> list[pd.DataFrame]:
    return [progress for _, progress in runs if is_random_search(progress)]


def _totals(tables: Sequence[pd.DataFrame], by: By) -> list[float]:
    """The known and positive totals."""
    totals = [total(progress, by) for progress in tables]
    return [value for value in totals if math.isfinite(value) and value > 0]


def _rounded_up(value: float) -> float:
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")


def _cells(name: str, accuracy: tuple[float, float, int]) -> dict[tuple[str, str], float]:
    return {
        (name, part): value for part, value in zip(("mean", "standard deviation", "repeats"), accuracy, strict=True)
    }


def _accuracy(mean: float, deviation: float, known: float, repeats: float) -> str:
    if not known:
        return MISSING
    text = with_deviation(mean, deviation).removesuffix(f" {TEST.unit}")
    return text if known == repeats else f"{text} ({known:.0f} of {repeats:.0f})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value == round(value, 0) and value < 1e6 else significant(value)
