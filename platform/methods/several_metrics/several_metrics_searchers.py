"""The searchers over several metrics, made for what they search: `make(problem, budget, seed, options)`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from archray.platform.bench.bench_problem import BenchProblem
from archray.searchers import RankSurrogateSearch, RoBoTSearch
from archray.searchers.pool_file import PoolFile
from archray.trainables.proxies import low_is_good
from archray.trainables.spaces import ConstrainedSpace, Space
from archray.trainables.spaces.table_space import DECISIONS, TableSpace

Options = Mapping[str, Any]


def rank_surrogate(problem: BenchProblem, budget: int, seed: int, options: Options) -> RankSurrogateSearch:
    """options: those of `RankSurrogateSearch`; `metrics` as `snip;flops` too. Without: all metrics and costs."""
    given = {"encoding": codes_of(problem.space, problem.encoding), **options, "metrics": metrics_of(problem, options)}
    return RankSurrogateSearch(problem.pool, budget=budget, seed=seed, **given)


def robot(problem: BenchProblem, budget: int, seed: int, options: Options) -> RoBoTSearch:
    """options: those of `RoBoTSearch`, as above."""
    return RoBoTSearch(problem.pool, budget=budget, seed=seed, **{**options, "metrics": metrics_of(problem, options)})


def codes_of(space: Space, encoding: str) -> str | Space:
    """What says which architectures are alike: a space's decisions, or the encoding of a table of its own."""
    space = space.unconstrained if isinstance(space, ConstrainedSpace) else space
    if not isinstance(space, TableSpace):
        return space
    return space.base if encoding == DECISIONS and space.base is not None else encoding


def signed(metric: str) -> str:
    """A metric as the searchers take it: with `-` before one of archray's of which less promises more."""
    return f"-{metric}" if low_is_good(metric) else metric


def metrics_of(problem: BenchProblem, options: Options) -> list[str]:
    """The columns that are looked at: those named, or all metrics and costs that are not the same in every row."""
    named = options.get("metrics") or [*map(signed, problem.metrics), *problem.costs]
    metrics = named.split(";") if isinstance(named, str) else list(named)
    if isinstance(options.get("metrics"), str):
        return metrics
    table = PoolFile.of(problem.pool).read()
    column = {name: name if name in table else name.removeprefix("-") for name in metrics}
    return [name for name in metrics if column[name] not in table or table[column[name]].nunique() > 1]
