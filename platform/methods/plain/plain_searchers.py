"""The searcher of each plain search, made for what it searches: `make(problem, budget, seed, options)`.

A run of `archray search` and the tables of `archray bench` ask for the very same objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from archray.searchers import RandomSearch, RegularizedEvolution
from archray.searchers.evolution import POPULATION
from archray.trainables.spaces import Space


class SearchProblem(Protocol):
    """What a searcher is made for."""

    @property
    def space(self) -> str | Space:
        """What it draws from, if that is a space."""

    @property
    def pool(self) -> str:
        """What it chooses from, if that is a pool: the path or URI of the table."""


def random_search(problem: SearchProblem, budget: int, seed: int, options: Mapping[str, Any]) -> RandomSearch:
    """options: those of `RandomSearch`."""
    return RandomSearch(problem.space, budget, seed=seed, **options)


def evolution(problem: SearchProblem, budget: int, seed: int, options: Mapping[str, Any]) -> RegularizedEvolution:
    """options: those of `RegularizedEvolution`; without `population` a quarter of the budget, at most the paper's 100,
    and without `sample_size` a quarter of that, the paper's share."""
    population = options.get("population") or max(1, min(POPULATION, budget // 4))
    sample_size = options.get("sample_size") or max(1, population // 4)
    sizes = {"population": population, "sample_size": sample_size}
    return RegularizedEvolution(problem.space, budget, seed=seed, **{**options, **sizes})
