"""Search a pool in the order of one column: by one training-free metric, or by size."""

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
    """Suggests the architectures of a pool in the order of one column, the best value first.

    Suggests: `architecture`, `seed`.
    Needs: the metric.
    Takes: a table with the columns `architecture` and a metric or cost.

    Suggestion k depends only on the pool and the seed, so it never waits for results. The seed draws the order of rows
    with equal values. Rows without a finite value are left out. With a column of parameters or multiply-adds, the
    searcher is the baseline "largest first" or "smallest first".

    Args:
        pool: path or URI of a table with the columns `architecture` and `by`, one row per canonical form.
        by: the column: a training-free metric, or a cost.
        budget: the number of training runs; None: the whole pool.
        order: the values that come first, `largest` or `smallest`.
        mu, nu: parameters of `ExteriorPenalty`. With mu, the largest R = M - mu max(0, M - nu) comes first, and of
            equal R the smallest M. Without nu, the column's mean is used.
        points_to_evaluate: `{"architecture"}` to suggest first; they count in the budget.
        options: `seed`, `metric`, `mode` and others, see `ArchraySearcher`.

    Raises: InvalidPool for an unusable table, InvalidInput for any other invalid argument.

    Example:
        ```python
        search = MetricFirst("pool.csv", "snip", budget=20, metric="accuracy", mode="max")
        tune.Tuner(train, tune_config=tune.TuneConfig(search_alg=search, num_samples=-1)).fit()
        print(search.best()["architecture"])
        ```
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
        """The architectures in order; read again after unpickling. Raises: InvalidPool if the file has changed."""
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
    """Returns the best `number` architectures of a pool by the column `by`, as `points_to_evaluate` of a searcher.

    As the first population of `RegularizedEvolution` they are the warm-up of Abdelfattah et al. 2021 (Zero-Cost Proxies
    for Lightweight NAS), section 4.

    Args:
        pool, by, order, seed, mu, nu: as for `MetricFirst`.
        number: the number of architectures.

    Raises: InvalidPool for an unusable table, or if fewer rows have a value; InvalidInput for any other invalid
    argument.

    Example:
        ```python
        start = best_of_pool("pool.csv", "synflow", 10)
        search = RegularizedEvolution("nasbench201", budget=50, population=10, points_to_evaluate=start)
        ```
    """
    check_whole_number("number", number)
    _check_order(order)
    ranking = _ranking(PoolFile.of(pool), by, order, penalty_of(by, order, mu, nu), seed)
    if len(ranking) < number:
        raise InvalidPool(
            f"Expected {count(number, 'row')} with a finite {by} in {pool}, got {len(ranking)}. Request fewer."
        )
    return [{"architecture": name} for name in ranking[:number]]


def _ranking(file: PoolFile, by: str, order: Order, penalty: ExteriorPenalty | None, seed: int) -> list[str]:
    """Returns the architectures with a value, best first; the seed draws the order of equal ones."""
    table = file.read(["architecture", by])
    values = read_numbers(table, by, file.location)
    rows = np.flatnonzero(np.isfinite(values))
    if not len(rows):
        raise InvalidPool(
            f"Expected a finite {by} in {file.location}, got none in {count(len(table), 'row')}. Choose another column."
        )
    if len(rows) > 1 and np.ptp(values[rows]) == 0:
        raise InvalidPool(
            f"Expected different values of {by} in {file.location}, got {values[rows[0]]:g} in every row. "
            "Choose another column."
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
