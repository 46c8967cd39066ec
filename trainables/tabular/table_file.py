"""Tables on disk, CSV or Parquet: their rows, one per architecture's name, and the roles of their columns.

A user names the roles, or they follow from well-known column names.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from archray.errors import InvalidInput, InvalidTable, expect
from archray.files import check_columns, local_path, read_location, whole_file
from archray.plurals import count
from archray.trainables.proxies import PROXIES

if TYPE_CHECKING:
    import pandas as pd

ROW = "row"  # as the architecture: the row's number, for a table whose columns do not identify an architecture

# Well-known names of columns; the first that exists in a table is used.
ARCHITECTURES = ("architecture", "arch")
OBJECTIVES = ("objective", "validation_accuracy", "val_accuracy", "valid_accuracy", "cifar10_valid_12")
RESULTS = ("result", "test_accuracy", "cifar10_test_200")
SECONDS = ("seconds", "training_seconds", "train_seconds", "training_time")
METRICS = ("jacob_cov", "nwot", "zico", "naswot_bayeswatch")  # of NAS-Bench-Suite-Zero, in addition to archray's
SIZES = ("params", "parameters", "flops", "macs", "multiply_adds")  # costs that measure the size of a network
COST = re.compile(rf"({'|'.join(SIZES)})(_.*)?|.*(latency|energy)(_.*)?")
EPOCH = re.compile(r".+@([0-9]+)")  # `accuracy@12`: after 12 epochs
SEED = re.compile(r"(.+)_seed[0-9]+")  # `accuracy_seed0`: one of the training runs whose mean is `accuracy`

KEY = b"archray"  # of the roles in a Parquet file's metadata
ARCHITECTURE, CANONICAL, INDEX = "architecture", "canonical", "index"
FEW = 50  # maximum number of values of a column that may separate tables in one file


@dataclass(frozen=True)
class Roles:
    """The columns of a table by their roles.

    Args:
        architecture: Columns that together name an architecture, joined by `|`; `row` uses the row's number.
        objective: Value after training, which a search receives.
        result: Value that judges a search (default: the objective).
        mode: Whether larger or smaller values are better, for objective, result and epochs. Values keep their sign and
            unit.
        metrics: Training-free metrics.
        costs: Sizes, multiply-adds, latencies.
        seconds: Duration of the training run.
        epochs: Values after some epochs, epoch -> column.
        seeds: Values of several training runs, column -> a column for each run. The value is their mean if the table
            has no such column.
        space: A registered space with these strings; `none`: no registered space (default: unknown).
        encoding: See `encode_rows` (default: the space's decisions, else `tokens` if they fit, else `none`).
    """

    architecture: tuple[str, ...] = ()
    objective: str | None = None
    result: str | None = None
    mode: Literal["max", "min"] = "max"
    metrics: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    seconds: str | None = None
    epochs: Mapping[int, str] = field(default_factory=dict)
    seeds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    space: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        for name in ("objective", "result", "seconds", "space", "encoding"):
            expect(name, getattr(self, name), str, type(None))
        columns = [*self.metrics, *self.costs, *self.values]
        if twice := sorted({column for column in columns if columns.count(column) > 1}):
            raise InvalidInput(
                f"expected one role per column, got {', '.join(twice)} as a metric or a cost and in another role. "
                "Name each column once"
            )
        if self.mode not in ("max", "min"):
            raise InvalidInput(f"mode: expected 'max' or 'min', got {self.mode!r}")

    @property
    def values(self) -> dict[str, str]:
        """Every column that must exist and be finite, with its role."""
        named = {self.objective: "objective", self.result: "result", self.seconds: "seconds"}
        named |= dict.fromkeys(self.epochs.values(), "epochs")
        return {column: role for column, role in named.items() if column is not None}

    @property
    def columns(self) -> dict[str, str]:
        """Every column that has a role, with this role."""
        named = {**dict.fromkeys(self.metrics, "metrics"), **dict.fromkeys(self.costs, "costs"), **self.values}
        return named | {column: "seeds" for columns in self.seeds.values() for column in columns}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Roles:
        """Creates roles from the output of `to_json`, or from a user, who may name one column instead of a list.

        Raises: InvalidInput for an unknown role.
        """
        unknown = sorted(values.keys() - cls.__dataclass_fields__.keys())
        if unknown:
            raise InvalidInput(
                f"a table has no role {unknown[0]!r}. Choose one of {', '.join(cls.__dataclass_fields__)}"
            )
        read = dict(values)
        for name in ("architecture", "metrics", "costs"):
            if name in read:
                read[name] = _listed(read[name])
        if "epochs" in read:
            read["epochs"] = {_epoch(epoch): column for epoch, column in dict(read["epochs"]).items()}
        if "seeds" in read:
            read["seeds"] = {value: _listed(columns) for value, columns in dict(read["seeds"]).items()}
        return cls(**read)


def guess_roles(columns: Sequence[str], useless: Iterable[str] = (), **named: Any) -> Roles:
    """Returns the roles of a table's columns: those in `named`, the others by well-known names.

    Well-known names of architectures are `architecture`, `arch`; of the objective `objective`, `validation_accuracy`,
    `val_accuracy`, `valid_accuracy`, `cifar10_valid_12`; of the result `result`, `test_accuracy`, `cifar10_test_200`;
    of seconds `seconds`, `training_seconds`, `train_seconds`, `training_time`; of metrics their names in archray and
    NAS-Bench-Suite-Zero; of costs `params`, `flops`, `macs`, ... and names with `latency` or `energy`; of the value
    after 12 epochs `NAME@12`; of the training runs whose mean is `NAME`, `NAME_seed0`, ....

    Args:
        useless: Columns without information, which become a metric or a cost only if they are in `named`.

    Raises: InvalidTable if a named column does not exist.
    """
    roles = Roles.of({name: value for name, value in named.items() if value is not None})
    needed = {**roles.columns, **dict.fromkeys(roles.architecture, "architecture")}
    for column, role in needed.items():
        if column not in (*columns, *roles.seeds) and (role, column) != ("architecture", ROW):
            raise InvalidTable(f"the table has no column {column!r} for {role}; it has {', '.join(columns)}")
    taken = set(roles.columns)
    usable = [column for column in columns if column not in taken | set(useless)]
    by_epoch = {int(match[1]): match[0] for column in columns if (match := EPOCH.fullmatch(column))}
    guessed: dict[str, Any] = {
        "architecture": tuple(_first(ARCHITECTURES, columns)),
        "objective": next(iter(_first(OBJECTIVES, columns)), by_epoch[max(by_epoch)] if by_epoch else None),
        "result": next(iter(_first(RESULTS, columns)), None),
        "seconds": next(iter(_first(SECONDS, columns)), None),
        "metrics": tuple(c for c in usable if c in METRICS or (c in PROXIES and not COST.fullmatch(c))),
        "costs": tuple(c for c in usable if COST.fullmatch(c)),
        "epochs": by_epoch,
        "seeds": {},
    }
    roles = replace(roles, **{name: value for name, value in guessed.items() if named.get(name) is None})
    if named.get("seeds") is None:
        runs_by_value: dict[str, list[str]] = {}
        for column in columns:
            if (match := SEED.fullmatch(column)) and match[1] in roles.values:
                runs_by_value.setdefault(match[1], []).append(column)
        roles = replace(roles, seeds={value: tuple(runs) for value, runs in runs_by_value.items()})
    return roles


def is_size(cost: str) -> bool:
    """Whether a cost measures the size of a network: its name contains one of SIZES, or the singular."""
    return any(size.removesuffix("s") in cost.lower() for size in SIZES)


def _first(names: Sequence[str], columns: Sequence[str]) -> list[str]:
    return [name for name in names if name in columns][:1]


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else tuple(value)


def _epoch(value: Any) -> int:
    if not str(value).isdecimal() or int(value) < 1:
        raise InvalidInput(f"epochs: expected a whole number of 1 or more, got {value!r}")
    return int(value)


@dataclass(frozen=True)
class TableFile:
    """The rows of a table, sorted by `index` if there is such a column, and the roles of its columns.

    Args:
        location: An absolute path or a pyarrow URI.
        checksum: SHA-256 of the file, hexadecimal; of the text in a compressed CSV.
        where: Values by which these rows were selected.
        rows: With the column `architecture`, strings.
    """

    location: str
    checksum: str
    where: Mapping[str, str]
    rows: pd.DataFrame
    roles: Roles


def read_table_file(location: str | Path, where: Mapping[str, str] | None = None, **roles: Any) -> TableFile:
    """Reads the rows of a CSV (also compressed) or Parquet file; with `where` only those with these values.

    Args:
        roles: As in `Roles`; the others come from an import, or from known names (see `guess_roles`).

    Raises: InvalidTable if the file cannot be read, lacks a column, or has no rows.
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
    """Creates the table with the rows in `frame`. written: roles in the file, which those in `roles` override."""
    named = {name: value for name, value in roles.items() if value is not None}
    useless = [str(name) for name in frame.columns if frame[name].nunique(dropna=True) < 2]  # empty or constant
    try:
        complete = guess_roles(list(map(str, frame.columns)), useless, **{**(written or {}), **named})
    except InvalidTable as error:
        raise InvalidTable(f"{location}: {error}") from error
    if INDEX in frame.columns and frame[INDEX].dtype.kind == "i":
        frame = frame.sort_values(INDEX, kind="stable")
    frame = frame.reset_index(drop=True)
    for value, columns in complete.seeds.items():
        if value not in frame.columns:
            frame[value] = np.nanmean([numbers(frame, column, location) for column in columns], axis=0)
    frame[ARCHITECTURE] = _names(frame, complete, location)
    return TableFile(location, checksum, dict(where or {}), frame, complete)


def write_table_file(path: str | Path, rows: pd.DataFrame, roles: Roles) -> None:
    """Writes a Parquet table with its roles. Its architectures are in the column `architecture`."""
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.Table.from_pandas(rows, preserve_index=False)
    written = json.dumps({**roles.to_json(), "architecture": [ARCHITECTURE]}).encode()
    with whole_file(path) as stream:
        pyarrow.parquet.write_table(
            table.replace_schema_metadata({**(table.schema.metadata or {}), KEY: written}), stream
        )


def read_frame(location: str) -> tuple[pd.DataFrame, dict[str, Any], str]:
    """Reads the rows of a file, the roles in it, and its checksum. Raises: InvalidTable."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    try:
        content = read_location(location)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidTable(f"archray cannot read the table {location} ({error}). Give a CSV or Parquet file") from error
    try:
        if content[:4] == b"PAR1":
            table = pyarrow.parquet.read_table(pa.BufferReader(content))
        else:
            table = pyarrow.csv.read_csv(io.BytesIO(content))
    except pa.ArrowInvalid as error:
        reason = "it is not text in UTF-8" if "\ufffd" in content.decode(errors="replace") else error
        raise InvalidTable(
            f"expected a table in CSV or Parquet, got {location}, which is neither ({reason}). Give another file"
        ) from error
    check_columns(table.column_names, location)
    roles = json.loads((table.schema.metadata or {}).get(KEY, b"{}"))
    return table.to_pandas(), roles, hashlib.sha256(content).hexdigest()


def select(frame: pd.DataFrame, where: Mapping[str, str], location: str) -> pd.DataFrame:
    """Selects the rows in which each column of `where` has its value. Raises: InvalidTable without such a row."""
    expect("where", where, Mapping)
    for column, value in where.items():
        if column not in frame.columns:
            raise InvalidTable(f"{location} has no column {column!r} to select by; it has {', '.join(frame.columns)}")
        texts = frame[column].map(str)  # unlike `astype`, also for missing values
        chosen = frame[texts == value]
        if chosen.empty:
            held = sorted(texts.unique())
            choices = ", ".join(held[:FEW]) + (", ..." if len(held) > FEW else "")
            raise InvalidTable(f"{location} has no row where {column} is {value!r}; it is one of {choices}")
        frame = chosen
    if frame.empty:
        raise InvalidTable(f"expected rows in the table {location}, got none. Give another file")
    return frame


def absolute(location: str | Path) -> str:
    """Returns an absolute path, valid in every process; a URI unchanged."""
    text = os.fspath(location) if isinstance(location, os.PathLike) else location
    return text if isinstance(text, str) and "://" in text else str(local_path(text))


def numbers(frame: pd.DataFrame, column: str, location: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Returns (n,) values of a column; NaN for missing or infinite ones. Raises: InvalidTable for text."""
    import pandas as pd

    try:
        values = pd.to_numeric(frame[column]).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InvalidTable(f"{location}: expected numbers in the column {column}, got others ({error})") from error
    return np.where(np.isfinite(values), values, np.nan)


def advice_for_duplicates(rows: pd.DataFrame, key: str) -> str:
    """Returns advice for rows of one key that differ: a column whose values separate them."""
    for column in rows.columns:
        values = rows[column].map(str)
        several = column != key and 1 < values.nunique() < min(FEW, len(rows))
        if several and not rows.assign(**{column: values}).duplicated([key, column]).any():
            first, *others = sorted(values.unique())
            return f"Choose one with --where {column}={first} (or {', '.join(others)})"
    return f"Give a table with one row for each {key}, or name columns that distinguish them"


def _names(frame: pd.DataFrame, roles: Roles, location: str) -> pd.Series[str]:
    """Returns the architecture of each row, as a string."""
    import pandas as pd

    if roles.architecture == (ROW,) and ROW not in frame.columns:
        digits = len(str(len(frame) - 1))
        return pd.Series([f"{ROW}-{number:0{digits}d}" for number in range(len(frame))], index=frame.index)
    if not roles.architecture:
        raise InvalidTable(
            f"expected a column {ARCHITECTURE} or arch in {location}, got none. Name the columns that identify an "
            f"architecture (--architecture COLUMN,... or --architecture {ROW}); columns: {', '.join(frame.columns)}"
        )
    columns = [frame[column] for column in roles.architecture]
    empty = sum(int((column.isna() | (column.astype(str) == "")).sum()) for column in columns)
    if empty:
        raise InvalidTable(
            f"{location}: expected an architecture in every row, got none in {count(empty, 'row')}; complete the table"
        )
    names = columns[0].astype(str)
    for column in columns[1:]:
        names = names + "|" + column.astype(str)
    return names
