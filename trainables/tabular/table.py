"""A table of trained architectures: values, metrics, costs and seconds by row; and its results in place of trials."""

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

    Values are as in the file, in its units; `mode` says whether a larger or a smaller one is better. If several rows
    spell one network, the row with the lowest index represents it (note H3): `row` finds it, `rows` are these rows. A
    metric or cost that is missing there is taken from the first spelling that has it.

    Args:
        file: its rows and the roles of its columns.
        space: the space of that file, if it is open already.

    Attributes:
        name: `table:FILE`, without `where` and roles, which are part of `space`.
        space: the architectures as a search space.
        architectures: n strings.
        rows: (m,) the rows that are different networks; fewer than n if several spell one.
        objective: (n,) the values that a search receives. result: (n,) the values that judge it, by default the same.
        mode: `max` or `min`, of both.
        metrics, costs: by column, (n,); NaN where one is missing.
        seconds: (n,) of the training run, or None.
        epochs: by epoch, (n,) the value after it; empty if the table has none.
        trainings: column -> (n, runs), the values of several training runs; NaN where there are fewer.

    Raises: InvalidTable for a table without objective, with a value that is missing or no number, a metric or cost that
        is the same in every row, or rows of one architecture that disagree.
    """

    def __init__(self, file: TableFile, space: TableSpace | None = None) -> None:
        roles, self.roles, self.location = file.roles, file.roles, file.location
        if roles.objective is None:
            columns = ", ".join(column for column in file.rows.columns if column != ARCHITECTURE)
            raise InvalidTable(
                f"{file.location} has no column that is known to be the objective; name the column of the value after "
                f"training (--objective COLUMN); it has {columns}"
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
        """The row of an architecture in any spelling. Raises: InvalidArchitecture that names the nearest row."""
        return self.space.row(architecture)

    @property
    def uninformative(self) -> tuple[str, ...]:
        """Columns with names of metrics or costs, left out because they are constant or empty."""
        named = table_file.guess_roles(list(map(str, self.frame.columns)))
        left = [column for column in (*named.metrics, *named.costs) if column not in self.roles.columns]
        return tuple(column for column in left if self.frame[column].nunique() < 2)

    def check_metric(self, column: str) -> None:
        """Raises: InvalidInput if a search cannot use the column, because it is no metric and no cost."""
        metrics = [*self.metrics, *self.costs]
        if column in self.uninformative:
            raise InvalidInput(f"{self.location}: the metric {column} is the same in every row and tells nothing")
        if column not in metrics:
            raise InvalidInput(f"{self.location} has no metric {column!r}; it has {', '.join(metrics) or 'none'}")

    def oracle(self, seeds: Seeds = "mean") -> TableOracle:
        return TableOracle(self, seeds)

    def __reduce__(self) -> tuple[Any, ...]:
        return _table_in, (self.space,)

    def _distinct(self, file: TableFile) -> pd.DataFrame:
        """A row for each architecture. Raises: InvalidTable if rows of one disagree in anything that has a role."""
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
                f"{self.location} has {count(number, 'architecture')} more than once, with different values: {name!r} "
                f"has {values} in {column}; {table_file.how_to_tell_apart(rows, ARCHITECTURE)}"
            )
        return rows.drop_duplicates(ARCHITECTURE).reset_index(drop=True)

    def _complete(self, column: str, role: str) -> FloatArray:
        values = numbers(self.frame, column, self.location)
        missing = np.flatnonzero(np.isnan(values))
        if len(missing):
            raise InvalidTable(
                f"{self.location}: {count(len(missing), 'row')} of {len(values)} without a finite number in the column "
                f"{column} ({role}), {self.architectures[missing[0]]!r} first; complete the table, name another "
                "column, or leave such rows out (archray bench import --missing drop)"
            )
        if role == "objective" and len(values) > 1 and np.ptp(values) == 0:
            raise InvalidTable(f"{self.location}: the column {column} (objective) is {values[0]:g} in every row")
        return values

    def _informative(self, column: str, role: str) -> FloatArray:
        """A row that represents several takes missing values from the others."""
        values = numbers(self.frame, column, self.location)
        if np.isnan(values).all():
            raise InvalidTable(f"{self.location}: the {role} {column} is empty; leave it out")
        if len(values) > 1 and np.nanmin(values) == np.nanmax(values):
            raise InvalidTable(
                f"{self.location}: the {role} {column} is {np.nanmin(values):g} in every row and tells nothing; "
                "leave it out"
            )
        representative = self.space.representative
        for row in np.flatnonzero(~np.isnan(values) & np.isnan(values[representative])):
            if np.isnan(values[representative[row]]):
                values[representative[row]] = values[row]
        return values


@dataclass(frozen=True)
class TableOracle:
    """config -> result, for `archray.searchers.drive`: the table's values in place of a training run.

    Results have `objective` (in the table's unit; `table.mode` is the better), `row`, `seconds` (if the table has
    them), and the costs by their columns, but not the result that judges the search.

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
                f"{table.location} has no column for each training of {objective}, so none can be drawn; name them "
                f"(--seeds {objective}=COLUMN,COLUMN), or take the mean"
            )
        without = np.flatnonzero(np.isnan(table.trainings[objective]).all(axis=1))
        if len(without):
            raise InvalidTable(f"{table.location}: {count(len(without), 'row')} without any training of {objective}")

    def __call__(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Raises: InvalidArchitecture, which names the nearest, for one that the table lacks."""
        row = self.table.row(config["architecture"])
        return {OBJECTIVE: self.value(row, int(config.get("seed", 0))), **self.row_facts(row)}

    def by_epoch(self, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        """config -> a result after each epoch, for `drive` with a scheduler. Raises: as a call of it."""
        return self.steps(self.table.row(config["architecture"]), int(config.get("seed", 0)))

    def steps(self, row: int, seed: int) -> list[dict[str, Any]]:
        """The results of a row after each `epoch` in the table; `seconds` until then."""
        facts, curve = self.row_facts(row), self.curve(row, seed)
        whole = facts.get("seconds", math.nan)
        return [
            {OBJECTIVE: value, "epoch": epoch, **facts, "seconds": whole * epoch / max(curve)}
            for epoch, value in curve.items()
        ]

    def row_facts(self, row: int) -> dict[str, Any]:
        """The entries of a result other than the objective."""
        table = self.table
        seconds = {} if table.seconds is None else {"seconds": float(table.seconds[row])}
        return {"row": row, **seconds, **{name: float(cost[row]) for name, cost in table.costs.items()}}

    def value(self, row: int, seed: int) -> float:
        """The objective of a row, of the training run that the seed draws."""
        return self._of(str(self.table.roles.objective), self.table.objective, row, seed)

    def curve(self, row: int, seed: int) -> dict[int, float]:
        """The value of a row after each epoch in the table (1 if it has none); after the last, the objective."""
        columns = self.table.roles.epochs
        curve = {epoch: self._of(columns[epoch], values, row, seed) for epoch, values in self.table.epochs.items()}
        return curve | {max(curve, default=1): self.value(row, seed)}

    def _of(self, column: str, values: FloatArray, row: int, seed: int) -> float:
        trainings = self.table.trainings.get(column)
        if self.seeds == "mean" or trainings is None:
            return float(values[row])
        finite = trainings[row][~np.isnan(trainings[row])]
        if not len(finite):
            return float(values[row])
        return float(finite[np.random.default_rng([seed, row]).integers(len(finite))])


def read_table(path: str | Path, where: Mapping[str, str] | None = None, **roles: Any) -> Table:
    """The table in a file: what `archray bench import` wrote, or any CSV (also .csv.gz) or Parquet.

    Args:
        path: a local path or a pyarrow URI.
        where: only the rows in which a column has a value, `{"task": "jigsaw"}`.
        roles: as in `Roles` (`objective="valid"`, `metrics=("snip", "nwot")`, `mode="min"`, ...). The others are as the
            import wrote them, or known by their names; see `archray.trainables.tabular.table_file.guess_roles`.

    Raises: InvalidTable, InvalidInput, InvalidArchitecture; see `Table` and `TableSpace`.
    """
    return Table(table_file.read_table_file(path, where, **roles))


def open_table(name: str) -> Table:
    """The table of `get_space(name)`, `table:FILE` or `table:FILE?ROLE=VALUE&...`; `table:` may be left out.

    A process opens it once per state of the file. Raises: as `read_table`.
    """
    return _table_in(open_table_space(name if name.startswith(PREFIX) else f"{PREFIX}{name}"))


@lru_cache(maxsize=4)
def _table_in(space: TableSpace) -> Table:
    """The table of a space; a copy of a table, in the process it came to."""
    return Table(space.file, space)
