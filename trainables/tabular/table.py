"""A table of trained architectures: values, metrics, costs and seconds by row; its results replace trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from archray.errors import InvalidInput, InvalidTable
from archray.plurals import count
from archray.trainables.spaces.encodings import IntArray
from archray.trainables.spaces.table_space import PREFIX, TableSpace, open_table_space
from archray.trainables.tabular import table_file
from archray.trainables.tabular.table_file import ARCHITECTURE, TableFile, numbers

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]
Seeds = Literal["mean", "drawn"]
OBJECTIVE = "objective"  # the key of the value in a search's results


class Table:
    """The values of n trained architectures.

    Values are as in the file, in its units; `mode` defines whether larger or smaller ones are better. If several rows
    describe one network, the row with the lowest index represents it (note H3): `row` finds it, `rows` are these rows.
    If a metric or cost is missing there, it is taken from the first other row that has it.

    Args:
        file: Rows, and the roles of the columns.
        space: Space of that file, if it is already open.

    Attributes:
        name: `table:FILE`, without `where` and roles, which are part of `space`.
        space: The architectures as a search space.
        architectures: n strings.
        rows: (m,) the rows of different networks; fewer than n if several rows describe one.
        objective: (n,) the values that a search receives.
        result: (n,) the values that judge the search, by default the same.
        mode: `max` or `min`, of both.
        metrics, costs: By column, (n,); NaN for a missing value.
        seconds: (n,) of the training run, or None.
        epochs: By epoch, (n,) the value after it; empty if the table has none.
        trainings: Column -> (n, runs), the values of several training runs; NaN if there are fewer.

    Raises: InvalidTable for a table without objective, with a value that is missing or not a number, a metric or cost
        that is constant, or rows of one architecture with different values.
    """

    def __init__(self, file: TableFile, space: TableSpace | None = None) -> None:
        roles, self.roles, self.location = file.roles, file.roles, file.location
        if roles.objective is None:
            columns = ", ".join(column for column in file.rows.columns if column != ARCHITECTURE)
            raise InvalidTable(
                f"expected a column with the objective in {file.location}, found no known name. Name the column with "
                f"the value after training (--objective COLUMN); columns: {columns}"
            )
        frame = self._distinct(file)
        self.frame = frame
        self.space = space or TableSpace(file)
        self.name, self.architectures = self.space.name, self.space.architectures
        self.rows: IntArray = np.flatnonzero(self.space.representative == np.arange(len(frame)))
        values = {column: self._complete(column, role) for column, role in roles.values.items()}
        self.objective: FloatArray = values[roles.objective]
        self.result: FloatArray = values[roles.result] if roles.result else self.objective
        self.mode: Literal["max", "min"] = roles.mode
        self.metrics: dict[str, FloatArray] = {column: self._informative(column, "metric") for column in roles.metrics}
        self.costs: dict[str, FloatArray] = {column: self._informative(column, "cost") for column in roles.costs}
        self.seconds: FloatArray | None = values[roles.seconds] if roles.seconds else None
        self.epochs: dict[int, FloatArray] = {epoch: values[roles.epochs[epoch]] for epoch in sorted(roles.epochs)}
        self.trainings: dict[str, FloatArray] = {
            value: np.stack([numbers(frame, column, self.location) for column in columns], axis=1)
            for value, columns in roles.seeds.items()
        }

    def __len__(self) -> int:
        return len(self.architectures)

    def row(self, architecture: str) -> int:
        """Returns the row of an architecture in any spelling. Raises: InvalidArchitecture, with the nearest row."""
        return self.space.row(architecture)

    @property
    def uninformative(self) -> tuple[str, ...]:
        """Columns with names of metrics or costs that are left out because they are constant or empty."""
        named = table_file.guess_roles(list(map(str, self.frame.columns)))
        left = [column for column in (*named.metrics, *named.costs) if column not in self.roles.columns]
        return tuple(column for column in left if self.frame[column].nunique() < 2)

    def check_metric(self, column: str) -> None:
        """Raises: InvalidInput if a search cannot use the column, because it is neither a metric nor a cost."""
        metrics = [*self.metrics, *self.costs]
        if column in self.uninformative:
            raise InvalidInput(
                f"{self.location}: expected a metric that varies, got {column}, which is the same in every row. Choose "
                "another"
            )
        if column not in metrics:
            raise InvalidInput(f"{self.location} has no metric {column!r}; it has {', '.join(metrics) or 'none'}")

    def oracle(self, seeds: Seeds = "mean") -> TableOracle:
        return TableOracle(self, seeds)

    def __reduce__(self) -> tuple[Any, ...]:
        return _table_in, (self.space,)

    def _distinct(self, file: TableFile) -> pd.DataFrame:
        """Returns one row per architecture. Raises: InvalidTable if its rows differ in a column that has a role."""
        rows = file.rows
        repeated = rows[rows.duplicated(ARCHITECTURE, keep=False)]
        columns = [ARCHITECTURE, *dict.fromkeys((*file.roles.values, *file.roles.columns))]
        distinct = repeated[columns].drop_duplicates()
        disagreeing = distinct[distinct.duplicated(ARCHITECTURE)]
        if not disagreeing.empty:
            name, number = disagreeing[ARCHITECTURE].iloc[0], disagreeing[ARCHITECTURE].nunique()
            first = distinct[distinct[ARCHITECTURE] == name].iloc[:2]
            column = next(c for c in columns[1:] if first[c].nunique(dropna=False) > 1)
            values = " and ".join(map(str, first[column]))
            raise InvalidTable(
                f"{self.location}: expected one row per architecture, got {count(number, 'architecture')} with "
                f"different values: {name!r} has {values} in {column}. "
                f"{table_file.advice_for_duplicates(rows, ARCHITECTURE)}"
            )
        return rows.drop_duplicates(ARCHITECTURE).reset_index(drop=True)

    def _complete(self, column: str, role: str) -> FloatArray:
        values = numbers(self.frame, column, self.location)
        missing = np.flatnonzero(np.isnan(values))
        if len(missing):
            raise InvalidTable(
                f"{self.location}: expected finite numbers in the column {column} ({role}), got none in "
                f"{count(len(missing), 'row')} of {len(values)}, first {self.architectures[missing[0]]!r}; complete "
                "the table, choose another column, or drop such rows (archray bench import --missing drop)"
            )
        if role == "objective" and len(values) > 1 and np.ptp(values) == 0:
            raise InvalidTable(
                f"{self.location}: expected different values in the column {column} (objective), got {values[0]:g} in "
                "every row. Choose another column"
            )
        return values

    def _informative(self, column: str, role: str) -> FloatArray:
        """Returns the values of a column. A row that represents several takes missing values from the others."""
        values = numbers(self.frame, column, self.location)
        if np.isnan(values).all():
            raise InvalidTable(f"{self.location}: expected numbers in the {role} {column}, got none. Leave it out")
        if len(values) > 1 and np.nanmin(values) == np.nanmax(values):
            raise InvalidTable(
                f"{self.location}: expected different values in the {role} {column}, got {np.nanmin(values):g} in "
                "every row. Leave it out"
            )
        representative = self.space.representative
        for row in np.flatnonzero(~np.isnan(values) & np.isnan(values[representative])):
            if np.isnan(values[representative[row]]):
                values[representative[row]] = values[row]
        return values


@dataclass(frozen=True)
class TableOracle:
    """Function from a config to a result, for `archray.searchers.drive`: the table's values replace a training run.

    Results have `objective` (in the table's unit; better by `table.mode`), `row`, `seconds` (if the table has them),
    and the costs by their columns, but not the result that judges the search.

    Args:
        seeds: `mean`: the table's value; `drawn`: one of several training runs of an architecture, drawn by the
            config's `seed`; the same one at every epoch with as many runs.

    Raises: InvalidInput for other seeds; InvalidTable for `drawn` if the objective has no columns of training runs.
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
                f"expected columns for the training runs of {objective} in {table.location}, got none. Name them "
                f"(--seeds {objective}=COLUMN,COLUMN), or choose the seeds mean"
            )
        without = np.flatnonzero(np.isnan(table.trainings[objective]).all(axis=1))
        if len(without):
            raise InvalidTable(
                f"{table.location}: expected a training run of {objective} in every row, got none in "
                f"{count(len(without), 'row')}. Choose the seeds mean"
            )

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a result. Raises: InvalidArchitecture, with the nearest row, for an unknown architecture."""
        row = self.table.row(config["architecture"])
        return {OBJECTIVE: self.value(row, int(config.get("seed", 0))), **self.row_facts(row)}

    def by_epoch(self, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Returns a result after each epoch for a config, for `drive` with a scheduler. Raises: as a call."""
        return self.steps(self.table.row(config["architecture"]), int(config.get("seed", 0)))

    def steps(self, row: int, seed: int) -> list[dict[str, Any]]:
        """Returns the results of a row after each `epoch` in the table; `seconds` are those until then."""
        facts, curve = self.row_facts(row), self.curve(row, seed)
        whole = facts.get("seconds", math.nan)
        return [
            {OBJECTIVE: value, "epoch": epoch, **facts, "seconds": whole * epoch / max(curve)}
            for epoch, value in curve.items()
        ]

    def row_facts(self, row: int) -> dict[str, Any]:
        """Returns the entries of a result other than the objective."""
        table = self.table
        seconds = {} if table.seconds is None else {"seconds": float(table.seconds[row])}
        return {"row": row, **seconds, **{name: float(cost[row]) for name, cost in table.costs.items()}}

    def value(self, row: int, seed: int) -> float:
        """Returns the objective of a row, for the training run that the seed draws."""
        return self._of(str(self.table.roles.objective), self.table.objective, row, seed)

    def curve(self, row: int, seed: int) -> dict[int, float]:
        """Returns a row's value after each epoch of the table (1 without epochs); after the last, the objective."""
        columns = self.table.roles.epochs
        curve = {epoch: self._of(columns[epoch], values, row, seed) for epoch, values in self.table.epochs.items()}
        return curve | {max(curve, default=1): self.value(row, seed)}

    def _of(self, column: str, values: FloatArray, row: int, seed: int) -> float:
        runs = self.table.trainings.get(column)
        if self.seeds == "mean" or runs is None:
            return float(values[row])
        finite = runs[row][~np.isnan(runs[row])]
        if not len(finite):
            return float(values[row])
        return float(finite[np.random.default_rng([seed, row]).integers(len(finite))])


