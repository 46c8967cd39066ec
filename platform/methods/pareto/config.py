"""Searches with several objectives: their configurations, presets and flags."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.platform.methods.config import Texts
from archray.platform.methods.plain import config as plain
from archray.trainables.costs import cost_column

if TYPE_CHECKING:
    from archray.searchers.pareto.front import Objective

ACCURACY = "validation_accuracy"  # of a training; of a table its objective


class SeveralObjectivesConfig(plain.PlainConfig):
    """The configuration of a search that ends with a set.

    Fields:
        objectives: `validation_accuracy` (of a table, what it is searched for), and one cost or more, each with a minus
            before it: by name (`parameters`, `flops`, `peak_memory`, `latency_ms`), a column of the table or of
            `costs.table`, or path.py:function.
        final_members: how many members of the set have the final training, spread along it: the most accurate, the
            cheapest, then what lies farthest from those; or `all`.
    """

    objectives: Texts = (ACCURACY, "-parameters")
    final_members: Annotated[int, Field(ge=1)] | Literal["all"] = 1

    @field_validator("objectives")
    @classmethod
    def _objectives_read(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        from archray.searchers.pareto.front import read_objectives  # which imports NumPy

        first, *costs = read_objectives(texts)
        if str(first) != ACCURACY or not costs:
            raise InvalidInput(
                f'objectives: expected {ACCURACY} and at least one cost, "{ACCURACY}, -latency_ms", got '
                f'"{", ".join(texts)}"'
            )
        if more := [cost.name for cost in costs if not cost.less]:
            raise InvalidInput(
                f"objectives: expected a minus before each cost, as less of it is better, got {', '.join(more)}; write "
                f'"{ACCURACY}, -{", -".join(cost.name for cost in costs)}"'
            )
        return texts

    @property
    def further(self) -> tuple[Objective, ...]:
        """The costs among the objectives."""
        from archray.searchers.pareto.front import read_objectives

        return read_objectives(self.objectives)[1:]

    @property
    def cost_columns(self) -> tuple[str, ...]:
        """What they are called in tables."""
        return tuple(cost_column(objective.name) for objective in self.further)

    @property
    def cost_names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().cost_names, *(objective.name for objective in self.further))))

    @property
    def searcher_options(self) -> dict[str, Any]:
        return super().searcher_options | {"further": [f"-{column}" for column in self.cost_columns]}


class NSGA2Options(plain.PlainOptions):
    """Options of `NSGA2Search`.

    Fields:
        population: how many are drawn at random first, and of how many parents are chosen, N.
        crossover: how many of the children have two parents; Deb et al. 2002, section IV-A.
    """

    population: int = Field(20, ge=1)
    crossover: float = Field(0.9, ge=0, le=1)


class NSGA2Config(SeveralObjectivesConfig):
    """The configuration of NSGA-II."""

    mutates = True
    method: Literal["nsga2"] = "nsga2"
    search: NSGA2Options = NSGA2Options()

    def check(self) -> None:
        super().check()
        plain.check_population(self.search.population, self.search.budget)


class ParetoPoolConfig(SeveralObjectivesConfig, plain.RankSurrogateConfig):
    """The configuration of the search over a pool whose costs are known before anything is trained."""

    method: Literal["pareto-pool"] = "pareto-pool"  # type: ignore[assignment]  # the field's own value
    search: plain.SeveralMetricsOptions = plain.SeveralMetricsOptions()

    @property
    def cost_names(self) -> tuple[str, ...]:
        """Without the objectives that a pool scored elsewhere has columns of."""
        if self.pool.table is None:
            return super().cost_names
        columns: tuple[str, ...] = ()
        if Path(self.pool.table).is_file():  # otherwise `check` raises an error
            from archray.searchers.pool_file import PoolFile

            columns = tuple(map(str, PoolFile.of(self.pool.table).read().columns))
        return tuple(name for name in super().cost_names if f"-{name}" not in self.objectives or name not in columns)


_FLAGS: Mapping[str, str] = {"objectives": "objectives", "final_members": "final_members"}
_method = partial(plain.plain_method, family="pareto.report", extendable=(*plain.EXTENDABLE, "final_members"))
NSGA2 = _method(
    "nsga2",
    NSGA2Config,
    searcher="nsga2",
    presets={
        "smoke": {"search": {"budget": 4, "population": 2}},
        "demo": {"search": {"population": 6}},
    },
    flags={**_FLAGS, "population": "search.population"},
)
PARETO_POOL = _method("pareto-pool", ParetoPoolConfig, searcher="pareto_pool", flags={**_FLAGS, **plain.PROXIES_FLAGS})
