"""The description of a method or study: configuration, presets, flags, supported spaces, searcher for a bench."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from archray.platform.config import SearchConfig
from archray.references import load_reference
from archray.trainables.spaces import SPACES, Space, TableSpace

Values = Mapping[str, Any]  # options, as a nested dictionary


def serves_networks(space: Space) -> str | None:
    """None for a space whose architectures are networks; otherwise the reason why it cannot be searched."""
    if space.kind == "network":
        if isinstance(space, TableSpace) or space.name in SPACES or hasattr(space, "build"):
            return None
        return (
            f"its class {type(space).__name__} has no method build. Add build(architecture, *, in_channels, "
            "num_classes), which returns a torch.nn.Module"
        )
    if isinstance(space, TableSpace):
        return (
            "the rows of the table are not architectures of an archray space, so they cannot be trained. Search the "
            "table by lookups: 'archray bench METHOD --table FILE'"
        )
    return f"its architectures are {space.kind}s, not networks. Choose {', '.join(network_spaces())}"


def network_spaces() -> list[str]:
    """The names of the built-in spaces whose architectures are networks."""
    return [name for name in SPACES if SPACES.get(name).kind == "network"]


@dataclass(frozen=True, kw_only=True)
class SearchProblem:
    """A table as the searchers of a bench see it: architectures, metrics and costs, without the measured results.

    Attributes:
        space: the space of the table's rows, `get_space("table:PATH")`, for a searcher over a space.
        pool: path of a Parquet table with the column `architecture` and one column per metric and cost, for a searcher
            over a pool. One row per architecture (the first of isomorphic spellings), in the order of the table.
        metrics: the columns of `pool` that are training-free metrics; larger is better.
        costs: the columns of `pool` that are costs.
        encoding: name of the encoding of the architectures; see `archray.trainables.spaces.encodings`.
        costs_of: architecture -> the costs that a run reports, by column; None if the pool contains them.
        objective, mode: Ray Tune's `metric` and `mode`: the key of a trial's result that the search optimizes, and its
            direction.
    """

    space: Space
    pool: str
    metrics: tuple[str, ...]
    costs: tuple[str, ...]
    encoding: str
    objective: str
    mode: Literal["max", "min"]
    costs_of: Callable[[str], Mapping[str, float]] | None = None


# make(problem, budget, seed, options): a new Ray Tune searcher. budget: number of training runs. options: from the
# command line, `hnas:proxy=snip,penalty=absolute`; an unknown option raises TypeError or InvalidInput. `proxy` is the
# column that a method with `Method.by_proxy` uses.
MakeSearcher = Callable[[SearchProblem, int, int, Mapping[str, Any]], Any]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method as the command line and the validation of a configuration need it.

    Importing one imports neither Ray nor torch.

    Attributes:
        name: name on the command line.
        config: class of its configuration.
        recipe_at: location of its `Recipe`, `module:attribute`; imported when the method runs or a report is written.
        presets: `smoke` (a minute or two), `demo` (minutes on two cores) and `paper`, each a nested dictionary.
        defaults: function from a space (name or reference) to the options of the papers that differ from `config`.
        flags: path in the configuration of each short flag of the command line: `{"budget": "search.budget"}`.
        extendable: the flags that `resume` may change on a finished run.
        rejects: options of other methods that this method does not support, and the reasons, for the error.
        serves: function that returns None if the method can search a space, otherwise the reason why not.
        searcher_at: location of the `MakeSearcher` for a table, `module:function`; None if `archray bench` cannot run
            the method.
        streams: whether the method supports images that stay in their files (`imagefolder-stream`).
        by_proxy: whether the searcher uses one training-free metric, its option `proxy`.
        variants: additional rows of the method in every bench: suffix of the method's name -> options.
        words: the list-valued flag whose values may follow the method's name on the command line.
        stands_for: function that expands options: the folder of a run gives the options of that run. Explicit options
            override the expanded ones.
    """

    name: str
    config: type[SearchConfig]
    recipe_at: str
    presets: Mapping[str, Values]
    defaults: Callable[[str], Values] = lambda space: {}
    flags: Mapping[str, str] = field(default_factory=dict)
    extendable: tuple[str, ...] = ()
    rejects: Mapping[str, str] = field(default_factory=dict)
    serves: Callable[[Space], str | None] = serves_networks
    searcher_at: str | None = None
    by_proxy: bool = False
    streams: bool = False
    variants: Mapping[str, Values] = field(default_factory=dict)
    words: str | None = None
    stands_for: Callable[[Values], Values] = lambda options: {}

    @property
    def recipe(self) -> Any:
        """The method's `Recipe`; this imports the method's stages."""
        return load_reference(self.recipe_at)

    @property
    def make_searcher(self) -> MakeSearcher | None:
        return None if self.searcher_at is None else load_reference(self.searcher_at)
