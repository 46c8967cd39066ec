"""`archray bench import`: tables that people share, joined and given roles, as one Parquet file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from archray.errors import InvalidInput, InvalidTable
from archray.files import new_file
from archray.platform.bench.nasbench1shot1_rows import cells_by_order, has_cut_matrices
from archray.platform.bench.nats_bench_rows import SHORT, nats_bench_rows
from archray.trainables.spaces import SPACES, NASBench1Shot1, get_space
from archray.trainables.spaces.encodings import NONE
from archray.trainables.spaces.table_space import CANONICAL, DECISIONS
from archray.trainables.tabular.roles import ARCHITECTURES
from archray.trainables.tabular.table import Table, read_table
from archray.trainables.tabular.table_file import (
    ARCHITECTURE,
    INDEX,
    absolute,
    how_to_tell_apart,
    numbers,
    read_frame,
    select,
    table_file,
    write_table_file,
)

if TYPE_CHECKING:
    import pandas as pd

Missing = Literal["refuse", "drop"]
KEYS = (INDEX, *ARCHITECTURES)  # columns that tables are joined on
OF_SCORING = ("failure", "seconds")  # of a pool that `archray proxies` wrote: of the scoring, not of a training


def import_table(
    file: str | Path,
    out: str | Path | None = None,
    *,
    where: Mapping[str, str] | None = None,
    join: Sequence[str | Path] = (),
    on: str | None = None,
    missing: Missing = "refuse",
    **roles: Any,
) -> Table:
    """Writes a table with what its columns are for, its rows checked, its networks' canonical forms found.

    Args:
        file: CSV (also .csv.gz) or Parquet; a path or a pyarrow URI.
        out: the Parquet file to write, new; by default the name of `file` with `.parquet`, in the current folder.
        where: of each file that has such a column only the rows in which it has this value, `{"task": "jigsaw"}`.
        join: further tables of the same architectures, whose columns go beside those of `file`. A column that both
            have, with different values, is called `COLUMN_FILE` if it is the joined one's.
        on: the column that says which rows belong together; by default `index`, or the column of architectures.
        missing: what becomes of rows without a number for objective, result, epochs or seconds: refused, or dropped.
        roles: as `archray.trainables.tabular.Roles` has them; those that are not named are known by well-known names.
            With the space `nasbench1shot1-1`, a table of NAS-Bench-1Shot1 in which only the first row of each matrix
            is left has the cells that the order of its rows says, which is checked.

    Returns: the table as it was written. Raises: InvalidTable, InvalidInput, InvalidArchitecture, RunFolderError,
    before anything is written.
    """
    location = absolute(file)
    out = new_file(f"{_stem(location)}.parquet" if out is None else out, ".parquet")
    if missing not in ("refuse", "drop"):
        raise InvalidInput(f"missing: expected refuse or drop, got {missing!r}")
    frame, written, checksum = read_frame(location)
    others = {absolute(other): read_frame(absolute(other))[0] for other in join}
    _check_where(where or {}, {location: frame, **others})
    frame = _selected(frame, where, location)
    if not roles.get("architecture") and has_cut_matrices(list(frame.columns)):
        space = get_space(roles["space"]) if roles.get("space") in SPACES else None
        if isinstance(space, NASBench1Shot1):
            frame = frame.assign(**{ARCHITECTURE: cells_by_order(frame, space, location)})
    for place, other in others.items():
        frame = _joined(frame, _selected(other, where, place), on, location, place)
    return write_imported(frame, out, location, checksum, written, missing=missing, **roles)


def import_nats_bench(
    place: str | Path,
    out: str | Path | None = None,
    *,
    dataset: str = "cifar10",
    missing: Missing = "refuse",
    **roles: Any,
) -> Table:
    """Writes the official files of NATS-Bench as a table; see `nats_bench_rows` for its columns.

    The objective is the 12-epoch validation accuracy, the result the test accuracy after the longest training, unless
    they are named. Raises: as `import_table`.
    """
    location = absolute(place)
    out = new_file(f"{_stem(location)}-{dataset}.parquet" if out is None else out, ".parquet")
    frame = nats_bench_rows(location, dataset)
    longest = max((column for column in frame.columns if column.startswith("test_")), key=lambda c: int(c[5:]))
    own = {"objective": f"valid_{SHORT}", "result": longest, "seconds": f"seconds_{SHORT}"}
    own = {role: column for role, column in own.items() if column in frame.columns}
    named = {role: column for role, column in roles.items() if column is not None}
    return write_imported(frame, out, location, missing=missing, **{**own, **named})


def write_imported(
    frame: pd.DataFrame,
    out: Path,
    location: str,
    checksum: str = "",
    written: Mapping[str, Any] | None = None,
    *,
    missing: Missing = "refuse",
    **roles: Any,
) -> Table:
    """Checks the rows of a frame, writes them to `out` and reads them back. location: where they come from."""
    file = table_file(frame, location, checksum, None, written, **roles)
    if missing == "drop" and file.roles.values:
        values = [numbers(file.rows, column, location) for column in file.roles.values]
        complete = np.flatnonzero(~np.isnan(values).any(axis=0))
        if not len(complete):
            raise InvalidTable(f"{location}: no row has a number in all of {', '.join(file.roles.values)}")
        file = replace(file, rows=file.rows.iloc[complete].reset_index(drop=True))
    table = Table(file)
    space, rows = table.space, table.frame.drop(columns=CANONICAL, errors="ignore")
    if len(file.roles.architecture) == 1:  # which has its own column now
        rows = rows.drop(columns={*file.roles.architecture} - {ARCHITECTURE}, errors="ignore")
    if space.base is not None:
        rows[CANONICAL] = list(space.forms)
    encoding = None if space.encoding == DECISIONS else space.encoding
    kept = replace(file.roles, space=space.base.name if space.base else NONE, encoding=encoding)
    write_table_file(out, rows, kept)
    return read_table(out)


def _stem(location: str) -> str:
    return Path(location).name.partition(".")[0]


def _check_where(where: Mapping[str, str], frames: Mapping[str, pd.DataFrame]) -> None:
    for column in where:
        if not any(column in frame.columns for frame in frames.values()):
            told = "; ".join(f"{place} has {', '.join(frame.columns)}" for place, frame in frames.items())
            raise InvalidTable(f"there is no column {column!r} to select by: {told}")


def _selected(frame: pd.DataFrame, where: Mapping[str, str] | None, location: str) -> pd.DataFrame:
    own = {column: value for column, value in (where or {}).items() if column in frame.columns}
    return select(frame, own, location)


def _joined(frame: pd.DataFrame, other: pd.DataFrame, on: str | None, location: str, place: str) -> pd.DataFrame:
    """The columns of `other`, whose file is `place`, beside those of `frame`; NaN where it has no such row."""
    if set(OF_SCORING) <= set(other.columns):
        other = other.drop(columns=list(OF_SCORING))
    if on is None and INDEX not in frame.columns.intersection(other.columns):
        own, theirs = (next((c for c in ARCHITECTURES if c in table.columns), None) for table in (frame, other))
        other = other.rename(columns={theirs: own}) if own and theirs else other  # `arch` here, `architecture` there
    shared = [column for column in frame.columns if column in other.columns]
    key = on or next((column for column in KEYS if column in shared), None)
    if key is None or key not in shared:
        named = f"--on {on}" if on else "--on COLUMN"
        raise InvalidTable(
            f"{location} and {place} have no column {on or ' or '.join(KEYS)} in common; name one that says which rows "
            f"belong together ({named}); they share {', '.join(shared) or 'none'}"
        )
    if other[key].duplicated().any():
        repeated = other[key][other[key].duplicated()].tolist()[0]
        raise InvalidTable(f"{place} has {key} {repeated!r} more than once; {how_to_tell_apart(other, key)}")
    if not frame[key].isin(other[key]).any():
        raise InvalidTable(f"no {key} of {place} is one of {location}; name another column (--on)")
    partners = frame[[key]].merge(other, on=key, how="left").set_index(frame.index)
    for column in (column for column in other.columns if column != key):
        name, values = column, partners[column]
        if column in shared:
            both = frame[column].notna() & values.notna()
            if (frame[column][both] == values[both]).all():
                continue
            if column in ARCHITECTURES:
                row = frame.index[both & (frame[column] != values)][0]
                raise InvalidTable(
                    f"{location} and {place} do not belong together: where {key} is {frame[key][row]}, {column} is "
                    f"{frame[column][row]!r} in one and {values[row]!r} in the other; name another column (--on)"
                )
            name = f"{column}_{_stem(place)}"
        frame = frame.assign(**{name: values})
    return frame
