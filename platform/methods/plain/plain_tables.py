"""The trials of a plain search: what they are compared by, their order, which is best, and their names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from archray.platform.quantities import Quantity, quantity_of
from archray.platform.report.short_names import ShortNames, short_names
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.trainables.tabular import OBJECTIVE

ASKED = ("search", TRIALS)  # in the order in which the searcher asked for them
ACCURACY = "validation_accuracy"


@dataclass(frozen=True)
class Trials:
    """The trials of a search, in the order in which it asked for them.

    Args:
        table: a row for each.
        mode: whether the larger or the smaller value is better.
    """

    table: pd.DataFrame
    mode: str = "max"

    @classmethod
    def of(cls, run: Run[Any]) -> Trials:
        """Of one run, not of its repeats."""
        return cls(run.table(*ASKED), (run.document("search") or {}).get("mode", "max"))

    @property
    def key(self) -> str:
        """What they are compared by: a validation accuracy, or what a table says."""
        return OBJECTIVE if OBJECTIVE in self.table else ACCURACY

    @property
    def quantity(self) -> Quantity:
        return quantity_of(self.key)

    @cached_property
    def values(self) -> pd.Series:
        """The value of each; NaN of one that failed, or that was stopped before the others' last epoch.

        Only what was trained equally long is compared: a scheduler stops trials early.
        """
        epochs = numbers(self.table, "epoch")
        values = numbers(self.table, self.key).where(failures(self.table).isna())
        return values.where(epochs.isna() | (epochs == epochs.where(values.notna()).max()))

    @cached_property
    def losses(self) -> pd.Series:
        """The values as something to minimise."""
        return self.values if self.mode == "min" else -self.values

    @property
    def order(self) -> pd.Index:
        """The rows, the best first, the earliest of equals; last those without a value."""
        return self.losses.sort_values(kind="stable", na_position="last").index

    @property
    def best(self) -> int | None:
        """The row with the best value, the earliest of equals; None if there is none."""
        return int(self.order[0]) if self.values.notna().any() else None


def names_of(run: Run[Any]) -> ShortNames:
    """The names of what was found, and of what the best repeat trained, by value; last what has none."""
    trials = Trials.of(run.best)
    return short_names(run, () if trials.table.empty else trials.table["architecture"][trials.order])
