"""A method or a study before it is run: configuration, presets, flags, the spaces it serves, how a bench runs it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from archray.platform.config import SearchConfig
from archray.references import load_reference
from archray.trainables.spaces import SPACES, Space, TableSpace

Values = Mapping[str, Any]  # options, as a nested dictionary


def serves_networks(space: Space) -> str | None:
    """None for a space whose architectures are networks; else why it cannot be searched."""
    if space.kind == "network":
        if isinstance(space, TableSpace) or space.name in SPACES or hasattr(space, "build"):
            return None
        return (
            f"its class {type(space).__name__} has no method build; add build(architecture, *, in_channels, "
            "num_classes), which returns a torch.nn.Module"
        )
    if isinstance(space, TableSpace):
        return (
            "its rows are no architectures of a space of archray's, so nothing can train them; "
            "'archray bench METHOD --table FILE' searches it by lookups"
        )
    return f"its architectures are {space.kind}s, not networks; choose {', '.join(network_spaces())}"


def network_spaces() -> list[str]:
    """The names of archray's spaces whose architectures are networks."""
    return [name for name in SPACES if SPACES.get(name).kind == "network"]


@dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """A table as the searchers of a bench see it: architectures, metrics and costs, and no value.

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


# make(problem, budget, seed, options): a new searcher of Tune's. budget: trainings. options: from the command line,
# `hnas:proxy=snip,penalty=absolute`; an unknown option raises TypeError or InvalidInput. `proxy` is the column that a
# method with `Method.by_proxy` goes by.
MakeSearcher = Callable[[SearchProblem, int, int, Mapping[str, Any]], Any]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method as the command line and the check of a configuration need it; importing one loads no Ray and no torch.

    Attributes:
        name: as on the command line.
        config: its configuration.
        recipe_at: where its `Recipe` is, `module:attribute`: imported when the method is run or its report is written.
        presets: `smoke` (seconds), `demo` (minutes on two cores), `paper`, each a nested dictionary.
        defaults: the papers' options for a space, by its name or reference, where they are not those of `config`.
        flags: where the command line's short flags go in the configuration: `{"budget": "search.budget"}`.
        extendable: the flags that `resume` may change on a finished run.
        serves: None if the method can search the space, else why not.
        searcher_at: where the `MakeSearcher` for a table is, `module:function`; None: `archray bench` cannot run it.
        streams: whether it serves images that stay in their files (`imagefolder-stream`): it trains networks alone.
        by_proxy: whether that searcher goes by one training-free metric, its option `proxy`.
        beside: rows that stand beside its own in every bench: their name after the method's -> further options.
        words: the flag whose values the command also takes as words after the method's name; of a list.
        stands_for: the options that given ones stand for, laid under them: those of a run whose folder they name.
    """

    name: str
    config: type[SearchConfig]
    recipe_at: str
    presets: Mapping[str, Values]
    defaults: Callable[[str], Values] = lambda space: {}
    flags: Mapping[str, str] = field(default_factory=dict)
    extendable: tuple[str, ...] = ()
    serves: Callable[[Space], str | None] = serves_networks
    searcher_at: str | None = None
    by_proxy: bool = False
    streams: bool = False
    beside: Mapping[str, Values] = field(default_factory=dict)
    words: str | None = None
    stands_for: Callable[[Values], Values] = lambda options: {}

    @property
    def recipe(self) -> Any:
        """Its `Recipe`, with what that imports."""
        return load_reference(self.recipe_at)

    @property
    def make_searcher(self) -> MakeSearcher | None:
        return None if self.searcher_at is None else load_reference(self.searcher_at)
