"""Costs of a space's architectures: of networks, from a table, of a supernet's edges; violations of constraints."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from archray.errors import ArchrayError, InvalidArchitecture, InvalidInput, UnknownName
from archray.references import is_reference
from archray.settings import Settings
from archray.trainables.costs.meter import Latencies, LatencyMeter, calibration_candidates
from archray.trainables.costs.registry import COSTS, CostFailed, cost_column, get_cost
from archray.trainables.costs.settings import CostSettings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import Architecture, Decision, Space, TableSpace, get_space
from archray.trainables.spaces.constrained_space import Constraint, costs_named, parse_constraints, violation
from archray.trainables.spaces.table_space import open_table_space

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor, nn

    from archray.trainables.supernets.networks import Group

logger = logging.getLogger(__name__)
LARGE_IMAGE = 64  # pixels per side; up to this size a pass on the CPU is faster than one on the meta device


class NetworkCosts:
    """Function from an architecture to its costs. Each canonical form is computed once.

    Networks are built without weights (torch's meta device) if nothing is computed with them. Copies and pickles do
    not contain computed costs.

    Args:
        space: Space, its name or reference. A table provides the costs in its columns; other costs need a table whose
            base space can build networks.
        names: Columns of the table, registered names, or references to custom costs.
        network, in_channels, image_size, num_classes: Options of the networks.
        table: Further measurements of the space's architectures: a `TableSpace` whose rows have costs.
        settings: Options of the costs.

    Attributes:
        failures: Architecture -> the reason why it has no costs.
        substitutes: Column of a measured cost -> a function of architectures that replaces the measurement.

    Raises: UnknownName for a cost that is neither in the tables nor in the registry.
    """

    def __init__(
        self,
        space: Space | str,
        names: Sequence[str],
        *,
        network: NetworkSettings,
        in_channels: int = 3,
        image_size: int = 32,
        num_classes: int = 10,
        table: TableSpace | None = None,
        settings: CostSettings | None = None,
    ) -> None:
        self.source, self.names = space, tuple(dict.fromkeys(names))
        self.settings = settings or CostSettings()
        self.network, self.in_channels, self.image_size = network, in_channels, image_size
        self.num_classes, self.table = num_classes, table
        self.failures: dict[str, str] = {}
        self.substitutes: dict[str, Callable[[str], float]] = {}
        self._costs: dict[str, dict[str, float]] = {}  # by canonical form
        self._last: tuple[str, nn.Module] | None = None  # the network whose costs were computed last
        for name in self.names:
            self._check(name)

    @property
    def frame_columns(self) -> tuple[str, ...]:
        """The columns of costs in `frame`, in the order of `names`. A measured cost is followed by its spread."""
        columns = []
        for name in self.names:
            columns.append(cost_column(name))
            if self.is_measured(name):
                columns.append(spread_column(cost_column(name)))
        return tuple(columns)

    @cached_property
    def space(self) -> Space:
        return get_space(self.source)

    def __call__(self, architecture: Architecture | str, names: Sequence[str] | None = None) -> Mapping[str, float]:
        """Returns the costs `names` (default: all) by column.

        Raises: CostFailed if a network cannot be built or run; InvalidArchitecture.
        """
        choices = self.space.decode(architecture) if isinstance(architecture, str) else architecture
        form = self.space.encode(self.space.canonical(choices))
        costs = self._costs.setdefault(form, {})
        for name in self.names if names is None else names:
            column = cost_column(name)
            if column not in costs and form not in self.failures:
                try:
                    costs |= self.value_of(name, form)
                except (InvalidArchitecture, CostFailed) as error:
                    self.failures[form] = str(error)
                except ArchrayError:  # an invalid request, not a failure of this network
                    raise
                except Exception as error:  # a custom network can fail in any way
                    self.failures[form] = f"{type(error).__name__}: {error}"
            if column not in costs:
                raise CostFailed(f"archray cannot compute {column} of {form}: {self.failures[form]}")
        return costs

    def frame(self, architectures: Iterable[Architecture | str]) -> pd.DataFrame:
        """Returns one row per architecture, in order: `architecture` (as passed, encoded) and `frame_columns`.

        A cost that failed is NaN. The reason is logged and stored in `failures`.
        """
        import pandas as pd  # not at the top: configurations load without it

        rows = []
        for architecture in architectures:
            name = architecture if isinstance(architecture, str) else self.space.encode(architecture)
            try:
                costs = self(architecture)
            except CostFailed as error:
                logger.warning("%s", error)
                costs = {}
            rows.append({"architecture": name, **{column: costs.get(column) for column in self.frame_columns}})
        frame = pd.DataFrame(rows, columns=["architecture", *self.frame_columns])
        return frame.astype(dict.fromkeys(self.frame_columns, "float64"))

    def value_of(self, name: str, architecture: str) -> dict[str, float]:
        """Computes one cost of one architecture by its column, and the spread of a measured cost."""
        column = cost_column(name)
        if (table := self._table_of(name)) is not None:
            return {column: table_cost(table, name, architecture)}
        cost = get_cost(name)
        if cost.measured and column in self.substitutes:
            return {column: self.substitutes[column](architecture)}
        if cost.measured:
            median, spread = self.latencies(architecture)
            return {column: median, spread_column(column): spread}
        # A pass over a small image is faster with weights than on the meta device.
        weights = self.image_size <= LARGE_IMAGE and self.names != ("parameters",)
        if is_reference(name):  # a user's function may change its network
            network = self.built(architecture, weights=weights)
        else:
            if self._last is None or self._last[0] != architecture:
                self._last = architecture, self.built(architecture, weights=weights)
            network = self._last[1]
        return {column: float(cost.function(network, self.image_shape))}

    @cached_property
    def latencies(self) -> Latencies:
        """The source of latencies; may be replaced. By default, this process times the networks."""
        meter, candidates = partial(LatencyMeter, *self.meter_arguments), partial(calibration_candidates, self.space)
        return Latencies(meter, self.settings.model, candidates=candidates)

    @property
    def meter_arguments(self) -> tuple[Any, ...]:
        """Arguments of a `LatencyMeter` for these networks, in any process."""
        shape = self.in_channels, self.image_size, self.num_classes
        return self.source, self.network, *shape, self.settings.latency

    def built(self, architecture: str, *, weights: bool = True) -> nn.Module:
        """Builds a network in evaluation mode; without weights, on the meta device if possible."""
        import torch

        from archray.trainables.devices import restored_randomness
        from archray.trainables.nets.build_network import build

        shape: dict[str, Any] = {"in_channels": self.in_channels, "num_classes": self.num_classes}
        make = partial(build, self.space, architecture, network=self.network, **shape, seed=None)
        if not weights:
            try:
                with torch.device("meta"):
                    return make().eval()
            except Exception:  # a custom network may compute with its weights
                logger.debug("%s cannot be built without weights", architecture, exc_info=True)
        with restored_randomness(0):
            return make().eval()

    @cached_property
    def _tables(self) -> tuple[TableSpace, ...]:
        return tuple(table for table in (self.table, self.space) if isinstance(table, TableSpace))

    def _table_of(self, name: str) -> TableSpace | None:
        """Returns the table with measurements of a cost."""
        return next((table for table in self._tables if name in table.file.roles.costs), None)

    def is_measured(self, name: str) -> bool:
        """Whether a cost is timed on a machine; a cost in a table is not."""
        return self._table_of(name) is None and get_cost(name).measured

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.in_channels, self.image_size, self.image_size

    def _check(self, name: str) -> None:
        space = self.space
        if self._table_of(name) is not None:
            return
        buildable = not isinstance(space, TableSpace) or space.base is not None
        if not buildable or (name not in COSTS and not is_reference(name)):
            names = [column for table in reversed(self._tables) for column in table.file.roles.costs]
            names += COSTS.names() if buildable else ()
            raise UnknownName(
                f"there is no cost {name!r}. Choose one of "
                f"{', '.join(names) or '(none: the table has no costs)'}, or "
                "a custom function path.py:function of a network and the shape of an image"
            )
        runtime = self.settings.latency.runtime
        if get_cost(name).measured and self.settings.model == "lookup" and runtime != "torch-export":
            raise InvalidInput(
                f"expected costs.model whole with the runtime {runtime}, which fuses operations, got lookup. "
                "Choose the runtime torch-export, or whole"
            )

    def __getstate__(self) -> dict[str, Any]:
        cached = ("space", "latencies", "_tables")
        state = {key: value for key, value in self.__dict__.items() if key not in cached}
        return {**state, "_costs": {}, "_last": None, "failures": {}}


def spread_column(column: str) -> str:
    """Returns the column of a measured cost's spread, the interquartile range."""
    return f"{column}_iqr"


def costs_of(
    space: Space | str, architectures: Iterable[Architecture | str], names: Sequence[str], **options: Any
) -> pd.DataFrame:
    """Computes one row per architecture: `architecture` and a column per cost. options: as in `NetworkCosts`."""
    return NetworkCosts(space, names, **options).frame(architectures)


def check_costs(space: Space | str, names: Sequence[str], settings: CostSettings) -> None:
    """Raises: UnknownName if the space, its table or the registry has no such cost; InvalidInput, InvalidTable."""
    NetworkCosts(space, names, network=NetworkSettings(), table=cost_table(settings), settings=settings)


def cost_table(settings: CostSettings) -> TableSpace | None:
    """Opens the table of further measurements in the settings; None without one."""
    return None if settings.table is None else open_table_space(settings.table)


def table_cost(table: TableSpace, column: str, architecture: str) -> float:
    """Returns the value of an architecture, in any spelling: the first finite one in the rows of its network.

    Raises: InvalidArchitecture if the table has no such row; CostFailed if none of its rows has a value.
    """
    values = _column(table, column)
    spellings = np.flatnonzero(table.representative == table.row(architecture))
    finite = values[spellings][np.isfinite(values[spellings])]
    if not len(finite):
        raise CostFailed(f"expected a finite {column} of {architecture!r} in {table.name}, got none")
    return float(finite[0])


@lru_cache(maxsize=8)
def _column(table: TableSpace, column: str) -> Any:
    """Returns (n,) in the order of the space's rows."""
    import pandas as pd

    rows = table.file.rows.drop_duplicates("architecture")
    return pd.to_numeric(rows[column], errors="coerce").to_numpy(dtype="float64")


# Constraints ---------------------------------------------------------------------------------------------------------


class Violation:
    """Function from an architecture to the sum of the constraints' violations; infinite without costs."""

    def __init__(self, constraints: Sequence[Constraint], costs: NetworkCosts) -> None:
        self.constraints, self.costs = tuple(constraints), costs

    def __call__(self, architecture: str) -> float:
        try:
            return violation(self.constraints, self.costs(architecture, costs_named(self.constraints)))
        except CostFailed:
            return float("inf")

    @property
    def one_sided(self) -> bool:
        """Whether all bounds are upper bounds, or all lower bounds."""
        return len({constraint.relation[0] for constraint in self.constraints}) == 1

    def describe(self, architecture: str) -> str:
        """Formats the bounded costs: `latency_ms 5.3, flops 1.2e+07`."""
        try:
            costs = self.costs(architecture, costs_named(self.constraints))
        except CostFailed as error:
            return str(error)
        columns = dict.fromkeys(constraint.column for constraint in self.constraints)
        return ", ".join(f"{column} {costs[column]:.5g}" for column in columns)


class BoundSettings(Settings):
    """Constraints on the standalone networks of the architectures that a trial returns.

    Attributes:
        constraints: Constraints as text, `flops <= 20M`.
        network: Width, depth and stem of the networks whose costs are bounded.
        costs: Source of the costs.
    """

    constraints: tuple[str, ...]
    network: NetworkSettings = NetworkSettings()
    costs: CostSettings = CostSettings()

    def violation(self, space: Space | str, **shape: Any) -> Violation:
        """Creates the violation of these constraints. shape: in_channels, image_size, num_classes. Raises: as
        `NetworkCosts`."""
        constraints, table = parse_constraints(self.constraints), cost_table(self.costs)
        costs = NetworkCosts(space, costs_named(constraints), network=self.network, table=table, **shape)
        return Violation(constraints, costs)


# Costs of the edges of a supernet ------------------------------------------------------------------------------------

SKIP, NONE = "skip_connect", "none"


class EdgeCosts(Settings):
    """Expected cost of architectures whose operations are drawn by the weights: `base` + the sum of w * entry.

    FBNet (Wu et al. 2019, Eq. 2 to 4) and ProxylessNAS (Cai et al. 2019, Eq. 2 and 3) use it for a chain of layers.

    Attributes:
        base: Cost of the reference, whose edges all skip (or have their first operation).
        entries: Group -> edges -> operations: the cost that an operation adds to the reference, times the probability
            that the architecture keeps its edge.
    """

    base: float
    entries: dict[str, list[list[float]]]

    def tensors(self, like: Tensor) -> dict[str, Tensor]:
        """Returns group -> (edges, operations), with the type and device of `like`."""
        import torch

        return {name: torch.tensor(rows, dtype=like.dtype, device=like.device) for name, rows in self.entries.items()}

    def expected(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Returns the expected cost under weights of a mixture, group -> (edges, operations); differentiable."""
        like = next(iter(weights.values()))
        terms = [(weights[name] * entries).sum() for name, entries in self.tensors(like).items()]
        return self.base + sum(terms, like.new_zeros(()))


def edge_costs(space: Space, groups: Sequence[Group], cost: Callable[[str], float]) -> EdgeCosts:
    """Computes the cost of every entry of the groups' weights, by changing single choices of a reference.

    1. The reference skips on every edge (without such an operation it takes the first other than `none`).
    2. An entry is the cost of the reference with that operation on that edge, minus the cost of the reference. If only
       some inputs of the edge's node keep the edge (DARTS), both have such inputs, and the entry is multiplied by the
       share of these inputs.
    3. Decisions that no group of operations weights, such as a node's inputs, add the mean of their choices to
       the base.

    If choices are independent and no edge is `none`, the result is exact for sums over operations: parameters, flops.
    If `none` cuts an edge off from the output, it is an upper bound. Groups that weight inputs are left out: their
    inputs count as equally likely.

    Args:
        cost: Function from the string of an architecture to its cost.
    """
    decisions = {decision.name: decision for decision in space.posterior_decisions}
    reference = {name: _plain(decision) for name, decision in decisions.items()}

    def cost_with(choices: Mapping[str, str]) -> float:
        return cost(space.encode(space.architecture_of_decisions({**reference, **choices})))

    base = cost_with({})
    entries: dict[str, list[list[float]]] = {}
    weighed: set[str] = set()
    for group in groups:
        if group.inputs:
            continue
        entries[group.name] = []
        for row in range(group.edges):
            condition = space.condition(group.decision(row, 0))
            kept, share = {}, 1.0
            if condition is not None:
                name, choices = condition
                kept, share = {name: choices[0]}, len(choices) / len(decisions[name].choices)
            plain = cost_with(kept)
            differences: list[float] = []
            for column, operation in enumerate(group.operations):
                decision = decisions[group.decision(row, column)]
                candidates = [choice for choice in decision.choices if group.stands_for(operation, choice)]
                # Use the cheapest choice; if none takes the operation, the cheapest of all.
                least = min(cost_with({**kept, decision.name: choice}) for choice in candidates or decision.choices)
                differences.append(share * (least - plain))
                weighed.add(decision.name)
            entries[group.name].append(differences)
    for name in decisions.keys() - weighed:
        base += statistics.fmean(cost_with({name: choice}) for choice in decisions[name].choices) - cost_with({})
    return EdgeCosts(base=base, entries=entries)


def _plain(decision: Decision) -> str:
    if SKIP in decision.choices:
        return SKIP
    return next((choice for choice in decision.choices if choice != NONE), decision.choices[0])
