"""A table as a searcher sees it before any training: its architectures, metrics and costs, and no value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from archray.trainables.spaces import Space

if TYPE_CHECKING:
    from ray.tune.search import Searcher


@dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """A table as the searchers of a bench see it.

    Attributes:
        space: the space of its rows, `get_space("table:PATH")`, for a searcher over a space.
        pool: for a searcher over a pool, the path of a Parquet table with `architecture` and a column per metric and
            cost; a row per architecture (of isomorphic spellings the first), in the table's order.
        metrics: the columns of `pool` that are training-free metrics; the more the better. costs: those that are costs.
        encoding: of its architectures; see `archray.trainables.spaces.encodings`.
        costs_of: architecture -> the costs that a run looks at, by column; None: the pool has them.
        objective, mode: the key of a trial's result that a search is judged by, and its direction: Tune's metric and
            mode.
    """

    space: Space
    pool: str
    metrics: tuple[str, ...]
    costs: tuple[str, ...]
    encoding: str
    objective: str
    mode: Literal["max", "min"]
    costs_of: Callable[[str], Mapping[str, float]] | None = None


# make(problem, budget, seed, options): a new searcher. budget: trainings. options: as a user gave them beside the
# method's name, `hnas:proxy=snip,penalty=absolute`; those that the searcher does not know raise TypeError or
# InvalidInput. `proxy` is the column that a method goes by which goes by one (`Method.by_proxy`).
MakeSearcher = Callable[[SearchProblem, int, int, Mapping[str, Any]], "Searcher"]
