"""HNAS's searcher for a table of results, as `archray bench` asks for it."""

from collections.abc import Mapping
from typing import Any

from archray.errors import InvalidInput
from archray.platform.methods.hnas.config import KAPPA
from archray.platform.methods.search_problem import SearchProblem
from archray.searchers import HNASSearch


def hnas_search(problem: SearchProblem, budget: int, seed: int, options: Mapping[str, Any]) -> HNASSearch:
    """options: those of `HNASSearch`; `proxy` is the column that is M. Raises: InvalidInput without kappa."""
    if KAPPA not in problem.metrics:
        raise InvalidInput(
            f"HNAS needs the condition number of the neural tangent kernel, the column {KAPPA}, among the table's "
            f"metrics, which are {', '.join(problem.metrics) or 'none'}; score them with 'archray proxies', and import "
            "the table with --join"
        )
    return HNASSearch(problem.pool, budget=budget, seed=seed, **options)
