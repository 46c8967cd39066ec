"""The searchers of methods, made for what they search: `make(problem, budget, seed, options)`, see `MakeSearcher`.

`archray search` and `archray bench` call the same functions.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ray.tune.search import Searcher

from archray import searchers
from archray.errors import InvalidInput
from archray.platform.methods.hnas.config import KAPPA
from archray.platform.methods.method import MakeSearcher, SearchProblem
from archray.searchers.metric_first import best_of_pool
from archray.searchers.pareto.front import read_objectives
from archray.searchers.pool_file import PoolFile
from archray.trainables.proxies import low_is_good
from archray.trainables.spaces import ConstrainedSpace, Space
from archray.trainables.spaces.table_space import DECISIONS, TableSpace

Options = Mapping[str, Any]


def _of_space(searcher: Callable[..., Any]) -> MakeSearcher:
    """A searcher that needs the space alone; options: those of its class."""
    return lambda problem, budget, seed, options: searcher(problem.space, budget, seed=seed, **options)


random_search = _of_space(searchers.RandomSearch)
local_search = _of_space(searchers.LocalSearch)
reinforce = _of_space(searchers.ReinforceSearch)
bohb = _of_space(searchers.BOHBSearch)


def evolution(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """options: those of `RegularizedEvolution`.

    Without `population` and `sample_size` these are 10 and 3, as in the program of Dong and Yang (2020); with fewer
    than 20 trainings the population is half of them.
    """
    sizes = {"population": _population(budget, options, 10), "sample_size": options.get("sample_size") or 3}
    return searchers.RegularizedEvolution(problem.space, budget, seed=seed, **{**options, **sizes})


def _population(budget: int, options: Options, largest: int) -> int:
    """The population that the options name; otherwise half the budget, at most `largest`."""
    return options.get("population") or max(1, min(largest, budget // 2))


def zero_cost(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """options: `proxy`, the column, and those of `MetricFirst`; without `order`, by the metric's own direction."""
    ranking, others = _ranking(options)
    return searchers.MetricFirst(problem.pool, options["proxy"], budget, seed=seed, **ranking, **others)


def zero_cost_evolution(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """An evolution whose first population is the pool's best by one metric; Abdelfattah et al. 2021, section 4.

    options: `proxy`, the column, `order`, `mu` and `nu` as of `zero_cost`, and those of `evolution`.
    """
    ranking, others = _ranking(options)
    first = best_of_pool(problem.pool, options["proxy"], _population(budget, others, 10), seed=seed, **ranking)
    return evolution(problem, budget, seed, {**others, "points_to_evaluate": first})


def _ranking(options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that rank the pool by the column `proxy`, and the other options."""
    ranking = {key: options[key] for key in ("order", "mu", "nu") if key in options}
    ranking.setdefault("order", "smallest" if low_is_good(options["proxy"]) else "largest")
    return ranking, {key: value for key, value in options.items() if key != "proxy" and key not in ranking}


def hnas(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """options: those of `HNASSearch`; `proxy` is the column that is M. Raises: InvalidInput without kappa."""
    if KAPPA not in problem.metrics:
        raise InvalidInput(
            f"HNAS needs the condition number of the neural tangent kernel, the column {KAPPA}, among the table's "
            f"metrics, which are {', '.join(problem.metrics) or 'none'}; score them with 'archray proxies', and import "
            "the table with --join"
        )
    return searchers.HNASSearch(problem.pool, budget=budget, seed=seed, **options)


# Several metrics.


def rank_surrogate(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """options: those of `RankSurrogateSearch`, and `proxies`, its `metrics`, as `snip;flops` too; by default all
    metrics and costs."""
    proxies, others = _proxies(problem, options)
    options = {"encoding": codes_of(problem.space, problem.encoding), **others}
    return searchers.RankSurrogateSearch(problem.pool, proxies, budget=budget, seed=seed, **options)


def robot(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """options: those of `RoBoTSearch`, and `proxies` as of `rank_surrogate`."""
    proxies, others = _proxies(problem, options)
    return searchers.RoBoTSearch(problem.pool, proxies, budget=budget, seed=seed, **others)


def codes_of(space: Space, encoding: str) -> str | Space:
    """What compares architectures: a space's decisions, or the encoding of a table without a space."""
    space = space.unconstrained if isinstance(space, ConstrainedSpace) else space
    if not isinstance(space, TableSpace):
        return space
    return space.base if encoding == DECISIONS and space.base is not None else encoding


def signed(metric: str) -> str:
    """A metric as the searchers take it: with `-` before one of archray's of which less promises more."""
    return f"-{metric}" if low_is_good(metric) else metric


def _proxies(problem: SearchProblem, options: Options) -> tuple[list[str], dict[str, Any]]:
    """The columns that `proxies` names, and the other options.

    By default all metrics and costs. Columns that are the same in every row are left out.
    """
    others = {key: value for key, value in options.items() if key != "proxies"}
    names = options.get("proxies") or [*map(signed, problem.metrics), *problem.costs]
    if isinstance(names, str):
        return names.split(";"), others
    table = PoolFile.of(problem.pool).read()
    column = {name: name if name in table else name.removeprefix("-") for name in names}
    return [name for name in names if column[name] not in table or table[column[name]].nunique() > 1], others


# Several objectives.


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


def nsga2(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """options: those of `NSGA2Search`; `further` as `-a;-b` too. By default all costs are objectives, and the
    population is half the budget, at most 20."""
    further, others = _further(problem, options)
    costs = problem.costs_of or PoolCosts(problem.pool, [objective.name for objective in read_objectives(further)])
    others["population"] = _population(budget, options, 20)
    return searchers.NSGA2Search(problem.space, budget, further, seed=seed, costs=costs, **others)


def pareto_pool(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """options: those of `ParetoPoolSearch`, and `proxies`, its `metrics`; it and `further` as `-a;-b` too. By default
    all costs are objectives, and all metrics and the other costs are proxies."""
    further, others = _further(problem, options)
    proxies, others = _proxies(problem, others)
    if not options.get("proxies"):
        proxies = [name for name in proxies if f"-{name}" not in further]
    options = {"encoding": codes_of(problem.space, problem.encoding), **others}
    return searchers.ParetoPoolSearch(problem.pool, further, proxies, budget=budget, seed=seed, **options)


def _further(problem: SearchProblem, options: Options) -> tuple[list[str], dict[str, Any]]:
    """The objectives after the metric, and the other options."""
    objectives = options.get("further") or [f"-{cost}" for cost in problem.costs]
    if not objectives:
        raise InvalidInput("expected a table with costs, for objectives beside its own; import it with --costs")
    further = objectives.split(";") if isinstance(objectives, str) else list(objectives)
    return further, {key: value for key, value in options.items() if key != "further"}
