"""A pool of scored architectures, and the training-free objective over it: kappa/M + mu F(M^2 - nu).

The table is held by path and checksum: it is never part of a searcher's saved state. Shu 2022, ch. 7, Eq. 7.7.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.fs
import pyarrow.parquet

from archray.errors import InvalidPool
from archray.plurals import count
from archray.searchers.arguments import BoolArray, FloatArray

Penalty = Literal["square", "absolute"]


@dataclass(frozen=True)
class Pool:
    """The rows of a table that have an objective, in the table's order.

    Args:
        architectures: n strings, one per canonical form.
        metric: (n,) |M| divided by `factor`: a signed metric such as grasp stands for its magnitude in Eq. 7.7.
        kappa: (n,) condition numbers.
        factor: the largest |M| among the rows kept.
        excluded: how many rows were left out: M = 0, or M or kappa not finite.
    """

    architectures: Sequence[str]
    metric: FloatArray
    kappa: FloatArray
    factor: float
    excluded: int

    def __len__(self) -> int:
        return len(self.architectures)


@dataclass(frozen=True)
class PoolFile:
    """Where a table lies and what it held when it was first read.

    Args:
        location: an absolute path or a pyarrow URI; Parquet, or CSV if it ends in `.csv`.
        checksum: SHA-256 of the file's bytes, hexadecimal.
    """

    location: str
    checksum: str

    @classmethod
    def of(cls, location: str | Path) -> PoolFile:
        """Raises: InvalidPool if there is no such file."""
        text = str(location)
        if "://" not in text:
            text = str(Path(text).expanduser().absolute())
        return cls(text, hashlib.sha256(_read_bytes(text)).hexdigest())

    def load(self, proxy: str) -> Pool:
        """The pool with `proxy` as M.

        Raises: InvalidPool if the file is gone or has changed, lacks a column, names an architecture twice, or has
        no usable row.
        """
        content = _read_bytes(self.location)
        if hashlib.sha256(content).hexdigest() != self.checksum:
            raise InvalidPool(
                f"the pool {self.location} has changed since the search began; put the old file back, or begin a new "
                "search"
            )
        return build_pool(_read_columns(content, self.location, ["architecture", proxy, "kappa"]), proxy, self.location)


def build_pool(table: pd.DataFrame, proxy: str, source: str = "the pool") -> Pool:
    """The pool in `table`, columns `architecture`, `proxy`, `kappa`. Raises: InvalidPool."""
    try:
        metric = table[proxy].to_numpy(dtype=np.float64, na_value=np.nan)
        kappa = table["kappa"].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InvalidPool(f"{source}: expected numbers in the columns {proxy} and kappa ({error})") from error
    kept = np.isfinite(metric) & (metric != 0) & np.isfinite(kappa)
    if not kept.any():
        raise InvalidPool(
            f"{source} has {count(len(table), 'row')} and none with a finite {proxy} other than 0 and a finite kappa; "
            "score it again, and look at its column `failure` for the reasons"
        )
    names = table.loc[kept, "architecture"]
    if not names.map(lambda name: isinstance(name, str)).all():
        raise InvalidPool(f"{source}: expected strings in the column architecture")
    if names.duplicated().any():
        raise InvalidPool(
            f"{source} names {names[names.duplicated()].iloc[0]!r} more than once; give one row per canonical form"
        )
    magnitude = np.abs(metric[kept])
    factor = float(magnitude.max())
    return Pool(names.tolist(), magnitude / factor, kappa[kept], factor, int(len(table) - kept.sum()))


def _read_bytes(location: str) -> bytes:
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(location)
        with filesystem.open_input_stream(path) as stream:
            return stream.read()
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidPool(f"the pool {location} cannot be read ({error}); give the path of a Parquet table") from error


def _read_columns(content: bytes, location: str, columns: list[str]) -> pd.DataFrame:
    try:
        if location.endswith(".csv"):
            table = pyarrow.csv.read_csv(io.BytesIO(content))
        else:
            table = pyarrow.parquet.read_table(pa.BufferReader(content))
    except pa.ArrowInvalid as error:
        raise InvalidPool(f"the pool {location} is no Parquet table ({error})") from error
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise InvalidPool(
            f"the pool {location} has no column {', '.join(missing)}; it has {', '.join(table.column_names)}"
        )
    return table.select(columns).to_pandas()


# The objective


def objective(
    kappa: FloatArray, metric: FloatArray, mu: float, nu: float, penalty: Penalty = "square", epsilon: float = 0.0
) -> FloatArray:
    """kappa/(M + epsilon) + mu F(M^2 - nu) of every row; lower is better. Shapes (n,), (n,) -> (n,).

    Args:
        kappa: condition numbers of the NTK.
        metric: M, as a pool has it.
        mu, nu: weight and target of the penalty; nu in the units of M^2.
        penalty: `square`, F(x) = x^{2t} with t = 1 as in Eq. 7.7, or `absolute`, F(x) = |x| as in the authors' program.
        epsilon: added to M in the quotient: 1e-6 in the authors' program.
    """
    return kappa / (metric + epsilon) + mu * distance(metric, nu, penalty)


def distance(metric: FloatArray, nu: float, penalty: Penalty = "square") -> FloatArray:
    """F(M^2 - nu) of every row. Shape (n,) -> (n,)."""
    difference = metric**2 - nu
    return difference**2 if penalty == "square" else np.abs(difference)


def lowest(objective_values: FloatArray, excluded: BoolArray | None = None) -> int | None:
    """The row with the lowest objective among those not `excluded`; the first of equals; None if none is left."""
    left = np.arange(len(objective_values)) if excluded is None else np.flatnonzero(~excluded)
    return int(left[np.argmin(objective_values[left])]) if len(left) else None
