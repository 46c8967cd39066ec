"""The measures of a run, which its report, `architecture.json` and `archray show` contain. Imports no matplotlib."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.quantities import Spread
from archray.platform.report import section
from archray.platform.report.section import numbers
from archray.platform.report.statistics import best_of
from archray.platform.run.layout import CURVES, DONE, LARGEST, SEARCH_STAGES, TRAINING_STAGES, TRIALS
from archray.platform.run.run import Run

Measured = Mapping[str, Spread]  # spreads by the keys of `quantities`; unknown values are missing


def tested(trials: pd.DataFrame) -> np.ndarray:
    """Returns the finite test accuracies of training runs, (n,), in [0, 1]."""
    return section.finite_values(numbers(trials, "test_accuracy"))


def is_found(run: Run[Any]) -> bool:
    """Returns whether the search found the result of a run; otherwise it is a network for comparison."""
    return "found" not in (run.result or {})


def whole_space(run: Run[Any]) -> bool:
    """Returns whether the comparison of a run is with all other architectures of its space, not with random ones."""
    return (run.document("baseline") or {}).get("origin") == "space"


def result_runs(run: Run[Any]) -> pd.DataFrame:
    """Returns the training runs of the result: the final training runs, or one row of the comparison."""
    if is_found(run):
        return run.table("final", TRIALS)
    trials = run.table("baseline", TRIALS)
    return trials[trials["architecture"] == (run.result or {})["architecture"]]


def largest_of(run: Run[Any]) -> str | None:
    """Returns the largest architecture of the comparison; None for a comparison without it."""
    name = (run.document("baseline", LARGEST) or {}).get("architecture")
    return None if name is None else str(name)


def other_runs(run: Run[Any]) -> pd.DataFrame:
    """Returns the training runs of random architectures, or those of all other architectures of a small space."""
    trials = run.table("baseline", TRIALS)
    return trials if whole_space(run) else trials.drop(_rows_of(trials, largest_of(run)).index).reset_index(drop=True)


def largest_runs(run: Run[Any]) -> pd.DataFrame:
    """Returns the training runs of the largest architecture, with the final training runs if the search found it."""
    name = largest_of(run)
    final = [run.table("final", TRIALS)] if name is not None and name == run.architecture else []
    return pd.concat([*final, _rows_of(run.table("baseline", TRIALS), name)], ignore_index=True)


def _rows_of(trials: pd.DataFrame, architecture: str | None) -> pd.DataFrame:
    return trials[trials["architecture"] == architecture] if "architecture" in trials else trials[:0]


def measured_networks(run: Run[Any]) -> Measured:
    """Returns the spreads of the result's training runs, of the final training runs of the found architecture if there
    is a choice, and of the largest and random (or of all other) architectures trained the same way."""
    found, others = Spread.of(tested(run.table("final", TRIALS)), "final training run"), tested(other_runs(run))
    result = found if is_found(run) else Spread.of(tested(result_runs(run)), "training run")
    spreads = {"test_accuracy": result, "found_test_accuracy": found if run.document("baseline") else None}
    spreads["largest_test_accuracy"] = Spread.of(tested(largest_runs(run)), "training run")
    if whole_space(run):
        spreads["others_test_accuracy"] = Spread.of(others, "other architecture")
    else:
        k = training_runs_of(run, SEARCH_STAGES)
        choice = "validation_accuracy", "max"
        spreads["random_test_accuracy"] = Spread.of(others, "random architecture")
        spreads["best_random_test_accuracy"] = best_of_random(other_runs(run), choice, "test_accuracy", k)
    return {key: spread for key, spread in spreads.items() if spread}


def times(run: Run[Any]) -> Measured:
    """Returns the seconds that a run spent on the networks of an accuracy, by the key of the accuracy.

    The largest and the random architectures share a stage, whose time is divided in proportion to their training.
    """
    stages = {name: run.document(name, DONE) for name in run.folder.folders() if name != "report"}
    seconds = {name: float(done["seconds"]) for name, done in stages.items() if done}
    compared = seconds.pop("baseline", math.nan)
    parts = {"others_test_accuracy" if whole_space(run) else "random_test_accuracy": other_runs(run)}
    if not whole_space(run):
        parts["largest_test_accuracy"] = _rows_of(run.table("baseline", TRIALS), largest_of(run))
    trained = {key: numbers(trials, "time_total_s").sum() for key, trials in parts.items()}
    whole = sum(trained.values())
    spent = {key: compared * part / whole for key, part in trained.items() if part}
    found = "test_accuracy" if is_found(run) else "found_test_accuracy"
    spent[found] = sum(seconds.values()) if "final" in seconds else math.nan
    spreads = {key: Spread.of([value], "") for key, value in spent.items()}
    return {key: spread for key, spread in spreads.items() if spread}


def best_of_random(trials: pd.DataFrame, choice: tuple[str, str], value: str, k: int) -> Spread | None:
    """Returns the expected value of the best of `k` random architectures, or of all if they are fewer than `k`.

    Args:
        trials: a row per random architecture.
        choice: column that selects the best, and whether its largest (`max`) or smallest (`min`) value is best.
        value: column of the value.
        k: number of training runs (or lookups) of the search, so that the comparison is fair.

    Returns: None if there are fewer than two architectures with both values, or for k < 2.
    """
    choices, values = numbers(trials, choice[0]), numbers(trials, value)
    complete = choices.notna() & values.notna()
    k = min(k, int(complete.sum()))
    if k < 2:
        return None
    sign = 1 if choice[1] == "max" else -1
    return Spread(
        best_of(sign * choices[complete], values[complete], k), None, 1, f"selection from {k} random architectures"
    )


def training_runs_of(run: Run[Any], stages: Sequence[str]) -> int:
    """Returns the number of training runs of these stages."""
    curves = [run.table(stage, CURVES) for stage in stages]
    return sum(table["trial_id"].nunique() for table in curves if "trial_id" in table)


def costs(run: Run[Any], stages: Sequence[str] = TRAINING_STAGES) -> Measured:
    """Returns the size of a run's networks, and the number of its training runs in these stages."""
    final = result_runs(run)
    spreads = {key: Spread.of([numbers(final, key).mean()], "") for key in ("parameters", "multiply_adds")}
    training_runs = training_runs_of(run, (*stages, "baseline") if run.document("baseline") else stages)
    spreads["trainings"] = Spread.of([training_runs], "") if training_runs else None
    return {key: spread for key, spread in spreads.items() if spread}


def over_repeats(run: Run[Any], measure: Callable[[Run[Any]], Measured]) -> Measured:
    """Returns `measure(run)` for a single run; with several repeats, the spread of their means.

    The test accuracy of the found architecture is omitted if it is the test accuracy of the result.
    """
    of_repeats = [measure(repeat) for repeat in run.repeats]
    keys = dict.fromkeys(key for measured in of_repeats for key in measured)
    spreads = {key: Spread.of((m[key].mean for m in of_repeats if key in m), "repeat") for key in keys}
    measured = {key: spread for key, spread in spreads.items() if spread} if run.repeats else dict(measure(run))
    if measured.get("found_test_accuracy") == measured.get("test_accuracy"):
        measured.pop("found_test_accuracy", None)
    return measured


def headline_key(measured: Measured, keys: Sequence[str]) -> str | None:
    """Returns the key of the headline, the lowest of these test accuracies; None if all are missing."""
    present = [key for key in keys if key in measured]
    return min(present, key=lambda key: measured[key].mean, default=None)
