"""The trials of a plain search: their order, which is best, and their names."""

from __future__ import annotations

from typing import Any

import pandas as pd

from archray.platform.quantities import quantity_of
from archray.platform.report.short_names import ShortNames, short_names
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run

ASKED = ("search", TRIALS)  # in the order in which the searcher asked for them
VALUE = quantity_of("validation_accuracy")  # of a trial; the more the better


def values_of(trials: pd.DataFrame) -> pd.Series:
    """The value of each trial, a fraction; NaN of one that failed, or that was stopped before the others' last epoch.

    Only what was trained equally long is compared: a scheduler stops trials early.
    """
    epochs = numbers(trials, "epoch")
    values = numbers(trials, "validation_accuracy").where(failures(trials).isna())
    return values.where(epochs.isna() | (epochs == epochs.where(values.notna()).max()))


def best_trial(trials: pd.DataFrame) -> int | None:
    """The row with the best value, the earliest of equals; None if there is none."""
    values = values_of(trials)
    return int(values.to_numpy(na_value=float("-inf")).argmax()) if values.notna().any() else None


def names_of(run: Run[Any]) -> ShortNames:
    """The names of what was found, and of what the best repeat trained, by value; last what has none."""
    trials = run.best.table(*ASKED)
    if trials.empty:
        return short_names(run)
    order = values_of(trials).sort_values(ascending=False, kind="stable", na_position="last").index
    return short_names(run, trials["architecture"][order])
