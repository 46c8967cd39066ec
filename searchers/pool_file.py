"""A table of architectures on disk. Searchers save its path and checksum, never its content."""

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from archray.errors import InvalidPool
from archray.files import check_columns, local_path, read_location
from archray.searchers.arguments import FloatArray

CSV = (".csv", ".csv.gz")


@dataclass(frozen=True)
class PoolFile:
    """The location of a table and the checksum of its content when it was first read.

    Args:
        location: an absolute path or a pyarrow URI; Parquet, or CSV if it ends in `.csv` or `.csv.gz`.
        checksum: SHA-256 of the content (of a `.gz` file, of the decompressed content), hexadecimal.

    Example:
        ```python
        pool = PoolFile.of("pool.csv")
        table = pool.read(["architecture", "snip"])
        ```
    """

    location: str
    checksum: str

    @classmethod
    def of(cls, location: str | Path) -> "PoolFile":
        """Returns the `PoolFile` of a path or URI. Raises: InvalidPool if it cannot be read."""
        text = str(location)
        if "://" not in text:
            text = str(local_path(text))
        return cls(text, hashlib.sha256(_read_bytes(text)).hexdigest())

    def read(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Reads the columns (None: all) of every row.

        Raises: InvalidPool if the file is missing, has changed, or lacks a column.
        """
        content = _read_bytes(self.location)
        if hashlib.sha256(content).hexdigest() != self.checksum:
            raise InvalidPool(
                f"Expected the pool {self.location} as it was at the start of the search, but it has changed. Restore "
                "the old file, or start a new search."
            )
        try:
            if self.location.endswith(CSV):
                table = pyarrow.csv.read_csv(io.BytesIO(content))
            else:
                table = pyarrow.parquet.read_table(pa.BufferReader(content))
        except pa.ArrowInvalid as error:
            raise InvalidPool(f"Expected a Parquet or CSV table at {self.location}, got {error}") from error
        check_columns(table.column_names, self.location)
        missing = [name for name in columns or () if name not in table.column_names]
        if missing:
            raise InvalidPool(
                f"The pool {self.location} has no column {', '.join(missing)}; it has {', '.join(table.column_names)}"
            )
        return (table if columns is None else table.select(list(columns))).to_pandas()


def check_names(names: pd.Series, source: str) -> None:
    """Raises: InvalidPool if `names` are not strings, or not unique."""
    if not names.map(lambda name: isinstance(name, str)).all():
        raise InvalidPool(f"{source}: expected strings in the column architecture")
    if names.duplicated().any():
        raise InvalidPool(
            f"{source} contains {names[names.duplicated()].iloc[0]!r} more than once. Keep one row per canonical form."
        )


def read_numbers(table: pd.DataFrame, name: str, source: str) -> FloatArray:
    """Returns a column, (n,); NaN where a number is missing. Raises: InvalidPool if it contains other values."""
    try:
        return table[name].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InvalidPool(f"{source}: expected numbers in the column {name} ({error})") from error


def _read_bytes(location: str) -> bytes:
    try:
        return read_location(location)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidPool(
            f"The pool {location} cannot be read ({error}). Give the path of a Parquet or CSV table."
        ) from error
