"""The searcher of each plain search, made for what it searches: `make(problem, budget, seed, options)`.

A run of `archray search` and the tables of `archray bench` ask for the very same objects; see `bench_problem`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archray.platform.bench.bench_problem import BenchProblem
from archray.searchers import LocalSearch, MetricFirst, RandomSearch, RegularizedEvolution, ReinforceSearch
from archray.searchers.evolution import POPULATION
from archray.searchers.metric_first import best_of_pool

Options = Mapping[str, Any]


def random_search(problem: BenchProblem, budget: int, seed: int, options: Options) -> RandomSearch:
    """options: those of `RandomSearch`."""
    return RandomSearch(problem.space, budget, seed=seed, **options)


def evolution(problem: BenchProblem, budget: int, seed: int, options: Options) -> RegularizedEvolution:
    """options: those of `RegularizedEvolution`.

    Without `population` that is a quarter of the budget, at most the paper's 100; without `sample_size` that is a
    quarter of the population, the paper's share.
    """
    return RegularizedEvolution(problem.space, budget, seed=seed, **{**options, **_sizes(budget, options)})


def _sizes(budget: int, options: Options) -> dict[str, int]:
    population = options.get("population") or max(1, min(POPULATION, budget // 4))
    return {"population": population, "sample_size": options.get("sample_size") or max(1, population // 4)}


def local_search(problem: BenchProblem, budget: int, seed: int, options: Options) -> LocalSearch:
    """options: those of `LocalSearch`."""
    return LocalSearch(problem.space, budget, seed=seed, **options)


def reinforce(problem: BenchProblem, budget: int, seed: int, options: Options) -> ReinforceSearch:
    """options: those of `ReinforceSearch`."""
    return ReinforceSearch(problem.space, budget, seed=seed, **options)


def zero_cost(problem: BenchProblem, budget: int, seed: int, options: Options) -> MetricFirst:
    """options: `metric`, the column, and those of `MetricFirst`."""
    further = {key: value for key, value in options.items() if key != "metric"}
    return MetricFirst(problem.pool, options["metric"], budget, seed=seed, **further)


def zero_cost_evolution(problem: BenchProblem, budget: int, seed: int, options: Options) -> RegularizedEvolution:
    """An evolution whose first population is the pool's best by one metric; Abdelfattah et al. 2021, section 4.

    options: `metric`, the column, `order`, and those of `evolution`.
    """
    further = {key: value for key, value in options.items() if key not in ("metric", "order")}
    population = _sizes(budget, further)["population"]
    first = best_of_pool(problem.pool, options["metric"], population, options.get("order", "largest"), seed)
    return evolution(problem, budget, seed, {**further, "points_to_evaluate": first})
