"""Searches over a pool with several metrics: their configurations, presets and flags."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.platform.methods.config import PooledConfig
from archray.platform.methods.plain.config import POOL_PRESETS, PlainConfig, PlainOptions, plain_method, serves
from archray.trainables.proxies import column_of

if TYPE_CHECKING:
    from archray.trainables.tabular import Table

METRICS = ("grad_norm", "snip", "synflow", "naswot", "jacov", "l2_norm", "parameters", "multiply_adds")
_AT = "archray.platform.methods.several_metrics"


class SeveralMetricsOptions(PlainOptions):
    """Options of a search over several metrics.

    Fields:
        proxies: what it looks at: metrics by name (`archray list proxies`) or path.py:function; of a pool that was
            scored elsewhere, its columns, with a `-` before one of which less promises more. Of a table: all of its
            metrics and costs, unless they are named.
    """

    budget: int = Field(20, ge=1)
    proxies: tuple[str, ...] = METRICS

    @field_validator("proxies", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """`snip,synflow`, as the command line has it, too."""
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @field_validator("proxies")
    @classmethod
    def _distinct(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(proxies)) != len(proxies):
            raise InvalidInput(f"expected distinct metrics, got {', '.join(proxies)}")
        return proxies


class RankSurrogateConfig(PlainConfig, PooledConfig):
    """The configuration of a search by the ranks of several metrics and the architectures' own codes.

    Fields:
        search: options of the searcher.
    """

    method: Literal["rank-surrogate"] = "rank-surrogate"
    search: SeveralMetricsOptions = SeveralMetricsOptions()

    @property
    def needed(self) -> tuple[str, ...]:
        return tuple(name.removeprefix("-") for name in self.search.proxies)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the pool that the search looks at, with `-` before those of which less promises more."""
        return tuple(
            f"-{column_of(bare)}" if bare != name or self.low_is_good(bare) else column_of(bare)
            for name, bare in zip(self.search.proxies, self.needed, strict=True)
        )

    def check_table(self, table: Table) -> None:
        super().check_table(table)
        held = {**table.metrics, **table.costs}
        missing = [name for name in self.needed if name not in held]
        if not held or (missing and not self._unnamed):
            told = f"has no metric {', '.join(map(repr, missing))}; choose from" if held else "has no metric:"
            raise InvalidInput(f"{table.location} {told} {', '.join(held) or 'import it with --proxies or --costs'}")

    @property
    def _unnamed(self) -> bool:
        return self.on_table and self.search.proxies == METRICS

    @property
    def searcher_options(self) -> dict[str, Any]:
        """Of a table, where none are named, all of its metrics and costs are looked at."""
        return {} if self._unnamed else {"proxies": self.columns}


class RoBoTConfig(RankSurrogateConfig):
    """The configuration of RoBoT, which weighs several metrics."""

    method: Literal["robot"] = "robot"  # type: ignore[assignment]  # the field's own value


_method = partial(
    plain_method,
    presets=POOL_PRESETS,
    flags={"proxies": "search.proxies", "pool": "pool.table", "pool_size": "pool.size"},
    serves=serves,
)
RANK_SURROGATE = _method(
    "rank-surrogate",
    RankSurrogateConfig,
    recipe_at=f"{_AT}.report:RANK_SURROGATE",
    searcher_at=f"{_AT}.searchers:rank_surrogate",
)
ROBOT = _method(
    "robot",
    RoBoTConfig,
    recipe_at=f"{_AT}.report:ROBOT",
    searcher_at=f"{_AT}.searchers:robot",
)
