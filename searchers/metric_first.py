"""A pool in the order of one of its columns: a search by one training-free metric, or by size."""

from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, Unpack, get_args

import numpy as np

from archray.errors import InvalidInput, InvalidPool
from archray.plurals import count
from archray.searchers.arguments import SearcherOptions, check_whole_number
from archray.searchers.base import Proposal
from archray.searchers.config_space import architecture_of
from archray.searchers.exterior_penalty import ExteriorPenalty, penalty_of
from archray.searchers.pool_file import PoolFile, check_names, read_numbers
from archray.searchers.space_search import PoolSearch
from archray.seeds import named_rng

Order = Literal["largest", "smallest"]


class MetricFirst(PoolSearch):
    """The pool's best by one column first.

    Suggests: `architecture`, `seed`.
    Needs: the metric.
    Takes: a table with the columns `architecture` and a metric or cost.

    Suggestion k depends on the pool and on the seed only, so it never waits for results. Rows whose values are equal
    come in an order that the seed draws; rows without a finite value are left out. On a column of parameters or
    multiply-adds, this is largest first, or smallest first.

    Args:
        pool: path or URI of a table with the columns `architecture` and `by`, one row per canonical form.
        by: the column: a training-free metric, or a cost.
        budget: the number of training runs; None: the whole pool.
        order: which values come first, the `largest` or the `smallest`.
        mu, nu: of `ExteriorPenalty`: with mu, the largest R = M - mu max(0, M - nu) comes first, of equal R the
            smallest M; nu None is the column's mean.
        points_to_evaluate: `{"architecture"}`, suggested first; they count in budget.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other argument.
    """

    depends_on_results: ClassVar[bool] = False
    opened: ClassVar[tuple[str, ...]] = (*PoolSearch.opened, "ranking")
    identity_fields: ClassVar[tuple[str, ...]] = ("by", "order")

    def __init__(
        self,
        pool: str | Path,
        by: str,
        budget: int | None = 20,
        order: Order = "largest",
        mu: float | None = None,
        nu: float | None = None,
        **options: Unpack[SearcherOptions],
    ) -> None:
        _check_order(order)
        self.by = by
        self.order: Order = order
        self.penalty = penalty_of(by, order, mu, nu)
        super().__init__(pool, budget, **options)

    @cached_property
    def ranking(self) -> list[str]:
        """The architectures in order, read again after unpickling. Raises: InvalidPool if the file has changed."""
        return _ranking(self._file, self.by, self.order, self.penalty, self.seed)

    def propose(self, number: int) -> Proposal:
        names = self.suggested_numbers()
        return next(({"architecture": name} for name in self.ranking if name not in names), None)

    def check_point(self, point: dict[str, Any]) -> dict[str, Any]:
        return {"architecture": architecture_of(point)}

    def prepare(self) -> None:
        _ = self.ranking

    def search_identity(self) -> dict[str, Any]:
        constraint = {"mu": None, "nu": None} if self.penalty is None else asdict(self.penalty)
        return super().search_identity() | constraint


def best_of_pool(
    pool: str | Path,
    by: str,
    number: int,
    order: Order = "largest",
    seed: int = 0,
    *,
    mu: float | None = None,
    nu: float | None = None,
) -> list[dict[str, str]]:
    """The pool's best `number` by the column `by`, as `points_to_evaluate` of any searcher over architectures.

    As the population that `RegularizedEvolution` starts from, that is the warm-up of Abdelfattah et al. 2021 (Zero-Cost
    Proxies for Lightweight NAS), section 4: `points_to_evaluate=best_of_pool(pool, "synflow", population)`.

    Args:
        pool, by, order, seed, mu, nu: as for `MetricFirst`.

    Raises: InvalidPool for an unusable table, or one with fewer rows with a value; InvalidInput.
    """
    check_whole_number("number", number)
    _check_order(order)
    ranking = _ranking(PoolFile.of(pool), by, order, penalty_of(by, order, mu, nu), seed)
    if len(ranking) < number:
        raise InvalidPool(
            f"{pool} has {count(len(ranking), 'row')} with a finite {by}, fewer than {number}; ask for less"
        )
    return [{"architecture": name} for name in ranking[:number]]


def _ranking(file: PoolFile, by: str, order: Order, penalty: ExteriorPenalty | None, seed: int) -> list[str]:
    """The architectures with a value, best first; equal ones in an order that the seed draws."""
    table = file.read(["architecture", by])
    values = read_numbers(table, by, file.location)
    rows = np.flatnonzero(np.isfinite(values))
    if not len(rows):
        raise InvalidPool(f"{file.location} has {count(len(table), 'row')} and none with a finite {by}; choose another")
    if len(rows) > 1 and np.ptp(values[rows]) == 0:
        raise InvalidPool(
            f"{file.location}: {by} is {values[rows[0]]:g} in every row, which orders nothing; choose another"
        )
    names = table["architecture"].tolist()
    check_names(table["architecture"].iloc[rows], file.location)
    rows = named_rng(seed, "metric-first").permutation(rows)
    if penalty is not None:
        return [names[row] for row in rows[penalty.ranking(values[rows])]]
    signed = -values[rows] if order == "largest" else values[rows]
    return [names[row] for row in rows[np.argsort(signed, kind="stable")]]


def _check_order(order: Any) -> None:
    if order not in get_args(Order):
        raise InvalidInput(f"order: expected {' or '.join(get_args(Order))}, got {order!r}")
