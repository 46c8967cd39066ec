"""Functions that make the searcher of each method: `make(problem, budget, seed, options)`, see `MakeSearcher`.

`archray search` and `archray bench` call the same functions.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from ray.tune.search import Searcher

from archray import searchers
from archray.errors import InvalidInput, InvalidPool
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
    """Returns a function that creates a searcher for a space. Its options are the options of the class."""
    return lambda problem, budget, seed, options: searcher(problem.space, budget, seed=seed, **options)


random_search = _of_space(searchers.RandomSearch)
local_search = _of_space(searchers.LocalSearch)
reinforce = _of_space(searchers.ReinforceSearch)
bohb = _of_space(searchers.BOHBSearch)


def evolution(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """Creates a `RegularizedEvolution` with the options of its class.

    `population` defaults to 10 and `sample_size` to 3, as in the program of Dong and Yang (2020). With a budget below
    20, the default population is half the budget.
    """
    sizes = {"population": _population(budget, options, 10), "sample_size": options.get("sample_size") or 3}
    return searchers.RegularizedEvolution(problem.space, budget, seed=seed, **{**options, **sizes})


def _population(budget: int, options: Options, largest: int) -> int:
    """The option `population`; by default half the budget, at most `largest`."""
    return options.get("population") or max(1, min(largest, budget // 2))


def zero_cost(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """Creates a `MetricFirst`. Options: `proxy` (a column), and the class's. `order` defaults to the direction of
    the metric."""
    ranking, others = _ranking(options)
    return searchers.MetricFirst(problem.pool, options["proxy"], budget, seed=seed, **ranking, **others)


def zero_cost_evolution(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """Makes an evolution whose first population is the pool's best by one metric (Abdelfattah et al. 2021, section 4).

    options: `proxy` (a column), `order`, `mu` and `nu` as in `zero_cost`, and options of `evolution`.
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
    """Creates an `HNASSearch` with the options of its class. `proxy` is the column with M.

    Raises: InvalidInput without the column kappa.
    """
    if KAPPA not in problem.metrics:
        raise InvalidInput(
            f"expected a table with the metric {KAPPA} (condition number of the neural tangent kernel) for HNAS, got "
            f"the metrics {', '.join(problem.metrics) or 'none'}; compute it with 'archray proxies', and import the "
            "table with --join"
        )
    return searchers.HNASSearch(problem.pool, budget=budget, seed=seed, **options)


# Several metrics.


def rank_surrogate(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """Creates a `RankSurrogateSearch` with the options of its class, and `proxies` for its `metrics`, a list or
    `snip;flops`. By default it uses all metrics and costs."""
    proxies, others = _proxies(problem, options)
    options = {"encoding": codes_of(problem.space, problem.encoding), **others}
    return searchers.RankSurrogateSearch(problem.pool, proxies, budget=budget, seed=seed, **options)


def robot(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """Creates a `RoBoTSearch` with the options of its class, and `proxies` as in `rank_surrogate`."""
    proxies, others = _proxies(problem, options)
    return searchers.RoBoTSearch(problem.pool, proxies, budget=budget, seed=seed, **others)


def codes_of(space: Space, encoding: str) -> str | Space:
    """The encoding that compares architectures: a space, or the name of the encoding of a table without a space."""
    space = space.unconstrained if isinstance(space, ConstrainedSpace) else space
    if not isinstance(space, TableSpace):
        return space
    return space.base if encoding == DECISIONS and space.base is not None else encoding


def signed(metric: str) -> str:
    """A metric as the searchers expect it: with `-` in front if small values of a registered metric are good."""
    return f"-{metric}" if low_is_good(metric) else metric


def _proxies(problem: SearchProblem, options: Options) -> tuple[list[str], dict[str, Any]]:
    """The columns in `proxies`, and the other options.

    By default all metrics and costs, without columns that are constant or empty.

    Raises: InvalidPool if all are.
    """
    others = {key: value for key, value in options.items() if key != "proxies"}
    names = options.get("proxies") or [*map(signed, problem.metrics), *problem.costs]
    if isinstance(names, str):
        return names.split(";"), others
    table = PoolFile.of(problem.pool).read()
    column = {name: name if name in table else name.removeprefix("-") for name in names}
    varied = [name for name in names if column[name] not in table or table[column[name]].nunique() > 1]
    if names and not varied:
        raise InvalidPool(
            f"Expected different values of a metric in {problem.pool}, got the same or none in each of "
            f"{', '.join(names)}. See the column failure for the reasons, or choose other metrics with --proxies."
        )
    return varied, others


# Several objectives.


class PoolCosts:
    """A function from an architecture to its costs in a pool, which is read again after unpickling."""

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
    """Creates an `NSGA2Search` with the options of its class; `further` is a list or `-a;-b`.

    By default all costs are objectives, and the population is half the budget, at most 20.
    """
    further, others = _further(problem, options)
    costs = problem.costs_of or PoolCosts(problem.pool, [objective.name for objective in read_objectives(further)])
    others["population"] = _population(budget, options, 20)
    return searchers.NSGA2Search(problem.space, budget, further, seed=seed, costs=costs, **others)


def pareto_pool(problem: SearchProblem, budget: int, seed: int, options: Options) -> Searcher:
    """Creates a `ParetoPoolSearch` with its options, and `proxies` for its `metrics`. `proxies` and `further`
    may be lists or `-a;-b`.

    By default all costs are objectives, and all metrics and the other costs are proxies.
    """
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
        raise InvalidInput("expected a table with costs as additional objectives, got none. Import it with --costs")
    further = objectives.split(";") if isinstance(objectives, str) else list(objectives)
    return further, {key: value for key, value in options.items() if key != "further"}
