"""What searches over a pool with several metrics share: the pool by path and checksum, each architecture once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from archray.errors import InvalidInput
from archray.searchers.arguments import BoolArray, SearcherOptions
from archray.searchers.base import ArchraySearcher
from archray.searchers.pool_file import PoolFile
from archray.searchers.rank_surrogate.metric_pool import MetricPool, load_metric_pool
from archray.trainables.spaces import Space


class PoolSearch(ArchraySearcher):
    """Base of searchers that suggest `{"architecture", "seed"}`, each row of a pool at most once.

    Args: see `RankSurrogateSearch`.
    """

    opened: ClassVar[tuple[str, ...]] = ("pool", "_places")  # what a pickle leaves out: it is read again

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

    def observed(self, number: int) -> tuple[list[int], list[float | None]]:
        """The rows suggested or handed over before suggestion `number`, in order, and the losses that it may use.

        None: not in yet. A trial that failed counts as the worst of those known; it is left pending while none is.
        """
        losses = self.known_losses(number)
        known = [loss for loss in losses.values() if loss is not None]
        worst = max(known) if known else None
        rows, values = [], []
        for record in self.records():
            row = self._places.get(record.config["architecture"])
            if row is not None and row not in rows:
                rows.append(row)
                loss = losses.get(record.number)
                values.append(worst if record.number in losses and loss is None else loss)
        return rows, values

    def taken(self) -> BoolArray:
        """(n,) True for the rows suggested or handed over."""
        taken = np.zeros(len(self.pool.architectures), dtype=bool)
        names = (record.config["architecture"] for record in self.records())
        taken[[self._places[name] for name in names if name in self._places]] = True
        return taken

    # Points of the user's, and state -------------------------------------------------------------------------------

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        name = point.get("architecture")
        if name not in self._places:
            raise InvalidInput(f"expected a point with architecture, one of the pool's, got {point!r}")
        return {"architecture": name}

    def propose_point(self, number: int, point: dict[str, Any]) -> dict[str, Any] | None:
        return None if self.taken()[self._places[point["architecture"]]] else dict(point)

    def own_identity(self) -> dict[str, Any]:
        encoding = self.encoding if isinstance(self.encoding, str) else self.encoding.name
        return {"pool": self._file.checksum, "metrics": self.metrics, "encoding": encoding}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in self.opened}
