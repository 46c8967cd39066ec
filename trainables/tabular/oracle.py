"""A table's answers to the trials of a search, in the place of trainings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from archray.errors import InvalidInput, InvalidTable
from archray.plurals import count

if TYPE_CHECKING:
    from archray.trainables.tabular.table import Table

FloatArray = NDArray[np.float64]
Seeds = Literal["mean", "drawn"]
OBJECTIVE = "objective"  # the key under which a search is told the value


@dataclass(frozen=True)
class TableOracle:
    """config -> result, for `archray.searchers.drive`: what training the config's `architecture` would have told.

    Results hold `objective` (in the table's unit; the better is `table.mode`), `row`, `seconds` (where the table has
    them), and the costs by their columns. What the search is judged by is not among them.

    Args:
        seeds: `mean`: the table's value; `drawn`: of several trainings of an architecture one, drawn by the config's
            `seed`, as a training would be; the same one at every epoch of which the table has as many.

    Raises: InvalidInput for other seeds; InvalidTable for `drawn` where the objective has no trainings of its own.
    """

    table: Table
    seeds: Seeds = "mean"

    def __post_init__(self) -> None:
        if self.seeds not in get_args(Seeds):
            raise InvalidInput(f"seeds: expected mean or drawn, got {self.seeds!r}")
        if self.seeds == "mean":
            return
        table, objective = self.table, self.table.roles.objective
        if objective not in table.trainings:
            raise InvalidTable(
                f"{table.location} has no column for each training of {objective}, so none can be drawn; name them "
                f"(--seeds {objective}=COLUMN,COLUMN), or take the mean"
            )
        without = np.flatnonzero(np.isnan(table.trainings[objective]).all(axis=1))
        if len(without):
            raise InvalidTable(f"{table.location}: {count(len(without), 'row')} without any training of {objective}")

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Raises: InvalidArchitecture, which names the nearest, for one that the table does not have."""
        row = self.table.row(config["architecture"])
        return {OBJECTIVE: self.value(row, int(config.get("seed", 0))), **self.row_facts(row)}

    def by_epoch(self, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        """config -> a result after each epoch, for `drive` with a scheduler. Raises: as a call of it."""
        return self.steps(self.table.row(config["architecture"]), int(config.get("seed", 0)))

    def steps(self, row: int, seed: int) -> list[dict[str, Any]]:
        """The results of a row after each `epoch` that the table knows; `seconds` as far as it was trained."""
        facts, curve = self.row_facts(row), self.curve(row, seed)
        whole = facts.get("seconds", math.nan)
        return [
            {OBJECTIVE: value, "epoch": epoch, **facts, "seconds": whole * epoch / max(curve)}
            for epoch, value in curve.items()
        ]

    def row_facts(self, row: int) -> dict[str, Any]:
        """What a result holds beside the objective."""
        table = self.table
        seconds = {} if table.seconds is None else {"seconds": float(table.seconds[row])}
        return {"row": row, **seconds, **{name: float(cost[row]) for name, cost in table.costs.items()}}

    def value(self, row: int, seed: int) -> float:
        """The objective of a row, in the training that the seed draws."""
        return self._of(str(self.table.roles.objective), self.table.objective, row, seed)

    def curve(self, row: int, seed: int) -> dict[int, float]:
        """The value of a row after each epoch that the table knows; after the last one it is the objective.

        A table without epochs has one, 1.
        """
        table = self.table
        values = {epoch: self._of(table.roles.epochs[epoch], held, row, seed) for epoch, held in table.epochs.items()}
        return values | {max(values, default=1): self.value(row, seed)}

    def _of(self, column: str, values: FloatArray, row: int, seed: int) -> float:
        trainings = self.table.trainings.get(column)
        if self.seeds == "mean" or trainings is None:
            return float(values[row])
        finite = trainings[row][~np.isnan(trainings[row])]
        if not len(finite):
            return float(values[row])
        return float(finite[np.random.default_rng([seed, row]).integers(len(finite))])
