"""Costs of a space's architectures, as networks or by a table, and by how much they violate constraints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from archray.errors import ArchrayError, InvalidArchitecture, UnknownName
from archray.references import is_reference
from archray.settings import Settings
from archray.trainables.costs.meter import Latencies, LatencyMeter, calibration_candidates, check_lookup
from archray.trainables.costs.registry import COSTS, Cost, CostFailed, cost_column, get_cost
from archray.trainables.costs.settings import CostSettings
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import Architecture, Space, TableSpace, get_space
from archray.trainables.spaces.constrained_space import Constraint, costs_named, parse_constraints, violation
from archray.trainables.spaces.table_space import open_table_space

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

logger = logging.getLogger(__name__)
LARGE_IMAGE = 64  # pixels a side; up to it a pass on the CPU is faster than one on the meta device, which computes none


class NetworkCosts:
    """architecture -> its costs, each canonical form computed once.

    Networks are built without weights (torch's meta device) where nothing is computed with them. Copies, in another
    process too, begin without what this one has computed.

    Args:
        space: a space, its name or reference. Of a table the columns that are costs are taken from it; whatever else is
            asked for needs a base whose networks can be built.
        names: costs: columns of the table, registered names, or references to the user's own.
        network, in_channels, image_size, num_classes: what networks are built with.
        table: further measurements of the space's architectures: a `TableSpace` whose rows have costs.
        settings: how a latency is measured.

    Raises: UnknownName for a cost that neither the tables nor the registry hold.
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
        self._latencies: Latencies | None = None
        self.network, self.in_channels, self.image_size = network, in_channels, image_size
        self.num_classes, self.table = num_classes, table
        self.failures: dict[str, str] = {}  # architecture -> why it has no costs
        self._known: dict[str, dict[str, float]] = {}
        self._counted: dict[str, Callable[[str], float]] = {}
        for name in self.names:
            self._check(name)

    @property
    def columns(self) -> tuple[str, ...]:
        """What the costs are called in tables, in the order of `names`."""
        return tuple(map(cost_column, self.names))

    @property
    def frame_columns(self) -> tuple[str, ...]:
        """The columns of `frame`: beside those of what is measured their spread."""
        measured = [name for name in self.names if not self._of_table(name) and get_cost(name).measured]
        spreads = {cost_column(name): spread_column(cost_column(name)) for name in measured}
        return tuple(
            each for column in self.columns for each in (column, *([spreads[column]] if column in spreads else []))
        )

    @cached_property
    def space(self) -> Space:
        return get_space(self.source)

    def __call__(self, architecture: Architecture | str, names: Sequence[str] | None = None) -> Mapping[str, float]:
        """By column, of the costs `names`, or all. Raises: CostFailed if a network cannot be built or run,
        InvalidArchitecture."""
        choices = self.space.decode(architecture) if isinstance(architecture, str) else architecture
        form = self.space.encode(self.space.canonical(choices))
        known = self._known.setdefault(form, {})
        for name in self.names if names is None else names:
            column = cost_column(name)
            if column not in known and form not in self.failures:
                try:
                    known |= self.value_of(name, form)
                except (InvalidArchitecture, CostFailed) as error:
                    self.failures[form] = str(error)
                except ArchrayError:  # of what was asked for, and of no one network
                    raise
                except Exception as error:  # of whatever a network of the user's does
                    self.failures[form] = f"{type(error).__name__}: {error}"
            if column not in known:
                raise CostFailed(f"{form} has no {column}: {self.failures[form]}")
        return known

    def frame(self, architectures: Iterable[Architecture | str]) -> pd.DataFrame:
        """A row each, in their order: `architecture` as it was given (a string) and a column per cost, NaN of one that
        failed, whose reason is logged and in `failures`."""
        import pandas as pd  # not above: a configuration is read without

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

    # How one is computed -------------------------------------------------------------------------------------------

    def value_of(self, name: str, architecture: str) -> dict[str, float]:
        """One cost of one architecture, by its column; of one that is measured its spread too."""
        column = cost_column(name)
        if (table := self._of_table(name)) is not None:
            return {column: table_cost(table, name, architecture)}
        cost = get_cost(name)
        if cost.measured and column in self._counted:
            return {column: self._counted[column](architecture)}
        if cost.measured:
            median, spread = self.latencies(architecture)
            return {column: median, spread_column(column): spread}
        network = self.built(architecture, weights=self._needs_weights(cost))
        return {column: float(cost.function(network, self.image_shape))}

    @property
    def latencies(self) -> Latencies:
        """What measures a latency."""
        if self._latencies is None:
            candidates = partial(calibration_candidates, self.space)
            self._latencies = Latencies(self.meter, self.settings.model, candidates=candidates)
        return self._latencies

    def count_by(self, column: str, function: Callable[[str], float]) -> None:
        """A measured cost by another function of architectures, where there is nothing to measure it with."""
        self._counted[column] = function

    def use_latencies(self, latencies: Latencies) -> None:
        """Another way to measure them than here: elsewhere, and kept."""
        self._latencies = latencies

    def meter(self) -> LatencyMeter:
        """What times the networks in this process."""
        return LatencyMeter(*self.meter_arguments)

    @property
    def meter_arguments(self) -> tuple[Any, ...]:
        """Those of a `LatencyMeter` of these networks, here or elsewhere."""
        how = self.settings.latency.model_dump(mode="json")
        return self.source, self.network, self.in_channels, self.image_size, self.num_classes, how

    def built(self, architecture: str, *, weights: bool = True) -> nn.Module:
        """The network of an architecture, in evaluation mode; without weights on the meta device where it can be."""
        import torch

        from archray.trainables.devices import own_randomness
        from archray.trainables.nets.build_network import build

        def make() -> nn.Module:
            module = build(
                self.space,
                architecture,
                network=self.network,
                in_channels=self.in_channels,
                num_classes=self.num_classes,
                seed=None,
            )
            return module.eval()

        if not weights:
            try:
                with torch.device("meta"):
                    return make()
            except Exception:  # a network of the user's that computes with its weights
                logger.debug("%s cannot be built without weights", architecture, exc_info=True)
        with own_randomness(0):
            return make()

    def _of_table(self, name: str) -> TableSpace | None:
        """The table that has measured a cost."""
        tables = (self.table, self.space if isinstance(self.space, TableSpace) else None)
        return next((table for table in tables if table is not None and name in table.file.roles.costs), None)

    def _needs_weights(self, cost: Cost) -> bool:
        """Whether a cost is computed with weights: a pass over a small image is faster with them."""
        return self.image_size <= LARGE_IMAGE and cost.name != "parameters"

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.in_channels, self.image_size, self.image_size

    def _check(self, name: str) -> None:
        space = self.space
        own = [*(space.file.roles.costs if isinstance(space, TableSpace) else ())]
        own += self.table.file.roles.costs if self.table is not None else ()
        if name in own:
            return
        buildable = not isinstance(space, TableSpace) or space.base is not None
        if not buildable or (name not in COSTS and not is_reference(name)):
            known = [*own, *(COSTS.names() if buildable else ())]
            raise UnknownName(
                f"there is no cost {name!r}; choose one of {', '.join(known) or '(none: the table has no costs)'}, or "
                "name a function of your own, path.py:function, of a network and the shape of an image"
            )
        if get_cost(name).measured:
            check_lookup(self.settings.model, self.settings.latency)

    def __getstate__(self) -> dict[str, Any]:
        left = {key: value for key, value in self.__dict__.items() if key != "space"}
        return {**left, "_known": {}, "failures": {}, "_latencies": None}


def spread_column(column: str) -> str:
    """Of what is measured, where its spread stands: the range between the quartiles."""
    return f"{column}_iqr"


def costs_of(
    space: Space | str,
    architectures: Iterable[Architecture | str],
    names: Sequence[str],
    *,
    network: NetworkSettings,
    in_channels: int = 3,
    image_size: int = 32,
    num_classes: int = 10,
    table: TableSpace | None = None,
    settings: CostSettings | None = None,
) -> pd.DataFrame:
    """A row per architecture, in their order: `architecture` and a column per cost; see `NetworkCosts`."""
    costs = NetworkCosts(
        space,
        names,
        network=network,
        in_channels=in_channels,
        image_size=image_size,
        num_classes=num_classes,
        table=table,
        settings=settings,
    )
    return costs.frame(architectures)


def check_costs(space: Space | str, names: Sequence[str], settings: CostSettings) -> None:
    """Raises: UnknownName if the space, its table or the registry has no such cost; InvalidInput, InvalidTable."""
    NetworkCosts(space, names, network=NetworkSettings(), table=cost_table(settings), settings=settings)


def cost_table(settings: CostSettings) -> TableSpace | None:
    """The table of further measurements that the settings name."""
    return None if settings.table is None else open_table_space(settings.table)


def table_cost(table: TableSpace, column: str, architecture: str) -> float:
    """What a table says of an architecture, in whatever spelling; of its network's rows the first that says it.

    Raises: InvalidArchitecture if the table has no such row, CostFailed if none of its rows has a value.
    """
    values = _column(table, column)
    spellings = np.flatnonzero(table.representative == table.row(architecture))
    finite = values[spellings][np.isfinite(values[spellings])]
    if not len(finite):
        raise CostFailed(f"{table.name} has no finite {column} of {architecture!r}")
    return float(finite[0])


@lru_cache(maxsize=8)
def _column(table: TableSpace, column: str) -> Any:
    """(n,) by the rows of the space."""
    import pandas as pd

    rows = table.file.rows.drop_duplicates("architecture")
    return pd.to_numeric(rows[column], errors="coerce").to_numpy(dtype="float64")


# Constraints ---------------------------------------------------------------------------------------------------------


class Violation:
    """architecture -> by how much its costs miss the constraints; infinite of one without costs.

    Args:
        constraints: whose violations are summed. costs: architecture, names of costs -> costs by column.
    """

    def __init__(self, constraints: Sequence[Constraint], costs: NetworkCosts) -> None:
        self.constraints, self.costs = tuple(constraints), costs

    def __call__(self, architecture: str) -> float:
        try:
            return violation(self.constraints, self.costs(architecture, costs_named(self.constraints)))
        except CostFailed:
            return float("inf")

    @property
    def one_sided(self) -> bool:
        """Whether all costs are bounded from above, or all from below."""
        return len({each.relation[0] for each in self.constraints}) == 1

    def describe(self, architecture: str) -> str:
        """`latency_ms 5.3, flops 1.2e+07`, of those that are bounded."""
        try:
            costs = self.costs(architecture, costs_named(self.constraints))
        except CostFailed as error:
            return str(error)
        return ", ".join(f"{c} {costs[c]:.5g}" for c in dict.fromkeys(each.column for each in self.constraints))


class BoundSettings(Settings):
    """Constraints on the standalone networks of what a trial finds.

    Attributes:
        constraints: texts, `flops <= 20M`.
        network: the skeleton whose costs are bounded.
        costs: where costs are taken from.
    """

    constraints: tuple[str, ...]
    network: NetworkSettings = NetworkSettings()
    costs: CostSettings = CostSettings()

    def violation(self, space: Space | str, *, in_channels: int, image_size: int, num_classes: int) -> Violation:
        """architecture -> by how much it violates them. Raises: as `NetworkCosts`."""
        constraints = parse_constraints(self.constraints)
        costs = NetworkCosts(
            space,
            costs_named(constraints),
            network=self.network,
            in_channels=in_channels,
            image_size=image_size,
            num_classes=num_classes,
            table=cost_table(self.costs),
        )
        return Violation(constraints, costs)
