"""The searcher of each plain search, made for what it searches: `make(problem, budget, seed, options)`.

A run of `archray search` and the tables of `archray bench` ask for the very same objects; see `bench_problem`.
"""

from collections.abc import Mapping
from typing import Any

from archray.platform.methods.search_problem import SearchProblem
from archray.searchers import BOHBSearch, LocalSearch, MetricFirst, RandomSearch, RegularizedEvolution, ReinforceSearch
from archray.searchers.metric_first import best_of_pool
from archray.trainables.proxies import low_is_good

Options = Mapping[str, Any]
POPULATION, SAMPLE_SIZE = 10, 3  # P and S; Dong and Yang 2020


def random_search(problem: SearchProblem, budget: int, seed: int, options: Options) -> RandomSearch:
    """options: those of `RandomSearch`."""
    return RandomSearch(problem.space, budget, seed=seed, **options)


def evolution(problem: SearchProblem, budget: int, seed: int, options: Options) -> RegularizedEvolution:
    """options: those of `RegularizedEvolution`.

    Without `population` and `sample_size` these are 10 and 3, as Dong and Yang 2020 have them in their program; with
    fewer than 20 trainings the population is half of them.
    """
    return RegularizedEvolution(problem.space, budget, seed=seed, **{**options, **_sizes(budget, options)})


def _sizes(budget: int, options: Options) -> dict[str, int]:
    population = options.get("population") or max(1, min(POPULATION, budget // 2))
    return {"population": population, "sample_size": options.get("sample_size") or SAMPLE_SIZE}


def local_search(problem: SearchProblem, budget: int, seed: int, options: Options) -> LocalSearch:
    """options: those of `LocalSearch`."""
    return LocalSearch(problem.space, budget, seed=seed, **options)


def reinforce(problem: SearchProblem, budget: int, seed: int, options: Options) -> ReinforceSearch:
    """options: those of `ReinforceSearch`."""
    return ReinforceSearch(problem.space, budget, seed=seed, **options)


def bohb(problem: SearchProblem, budget: int, seed: int, options: Options) -> BOHBSearch:
    """options: those of `BOHBSearch`."""
    return BOHBSearch(problem.space, budget, seed=seed, **options)


def zero_cost(problem: SearchProblem, budget: int, seed: int, options: Options) -> MetricFirst:
    """options: `proxy`, the column, and those of `MetricFirst`; without `order`, by the metric's own direction."""
    ranked, further = _ranked(options)
    return MetricFirst(problem.pool, options["proxy"], budget, seed=seed, **ranked, **further)


def zero_cost_evolution(problem: SearchProblem, budget: int, seed: int, options: Options) -> RegularizedEvolution:
    """An evolution whose first population is the pool's best by one metric; Abdelfattah et al. 2021, section 4.

    options: `proxy`, the column, `order`, `mu` and `nu` as of `zero_cost`, and those of `evolution`.
    """
    ranked, further = _ranked(options)
    population = _sizes(budget, further)["population"]
    first = best_of_pool(problem.pool, options["proxy"], population, seed=seed, **ranked)
    return evolution(problem, budget, seed, {**further, "points_to_evaluate": first})


def _ranked(options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """What says how the pool is ranked by the column `proxy`, and the other options."""
    ranked = {key: options[key] for key in ("order", "mu", "nu") if key in options}
    ranked.setdefault("order", "smallest" if low_is_good(options["proxy"]) else "largest")
    return ranked, {key: value for key, value in options.items() if key != "proxy" and key not in ranked}
