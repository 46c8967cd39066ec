"""A pool with several metrics, and the base of the searchers over one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np
import pandas as pd

from archray.errors import InvalidInput, InvalidPool
from archray.searchers.arguments import BoolArray, FloatArray, IntArray, SearcherOptions
from archray.searchers.base import ArchraySearcher
from archray.searchers.pool_file import PoolFile, check_names
from archray.trainables.spaces import Space
from archray.trainables.spaces.encodings import word_rows

# Pool

SMALLER = "-"  # before a metric's name: the smaller the better


@dataclass(frozen=True)
class MetricPool:
    """The rows of a table.

    Args:
        architectures: n strings.
        metrics: m names, with `-` before those of which less is better.
        columns: (n, m) the metrics, the larger the better; not finite where one is missing.
        codes: (n, d) the architectures as categorical codes, a word of them the same code in every place.
    """

    architectures: Sequence[str]
    metrics: tuple[str, ...]
    columns: FloatArray
    codes: IntArray


def load_metric_pool(
    file: PoolFile, metrics: Sequence[str] | None, encoding: str | Space, results: Sequence[str] = ()
) -> MetricPool:
    """Reads `file`.

    Args:
        metrics: columns; `-kappa`: the smaller the better. None: every column of numbers that is none of `results`.
        encoding: of the architectures, see `word_rows`; or the space that they are of: its decisions.
        results: columns that a search must not see.

    Raises: InvalidPool for a table that cannot serve: a column that is absent, holds no numbers or one number only,
        architectures that are named twice. InvalidInput for an encoding that does not fit, InvalidArchitecture for
        strings that are not of the space.
    """
    table = file.read()
    if "architecture" not in table:
        raise InvalidPool(
            f"the pool {file.location} has no column architecture; it has {', '.join(map(str, table.columns))}"
        )
    check_names(table["architecture"], f"the pool {file.location}")
    if metrics is None:
        numeric = table.select_dtypes("number").columns
        metrics = [str(name) for name in numeric if name not in results]
    leaked = [name for name in metrics if name.removeprefix(SMALLER) in results]
    if leaked:
        raise InvalidPool(f"{', '.join(leaked)}: named both as a metric and as a result; a search must not see results")
    columns = [_column(table, name, file.location) for name in metrics]
    codes = _codes(table, encoding)
    if not columns and not codes.shape[1]:
        raise InvalidPool(
            f"the pool {file.location} has no metric, and the encoding is {encoding}: there is nothing to learn from; "
            "name a metric or an encoding, or use RandomSearch"
        )
    stacked = np.stack(columns, axis=1) if columns else np.zeros((len(table), 0))
    return MetricPool(table["architecture"].tolist(), tuple(metrics), stacked, codes)


def _codes(table: pd.DataFrame, encoding: str | Space) -> IntArray:
    """(n, d) the architectures as categorical codes, equal where their words are, in one place or in two."""
    names = table["architecture"].tolist()
    if isinstance(encoding, str):
        words = word_rows(names, encoding, table)
    else:
        words = np.array([encoding.decode(name)[: len(encoding.decisions)] for name in names], dtype=np.str_)
    return np.unique(words, return_inverse=True)[1].reshape(words.shape).astype(np.int64)


def _column(table: pd.DataFrame, metric: str, location: str) -> FloatArray:
    """(n,) a metric, the larger the better."""
    name, sign = (metric, 1.0) if metric in table else (metric.removeprefix(SMALLER), -1.0)
    if name not in table:
        raise InvalidPool(f"the pool {location} has no column {name}; it has {', '.join(map(str, table.columns))}")
    try:
        values = sign * table[name].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InvalidPool(f"the pool {location}: expected numbers in the column {name} ({error})") from error
    finite = values[np.isfinite(values)]
    if len(np.unique(finite)) < 2:
        content = "no finite number" if not len(finite) else f"the same number, {finite[0]:g}, in every row"
        raise InvalidPool(
            f"the pool {location}: the column {name} has {content}, and says nothing about the architectures; name the "
            "metrics without it"
        )
    return values


# Base class


class PoolSearch(ArchraySearcher):
    """Base of searchers that suggest `{"architecture", "seed"}`, each row of a pool at most once.

    Args: see `RankSurrogateSearch`.
    """

    opened: ClassVar[tuple[str, ...]] = ("pool", "_places")

    def __init__(
        self,
        pool: str | Path,
        metrics: Sequence[str] | None,
        encoding: str | Space,
        budget: int,
        results: Sequence[str],
        **options: Unpack[SearcherOptions],
    ) -> None:
        for name, names in (("metrics", metrics), ("results", results)):
            if isinstance(names, str) or not all(isinstance(column, str) for column in names or ()):
                raise InvalidInput(f"{name}: expected a list of columns, got {names!r}")
        self._metrics = None if metrics is None else tuple(metrics)
        self._results = tuple(results)
        self.encoding = encoding
        self._file = PoolFile.of(pool)
        super().__init__(budget=budget, **options)
        self.prepare()

    @cached_property
    def pool(self) -> MetricPool:
        """The pool, read again after unpickling. Raises: InvalidPool if its file has changed."""
        return load_metric_pool(self._file, self._metrics, self.encoding, self._results)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return self.pool.metrics

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.pool.architectures)}

    def prepare(self) -> None:
        _ = self.pool

    # What a subclass uses ------------------------------------------------------------------------------------------

    def observations(self, number: int) -> tuple[list[int], list[float | None]]:
        """The rows suggested or handed over before suggestion `number`, in order, and the losses that it may use.

        None: not in yet. A trial that failed counts as the worst of those known; it is left pending while none is.
        """
        losses = self.usable_losses(number)
        finite = [loss for loss in losses.values() if loss is not None]
        worst = max(finite) if finite else None
        rows, values = [], []
        for record in self.records():
            row = self._places.get(record.config["architecture"])
            if row is not None and row not in rows:
                rows.append(row)
                loss = losses.get(record.number)
                values.append(worst if record.number in losses and loss is None else loss)
        return rows, values

    def suggested_rows(self) -> BoolArray:
        """(n,) True for the rows suggested or handed over."""
        rows = np.zeros(len(self.pool.architectures), dtype=bool)
        names = (record.config["architecture"] for record in self.records())
        rows[[self._places[name] for name in names if name in self._places]] = True
        return rows

    # Points of the user's, and state -------------------------------------------------------------------------------

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        name = point.get("architecture")
        if name not in self._places:
            raise InvalidInput(f"expected a point with architecture, one of the pool's, got {point!r}")
        return {"architecture": name}

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        return None if self.suggested_rows()[self._places[point["architecture"]]] else dict(point)

    def search_identity(self) -> dict[str, Any]:
        encoding = self.encoding if isinstance(self.encoding, str) else self.encoding.name
        return {"pool": self._file.checksum, "metrics": self.metrics, "encoding": encoding}