def read_table(path: str | Path, where: Mapping[str, str] | None = None, **roles: Any) -> Table:
    """Reads a table from a file: output of `archray bench import`, or any CSV (also .csv.gz) or Parquet file.

    Args:
        path: A local path or a pyarrow URI.
        where: Selects the rows in which a column has a value, `{"task": "jigsaw"}`.
        roles: As in `Roles` (`objective="valid"`, `metrics=("snip", "nwot")`, `mode="min"`, ...). The others come from
            the import, or from known names; see `archray.trainables.tabular.table_file.guess_roles`.

    Raises: InvalidTable, InvalidInput, InvalidArchitecture; see `Table` and `TableSpace`.

    Example:
        >>> table = read_table("results.csv", objective="valid", mode="max")  # doctest: +SKIP
        >>> table.oracle()({"architecture": table.architectures[0]})  # doctest: +SKIP
    """
    return Table(table_file.read_table_file(path, where, **roles))


def open_table(name: str) -> Table:
    """Opens the table of `get_space(name)`: `table:FILE` or `table:FILE?ROLE=VALUE&...`; `table:` may be omitted.

    A process opens it once per state of the file. Raises: as `read_table`.
    """
    return _table_in(open_table_space(name if name.startswith(PREFIX) else f"{PREFIX}{name}"))


@lru_cache(maxsize=4)
def _table_in(space: TableSpace) -> Table:
    """Returns the table of a space; also used to copy a table into another process."""
    return Table(space.file, space)
