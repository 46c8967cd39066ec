"""A table of trained architectures: their values, training-free metrics, costs and seconds, by row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from archray.errors import InvalidInput, InvalidTable
from archray.plurals import count
from archray.trainables.spaces.encodings import IntArray
from archray.trainables.spaces.table_space import PREFIX, TableSpace, open_table_space
from archray.trainables.tabular.oracle import Seeds, TableOracle
from archray.trainables.tabular.roles import guess_roles
from archray.trainables.tabular.table_file import ARCHITECTURE, TableFile, how_to_tell_apart, numbers, read_table_file

if TYPE_CHECKING:
    import pandas as pd

FloatArray = NDArray[np.float64]


class Table:
    """What is known of n trained architectures.

    Values are as the file has them, in its units; `mode` says whether a larger or a smaller one is better. Of several
    spellings of one network the row with the lowest index stands for all (note H3): `row` finds it, `rows` are those
    rows. A metric or cost that is missing there is that of the first spelling which has it.

    Args:
        file: its rows and the roles of its columns.
        space: the space of that file, if it was opened before.

    Attributes:
        name: `table:FILE`; what was named beside the file (`where`, roles) is no part of it, but of `space`.
        space: the architectures as a search space.
        architectures: n strings.
        rows: (m,) the rows that are different networks; below n where several spell one.
        objective: (n,) what a search is told. result: (n,) what it is judged by; the objective if there is none.
        mode: `max` or `min`, of both.
        metrics, costs: by column, (n,); NaN where one is missing.
        seconds: (n,) of the training, or None.
        epochs: by epoch, (n,) the value after so many; empty if the table has none.
        trainings: of values that were trained several times, column -> (n, trainings); NaN where there were fewer.

    Raises: InvalidTable for a table without objective, with a value that is missing or no number, a metric or cost that
        is the same in every row, or rows of one architecture that disagree.
    """

    def __init__(self, file: TableFile, space: TableSpace | None = None) -> None:
        roles, self.roles, self.location = file.roles, file.roles, file.location
        if roles.objective is None:
            held = ", ".join(column for column in file.rows.columns if column != ARCHITECTURE)
            raise InvalidTable(
                f"{file.location} has no column that is known to be the objective; name what a search is told after "
                f"a training (--objective COLUMN); it has {held}"
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
        """The row that stands for an architecture, in whatever spelling.

        Raises: InvalidArchitecture that names the nearest row.
        """
        return self.space.row(architecture)

    @property
    def uninformative(self) -> tuple[str, ...]:
        """Columns whose names are those of metrics or costs, left out because every row has the same, or none."""
        named = guess_roles(list(map(str, self.frame.columns)))
        left = [column for column in (*named.metrics, *named.costs) if column not in self.roles.columns]
        return tuple(column for column in left if self.frame[column].nunique() < 2)

    def check_metric(self, column: str) -> None:
        """Raises: InvalidInput if a search cannot go by the column: only by one that is a metric or a cost."""
        known = [*self.metrics, *self.costs]
        if column in self.uninformative:
            raise InvalidInput(f"{self.location}: the metric {column} is the same in every row and tells nothing")
        if column not in known:
            raise InvalidInput(f"{self.location} has no metric {column!r}; it has {', '.join(known) or 'none'}")

    def oracle(self, seeds: Seeds = "mean") -> TableOracle:
        """What answers a trial's config from the table; see `TableOracle`."""
        return TableOracle(self, seeds)

    def __reduce__(self) -> tuple[Any, ...]:
        return _table_in, (self.space,)

    # How it is read ------------------------------------------------------------------------------------------------

    def _distinct(self, file: TableFile) -> pd.DataFrame:
        """A row for each architecture. Raises: InvalidTable if rows of one disagree in anything that has a role."""
        rows = file.rows
        repeated = rows[rows.duplicated(ARCHITECTURE, keep=False)]
        columns = [ARCHITECTURE, *dict.fromkeys((*file.roles.values, *file.roles.columns))]
        told = repeated[columns].drop_duplicates()
        disagreeing = told[told.duplicated(ARCHITECTURE)]
        if not disagreeing.empty:
            name, number = disagreeing[ARCHITECTURE].iloc[0], disagreeing[ARCHITECTURE].nunique()
            first = told[told[ARCHITECTURE] == name].iloc[:2]
            column = next(c for c in columns[1:] if first[c].nunique(dropna=False) > 1)
            values = " and ".join(map(str, first[column]))
            raise InvalidTable(
                f"{self.location} has {count(number, 'architecture')} more than once, with different values: {name!r} "
                f"has {values} in {column}; {how_to_tell_apart(rows, ARCHITECTURE)}"
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
        """With what is missing in a row that stands for several filled in from the others."""
        values = numbers(self.frame, column, self.location)
        if np.isnan(values).all():
            raise InvalidTable(f"{self.location}: the {role} {column} is empty; leave it out")
        if len(values) > 1 and np.nanmin(values) == np.nanmax(values):
            raise InvalidTable(
                f"{self.location}: the {role} {column} is {np.nanmin(values):g} in every row and tells nothing; "
                "leave it out"
            )
        standing = self.space.representative
        for row in np.flatnonzero(~np.isnan(values) & np.isnan(values[standing])):
            if np.isnan(values[standing[row]]):
                values[standing[row]] = values[row]
        return values


def read_table(path: str | Path, where: Mapping[str, str] | None = None, **roles: Any) -> Table:
    """The table in a file: what `archray bench import` wrote, or any CSV (also .csv.gz) or Parquet.

    Args:
        path: a local path or a pyarrow URI.
        where: only the rows in which a column has a value, `{"task": "jigsaw"}`.
        roles: as `Roles` has them (`objective="valid"`, `metrics=("snip", "nwot")`, `mode="min"`, ...). Those that are
            not named are what the import wrote, or else known by their names; see
            `archray.trainables.tabular.roles.guess_roles`.

    Raises: InvalidTable, InvalidInput, InvalidArchitecture; see `Table` and `TableSpace`.
    """
    return Table(read_table_file(path, where, **roles))


def open_table(name: str) -> Table:
    """The table of `get_space(name)`, `table:FILE` or `table:FILE?ROLE=VALUE&...`; `table:` may be left out.

    It is opened once per process and state of the file. Raises: as `read_table`.
    """
    return _table_in(open_table_space(name if name.startswith(PREFIX) else f"{PREFIX}{name}"))


@lru_cache(maxsize=4)
def _table_in(space: TableSpace) -> Table:
    """The table of a space; a copy of a table, in the process it came to."""
    return Table(space.file, space)
