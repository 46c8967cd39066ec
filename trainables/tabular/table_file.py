"""Tables on disk, CSV or Parquet: their rows, one per architecture's name, and the roles of their columns."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from archray.errors import InvalidTable, expect
from archray.files import check_columns, local_path, read_location, whole_file
from archray.plurals import count
from archray.trainables.tabular.roles import ROW, Roles, guess_roles

if TYPE_CHECKING:
    import pandas as pd

KEY = b"archray"  # of a Parquet file's metadata, under which the roles stand
ARCHITECTURE, CANONICAL, INDEX = "architecture", "canonical", "index"
FEW = 50  # values of a column that may tell tables in one file apart


@dataclass(frozen=True)
class TableFile:
    """The rows of a table, the lowest `index` first where it has such a column, and what its columns are for.

    Args:
        location: an absolute path or a pyarrow URI.
        checksum: SHA-256 of the file, hexadecimal; of the text that a compressed CSV holds.
        where: the values by which these rows were selected.
        rows: with the column `architecture`, strings.
    """

    location: str
    checksum: str
    where: Mapping[str, str]
    rows: pd.DataFrame
    roles: Roles


def read_table_file(location: str | Path, where: Mapping[str, str] | None = None, **roles: Any) -> TableFile:
    """The rows of a CSV (also compressed) or Parquet file, under `where` only those with these values.

    roles: as `Roles` has them; those that are not named are what an import wrote, or else known by names (see
        `guess_roles`). Raises: InvalidTable if the file cannot be read, lacks a column, or has no row.
    """
    location = absolute(location)
    frame, written, checksum = read_frame(location)
    return table_file(select(frame, where or {}, location), location, checksum, where, written, **roles)


def table_file(
    frame: pd.DataFrame,
    location: str,
    checksum: str,
    where: Mapping[str, str] | None = None,
    written: Mapping[str, Any] | None = None,
    **roles: Any,
) -> TableFile:
    """The table whose rows are in `frame`. written: roles that stand in the file; those that are named go first."""
    named = {name: value for name, value in roles.items() if value is not None}
    try:
        known = guess_roles(list(map(str, frame.columns)), _useless(frame), **{**(written or {}), **named})
    except InvalidTable as error:
        raise InvalidTable(f"{location}: {error}") from error
    if INDEX in frame.columns and frame[INDEX].dtype.kind == "i":
        frame = frame.sort_values(INDEX, kind="stable")
    frame = frame.reset_index(drop=True)
    for value, columns in known.seeds.items():
        if value not in frame.columns:
            frame[value] = np.nanmean([numbers(frame, column, location) for column in columns], axis=0)
    frame[ARCHITECTURE] = _names(frame, known, location)
    return TableFile(location, checksum, dict(where or {}), frame, known)


def write_table_file(path: str | Path, rows: pd.DataFrame, roles: Roles) -> None:
    """Writes a Parquet table with its roles. Its architectures stand in the column `architecture`."""
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.Table.from_pandas(rows, preserve_index=False)
    written = json.dumps({**roles.to_json(), "architecture": [ARCHITECTURE]}).encode()
    with whole_file(path) as stream:
        pyarrow.parquet.write_table(
            table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: written}), stream
        )


def read_frame(location: str) -> tuple[pd.DataFrame, dict[str, Any], str]:
    """The rows of a file, the roles that stand in it, and its checksum. Raises: InvalidTable."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        content = read_location(location)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidTable(f"the table {location} cannot be read ({error}); give a CSV or Parquet file") from error
    try:
        if content[:4] == b"PAR1":
            table = pyarrow.parquet.read_table(pa.BufferReader(content))
        else:
            table = pyarrow.csv.read_csv(io.BytesIO(content))
    except pa.ArrowInvalid as error:
        reason = "it is not text in UTF-8" if "\ufffd" in content.decode(errors="replace") else error
        raise InvalidTable(f"the table {location} is neither CSV nor Parquet ({reason}); give another file") from error
    check_columns(table.column_names, location)
    roles = json.loads((table.schema.metadata or {}).get(KEY, b"{}"))
    return table.to_pandas(), roles, hashlib.sha256(content).hexdigest()


def select(frame: pd.DataFrame, where: Mapping[str, str], location: str) -> pd.DataFrame:
    """The rows in which each column of `where` has its value. Raises: InvalidTable if there is none."""
    expect("where", where, Mapping)
    for column, value in where.items():
        if column not in frame.columns:
            raise InvalidTable(f"{location} has no column {column!r} to select by; it has {', '.join(frame.columns)}")
        texts = frame[column].map(str)  # unlike `astype`, of what is missing too
        chosen = frame[texts == value]
        if chosen.empty:
            held = sorted(texts.unique())
            told = ", ".join(held[:FEW]) + (", ..." if len(held) > FEW else "")
            raise InvalidTable(f"{location} has no row where {column} is {value!r}; it is one of {told}")
        frame = chosen
    if frame.empty:
        raise InvalidTable(f"the table {location} has no row")
    return frame


def absolute(location: str | Path) -> str:
    """A path as every process finds it; a URI as it is."""
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    return text if isinstance(text, str) and "://" in text else str(local_path(text))


def numbers(frame: pd.DataFrame, column: str, location: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(n,) a column's values; NaN where one is missing or not finite. Raises: InvalidTable if it holds text."""
    import pandas as pd

    try:
        values = pd.to_numeric(frame[column]).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InvalidTable(f"{location}: expected numbers in the column {column} ({error})") from error
    return np.where(np.isfinite(values), values, np.nan)


def how_to_tell_apart(rows: pd.DataFrame, key: str) -> str:
    """What the user can do about rows of one key that disagree: a column whose values say which rows are whose."""
    for column in rows.columns:
        values = rows[column].map(str)  # unlike `astype`, of what is missing too
        several = column != key and 1 < values.nunique() < min(FEW, len(rows))
        if several and not rows.assign(**{column: values}).duplicated([key, column]).any():
            first, *others = sorted(values.unique())
            return f"choose one with --where {column}={first} (or {', '.join(others)})"
    return f"give a table with one row for each {key}, or name columns that tell them apart"


def _useless(frame: pd.DataFrame) -> list[str]:
    """Columns that are empty, or the same in every row."""
    return [str(name) for name in frame.columns if frame[name].nunique(dropna=True) < 2]


def _names(frame: pd.DataFrame, roles: Roles, location: str) -> pd.Series[str]:
    """The architecture of each row, as a string."""
    import pandas as pd

    if roles.architecture == (ROW,) and ROW not in frame.columns:
        digits = len(str(len(frame) - 1))
        return pd.Series([f"{ROW}-{number:0{digits}d}" for number in range(len(frame))], index=frame.index)
    if not roles.architecture:
        raise InvalidTable(
            f"{location} has no column {ARCHITECTURE} or arch; name what says which architecture a row is of "
            f"(--architecture COLUMN,... or --architecture {ROW}); it has {', '.join(frame.columns)}"
        )
    columns = [frame[column] for column in roles.architecture]
    empty = sum(int((column.isna() | (column.astype(str) == "")).sum()) for column in columns)
    if empty:
        raise InvalidTable(f"{location}: {count(empty, 'row')} without an architecture")
    names = columns[0].astype(str)
    for column in columns[1:]:
        names = names + "|" + column.astype(str)
    return names
