"""Configurations, presets and flags of searches with several objectives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from archray.errors import InvalidInput
from archray.platform.methods.config import Texts, with_reference
from archray.platform.methods.plain import config as plain
from archray.trainables.costs import cost_column

if TYPE_CHECKING:
    from archray.searchers.pareto.front import Objective

ACCURACY = "validation_accuracy"  # of a training run; for a table, its objective


class SeveralObjectivesConfig(plain.PlainConfig):
    """The configuration of a search whose result is a Pareto front.

    Fields:
        objectives: `validation_accuracy` (for a table, its objective) and one or more costs, each with a minus sign in
            front: `-parameters`, `-flops`, `-peak_memory`, `-latency_ms`, a column of the table or of `costs.table`, or
            `path.py:function`.
        final_members: number of members of the Pareto front with a final training run, or `all`. Members are taken in
            this order: the most accurate, the cheapest, then the one farthest from those already taken.
    """

    objectives: Texts = (ACCURACY, "-parameters")
    final_members: Annotated[int, Field(ge=1)] | Literal["all"] = 1

    @field_validator("objectives")
    @classmethod
    def _objectives_read(cls, texts: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        from archray.searchers.pareto.front import read_objectives  # which imports NumPy

        first, *costs = read_objectives(texts)
        if str(first) != ACCURACY or not costs:
            raise InvalidInput(
                f'expected objectives to be {ACCURACY} and at least one cost, "{ACCURACY}, -latency_ms", got '
                f'"{", ".join(texts)}"'
            )
        if more := [cost.name for cost in costs if not cost.less]:
            raise InvalidInput(
                f"expected a minus sign before each cost in objectives, got {', '.join(more)}. Write "
                f'"{ACCURACY}, -{", -".join(cost.name for cost in costs)}"'
            )
        return texts[0], *(with_reference(text, cost.name, info) for text, cost in zip(texts[1:], costs, strict=True))

    @property
    def further(self) -> tuple[Objective, ...]:
        """The costs among the objectives."""
        from archray.searchers.pareto.front import read_objectives

        return read_objectives(self.objectives)[1:]

    @property
    def cost_columns(self) -> tuple[str, ...]:
        """The columns of these costs in tables."""
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
        population: number of random architectures at the start, and size of the population from which parents are
            chosen (N).
        crossover: share of the children with two parents (Deb et al. 2002, section IV-A).
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
    """The configuration of the search over a pool whose costs are known before training."""

    method: Literal["pareto-pool"] = "pareto-pool"  # type: ignore[assignment]  # the field's own value
    search: plain.SeveralMetricsOptions = plain.SeveralMetricsOptions()

    @property
    def cost_names(self) -> tuple[str, ...]:
        """The costs, without the objectives that are columns of an existing pool."""
        if self.pool.table is None:
            return super().cost_names
        columns: tuple[str, ...] = ()
        if Path(self.pool.table).is_file():  # otherwise `check` raises an error
            from archray.searchers.pool_file import PoolFile

            columns = tuple(map(str, PoolFile.of(self.pool.table).read().columns))
        return tuple(name for name in super().cost_names if f"-{name}" not in self.objectives or name not in columns)


_FLAGS: Mapping[str, str] = {"objectives": "objectives", "final_members": "final_members"}
_method = partial(plain.plain_method, family="pareto.stages", extendable=(*plain.EXTENDABLE, "final_members"))
NSGA2 = _method(
    "nsga2",
    NSGA2Config,
    searcher="nsga2",
    presets={
        "smoke": {"search": {"budget": 4, "population": 2}},
        "demo": {"search": {"population": 6}},
    },
    flags={**_FLAGS, "population": "search.population"},
    rejects={"decide": "its Pareto front compares architectures by costs, which do not depend on the training"},
)
PARETO_POOL = _method("pareto-pool", ParetoPoolConfig, searcher="pareto_pool", flags={**_FLAGS, **plain.PROXIES_FLAGS})
