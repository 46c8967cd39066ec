"""The configurations of the plain searches that look at a pool of scored architectures first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from archray.platform.methods.plain.plain_config import EvolutionOptions, PlainConfig, PlainOptions, check_population
from archray.platform.methods.pooled_config import PooledConfig
from archray.trainables.proxies import column_of

if TYPE_CHECKING:
    from archray.searchers.exterior_penalty import ExteriorPenalty
    from archray.trainables.tabular import Table


class PoolOptions(PlainOptions):
    """What a search by one training-free metric is told.

    Fields:
        proxy: the metric, a name (`archray list proxies`) or path.py:function; of a pool that was scored elsewhere any
            of its columns.
        order: which of its values come first. None: those that promise more by the metric's own direction, and the
            largest of a column that is none of archray's metrics.
        mu: weight of the penalty on what the metric exceeds nu by, 1 or more (Shu 2022, Eq. 6.8): above nu a larger
            value then promises no more (1) or less (2). None: no constraint. For metrics that are to be large.
        nu: the largest value that is not penalised, in the metric's unit. None: its mean over the pool (Eq. 6.14).
    """

    budget: int = Field(20, ge=1)
    proxy: str = "synflow"
    order: Literal["largest", "smallest"] | None = None
    mu: float | None = None
    nu: float | None = None


class ZeroCostConfig(PlainConfig, PooledConfig):
    """The configuration of a search that trains the best of a pool by one training-free metric."""

    method: Literal["zero-cost"] = "zero-cost"
    search: PoolOptions = PoolOptions()

    @property
    def needed(self) -> tuple[str, ...]:
        return (self.search.proxy,)

    @property
    def proxy(self) -> str:
        """The column of the pool that the search goes by."""
        return column_of(self.search.proxy)

    @property
    def penalty(self) -> ExteriorPenalty | None:
        """The constraint on the metric. Raises: InvalidInput."""
        from archray.searchers.exterior_penalty import penalty_of  # which imports NumPy

        return penalty_of(self.proxy, self._order, self.search.mu, self.search.nu)

    def check(self) -> None:
        super().check()
        _ = self.penalty

    def check_table(self, table: Table) -> None:
        super().check_table(table)
        table.check_metric(self.proxy)

    @property
    def searcher_options(self) -> dict[str, Any]:
        return super().searcher_options | {"proxy": self.proxy, "order": self._order}

    @property
    def _order(self) -> str:
        if self.search.order is not None:
            return self.search.order
        return "smallest" if self.low_is_good(self.search.proxy) else "largest"


class WarmStartOptions(PoolOptions, EvolutionOptions):
    """What an evolution is told that begins with the best of a pool."""

    budget: int = Field(100, ge=1)


class WarmStartConfig(ZeroCostConfig):
    """The configuration of an evolution whose first population is the best of a pool by one training-free metric."""

    mutates = True
    method: Literal["zero-cost-evolution"] = "zero-cost-evolution"  # type: ignore[assignment]  # the field's own value
    search: WarmStartOptions = WarmStartOptions()

    def check(self) -> None:
        super().check()
        check_population(self.search.population, self.search.budget)
