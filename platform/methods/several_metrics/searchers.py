"""The searchers over several metrics, made for what they search: `make(problem, budget, seed, options)`."""

from collections.abc import Mapping
from typing import Any

from archray.platform.methods.search_problem import SearchProblem
from archray.searchers import RankSurrogateSearch, RoBoTSearch
from archray.searchers.pool_file import PoolFile
from archray.trainables.proxies import low_is_good
from archray.trainables.spaces import ConstrainedSpace, Space
from archray.trainables.spaces.table_space import DECISIONS, TableSpace

Options = Mapping[str, Any]


def rank_surrogate(problem: SearchProblem, budget: int, seed: int, options: Options) -> RankSurrogateSearch:
    """options: those of `RankSurrogateSearch`, and `proxies`, its `metrics`, as `snip;flops` too; by default all
    metrics and costs."""
    proxies, others = proxies_of(problem, options)
    given = {"encoding": codes_of(problem.space, problem.encoding), **others}
    return RankSurrogateSearch(problem.pool, proxies, budget=budget, seed=seed, **given)


def robot(problem: SearchProblem, budget: int, seed: int, options: Options) -> RoBoTSearch:
    """options: those of `RoBoTSearch`, as above."""
    proxies, others = proxies_of(problem, options)
    return RoBoTSearch(problem.pool, proxies, budget=budget, seed=seed, **others)


def codes_of(space: Space, encoding: str) -> str | Space:
    """What says which architectures are alike: a space's decisions, or the encoding of a table of its own."""
    space = space.unconstrained if isinstance(space, ConstrainedSpace) else space
    if not isinstance(space, TableSpace):
        return space
    return space.base if encoding == DECISIONS and space.base is not None else encoding


def signed(metric: str) -> str:
    """A metric as the searchers take it: with `-` before one of archray's of which less promises more."""
    return f"-{metric}" if low_is_good(metric) else metric


def proxies_of(problem: SearchProblem, options: Options) -> tuple[list[str], dict[str, Any]]:
    """The columns that are looked at, and the options but `proxies`, which names them.

    By default all metrics and costs. Columns that are the same in every row are left out.
    """
    others = {key: value for key, value in options.items() if key != "proxies"}
    named = options.get("proxies") or [*map(signed, problem.metrics), *problem.costs]
    if isinstance(named, str):
        return named.split(";"), others
    table = PoolFile.of(problem.pool).read()
    column = {name: name if name in table else name.removeprefix("-") for name in named}
    return [name for name in named if column[name] not in table or table[column[name]].nunique() > 1], others
