"""The searchers with several objectives, made for what they search: `make(problem, budget, seed, options)`."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from archray.errors import InvalidInput
from archray.platform.methods.search_problem import SearchProblem
from archray.platform.methods.several_metrics.searchers import codes_of, proxies_of
from archray.searchers import NSGA2Search, ParetoPoolSearch
from archray.searchers.pareto.front import read_objectives
from archray.searchers.pool_file import PoolFile

Options = Mapping[str, Any]
POPULATION = 20


class PoolCosts:
    """architecture -> its costs, by the columns of a pool, which is read again where this is unpickled."""

    def __init__(self, pool: str, columns: Sequence[str]) -> None:
        self._file, self._columns = PoolFile.of(pool), list(columns)

    @cached_property
    def _rows(self) -> dict[str, dict[str, float]]:
        table = self._file.read(["architecture", *self._columns]).set_index("architecture")
        rows = table.astype("float64").itertuples()
        return {str(row[0]): dict(zip(self._columns, map(float, row[1:]), strict=True)) for row in rows}

    def __call__(self, architecture: str) -> Mapping[str, float]:
        return self._rows[architecture]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_rows"}


def nsga2(problem: SearchProblem, budget: int, seed: int, options: Options) -> NSGA2Search:
    """options: those of `NSGA2Search`; `further` as `-a;-b` too. Without: all costs. Population: half the budget or
    20."""
    further, others = _further(problem, options)
    costs = problem.costs_of or PoolCosts(problem.pool, [objective.name for objective in read_objectives(further)])
    population = options.get("population") or max(1, min(POPULATION, budget // 2))
    return NSGA2Search(problem.space, budget, further, seed=seed, costs=costs, **{**others, "population": population})


def pareto_pool(problem: SearchProblem, budget: int, seed: int, options: Options) -> ParetoPoolSearch:
    """options: those of `ParetoPoolSearch`, and `proxies`, its `metrics`; it and `further` as `-a;-b` too. Without: all
    costs, and all metrics and costs but those."""
    further, others = _further(problem, options)
    proxies, others = proxies_of(problem, others)
    if not options.get("proxies"):
        proxies = [name for name in proxies if f"-{name}" not in further]
    given = {"encoding": codes_of(problem.space, problem.encoding), **others}
    return ParetoPoolSearch(problem.pool, further, proxies, budget=budget, seed=seed, **given)


def _further(problem: SearchProblem, options: Options) -> tuple[list[str], dict[str, Any]]:
    """The objectives beside the metric, and the other options."""
    objectives = options.get("further") or [f"-{cost}" for cost in problem.costs]
    if not objectives:
        raise InvalidInput("expected a table with costs, for objectives beside its own; import it with --costs")
    further = objectives.split(";") if isinstance(objectives, str) else list(objectives)
    return further, {key: value for key, value in options.items() if key != "further"}
