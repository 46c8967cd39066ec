"""The trials of a plain search, with their values and the best one."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from archray.platform.methods.config import PooledConfig
from archray.platform.quantities import Quantity, quantity_of
from archray.platform.report.section import failures, numbers
from archray.platform.run.layout import TRIALS
from archray.platform.run.run import Run
from archray.trainables.tabular import OBJECTIVE

SUGGESTIONS = ("search", TRIALS)  # in the order of suggestion
ACCURACY = "validation_accuracy"


def searcher_options(run: Run[Any]) -> dict[str, Any]:
    """Returns the options of the searcher. Directions of custom metrics are those of the run's copies."""
    config = run.config
    if isinstance(config, PooledConfig) and config.pool.table is None:
        config = config.model_copy(update={"search": run.config.search.with_metrics(config.metrics_of(run))})
    options: dict[str, Any] = config.searcher_options
    return options


@dataclass(frozen=True)
class Trials:
    """The trials of a search, in the order of suggestion.

    Args:
        table: a row per trial.
        mode: whether the largest (`max`) or the smallest (`min`) value is best.
    """

    table: pd.DataFrame
    mode: str = "max"

    @classmethod
    def of(cls, run: Run[Any]) -> "Trials":
        """The trials of a single run, not of repeats."""
        return cls(run.table(*SUGGESTIONS), (run.document("search") or {}).get("mode", "max"))

    @property
    def key(self) -> str:
        """The column of the values: the validation accuracy, or the objective of a table."""
        return OBJECTIVE if OBJECTIVE in self.table else ACCURACY

    @property
    def quantity(self) -> Quantity:
        return quantity_of(self.key)

    @cached_property
    def values(self) -> pd.Series:
        """The value of each trial; NaN for failed trials and for trials that stopped before the last epoch.

        A scheduler stops trials early, and only trials with equally many epochs are compared.
        """
        epochs = numbers(self.table, "epoch")
        values = numbers(self.table, self.key).where(failures(self.table).isna())
        return values.where(epochs.isna() | (epochs == epochs.where(values.notna()).max()))

    @cached_property
    def losses(self) -> pd.Series:
        """The values with a sign such that smaller is better."""
        return self.values if self.mode == "min" else -self.values

    @property
    def order(self) -> pd.Index:
        """The rows, best first, the earliest first among equals, and rows without a value last."""
        return self.losses.sort_values(kind="stable", na_position="last").index

    @property
    def best(self) -> int | None:
        """The row with the best value, the earliest among equals; None without a value."""
        return int(self.order[0]) if self.values.notna().any() else None
