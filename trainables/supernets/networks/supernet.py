"""Supernets: all architectures of a space in one network with shared weights. Shu 2022, 2.1; Liu et al. 2019, sec. 2.2.

A supernet has weights, but no architecture parameters: each forward pass receives the weights of the mixture.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.devices import restored_randomness
from archray.trainables.nets.build_network import correct_average_pools, initialize, network_options
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.nets.registry import NETWORKS
from archray.trainables.spaces import Architecture, Decision, Space, get_space
from archray.trainables.supernets.settings import SUPERNETS

NONE = "none"  # the operation that outputs zeros; it has no module
LEFT_OUT = -1  # instead of a chosen operation: the edge is not used


def one_hot(chosen: Tensor, operations: int, dtype: torch.dtype) -> Tensor:
    """(edges,) -> (edges, operations): 1 at the chosen operation. Does not synchronize, unlike torch's one_hot."""
    dense = torch.zeros((len(chosen), operations), dtype=dtype, device=chosen.device)
    return dense.scatter_(-1, chosen[:, None], 1.0)


@dataclass(frozen=True)
class MixtureWeights:
    """The weights of the operations of one group of edges, for one step.

    Attributes:
        dense: (edges, operations), rows that sum to one. Gradients for the architecture parameters flow through it.
        chosen: (edges,) int64 on the CPU, the operation of each edge if all rows are one-hot, else None. A supernet
            then evaluates only the chosen operations, and computes no gradient for the weights of the others.

    Raises: InvalidInput if the shapes do not match.
    """

    dense: Tensor
    chosen: Tensor | None = None

    def __post_init__(self) -> None:
        if self.dense.ndim != 2:
            raise InvalidInput(f"expected weights of shape (edges, operations), got {tuple(self.dense.shape)}")
        chosen = self.chosen
        if chosen is not None and (chosen.shape != self.dense.shape[:1] or chosen.dtype != torch.int64):
            raise InvalidInput(
                f"expected one int64 operation for each of {count(self.dense.shape[0], 'edge')}, "
                f"got {chosen.dtype} of shape {tuple(chosen.shape)}"
            )


Weights = Mapping[str, Tensor | MixtureWeights]


@dataclass(frozen=True)
class Group:
    """Edges with the same candidate operations: one row of weights per edge, one column per operation.

    Attributes:
        name: Key of the weights, such as `normal`.
        edges: Number of rows.
        operations: Columns, in order; node numbers if a row weights inputs.
        decisions: Names of the space's `posterior_decisions` that the rows weight.
    """

    inputs: ClassVar[bool] = False  # whether the columns are nodes instead of operations
    nested: ClassVar[bool] = False  # whether the supernet itself multiplies by the weights of outer choices

    name: str
    edges: int
    operations: tuple[str, ...]
    decisions: tuple[str, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return self.edges, len(self.operations)

    def decision(self, row: int, column: int) -> str:
        """Returns the name of the decision that an entry weights."""
        return self.decisions[row]

    def stands_for(self, operation: str, choice: str) -> bool:
        """Whether a choice of an entry's decision takes the operation of its column."""
        return choice == operation


class EdgesGroup(Group):
    """One row for the edges into a node, with a column per edge; `decisions` are those on the columns' operations."""

    inputs = True

    def decision(self, row: int, column: int) -> str:
        return self.decisions[column]

    def stands_for(self, operation: str, choice: str) -> bool:
        """An edge exists unless it is `none`."""
        return choice != NONE


class ParentsGroup(Group):
    """One row for the parents of a node, with a column per possible parent; a choice is `0,2`."""

    inputs = True

    def stands_for(self, operation: str, choice: str) -> bool:
        return operation in choice.split(",")


# (row, column) of an entry of a group's weights, and a function that computes the tensor it multiplies
Offer = tuple[int, int, Callable[[], Tensor]]
# The value of a node and the offers that it sums -> the value to use
Probe = Callable[[Tensor, Sequence[Offer]], Tensor]


@dataclass(frozen=True)
class Rows:
    """The weights of one group in the form that a supernet's cells use.

    With a probe the weights are those of a path, 0 or 1, and multiply nothing. The probe receives each node's offers,
    in the order of computation. The pass can then be differentiated any number of times.
    """

    dense: Tensor  # (edges, operations)
    chosen: tuple[int, ...] | None = None  # per edge the only evaluated column, or LEFT_OUT; None if all are mixed
    probe: Probe | None = None


def rows_of(groups: Sequence[Group], weights: Weights) -> dict[str, Rows]:
    """Returns the rows of every group. Raises: InvalidInput for a missing or unknown group, or a wrong shape."""
    expected = [group.name for group in groups]
    if set(weights) != set(expected):
        raise InvalidInput(f"expected weights for {', '.join(expected)}, got {', '.join(weights) or 'none'}")
    rows = {}
    for group in groups:
        entry = weights[group.name]
        dense, chosen = (entry.dense, entry.chosen) if isinstance(entry, MixtureWeights) else (entry, None)
        if tuple(dense.shape) != group.shape:
            raise InvalidInput(
                f"expected weights of shape {group.shape}, edges and operations, for {group.name}, "
                f"got {tuple(dense.shape)}"
            )
        rows[group.name] = Rows(dense, None if chosen is None else tuple(chosen.tolist()))
    return rows


def path_weights(group: Group, chosen: Sequence[str | None]) -> MixtureWeights:
    """Creates one-hot rows on the CPU for an operation per edge. None leaves an edge out, with zeros."""
    columns = [LEFT_OUT if name is None else group.operations.index(name) for name in chosen]
    dense = torch.zeros(group.shape)
    for edge, column in enumerate(columns):
        if column != LEFT_OUT:
            dense[edge, column] = 1.0
    return MixtureWeights(dense, torch.tensor(columns))


def possible_choices(decision: Decision, groups: Sequence[Group]) -> tuple[str, ...]:
    """Returns the choices of a decision that a supernet has: all, but `none` only if a group contains it."""
    none = any(NONE in group.operations for group in groups)
    return decision.choices if none else without_none(decision.choices)


def columns_of(operations: Sequence[str], rows: Tensor) -> tuple[str, ...]:
    """Returns the operations of rows of weights: all, or all without `none`. Raises: InvalidInput."""
    for names in (tuple(operations), without_none(operations)):
        if rows.shape[-1] == len(names):
            return names
    raise InvalidInput(
        f"expected weights of {', '.join(operations)}, with or without none, got {count(rows.shape[-1], 'column')}"
    )


def without_none(operations: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in operations if name != NONE)


class Supernet(nn.Module, ABC):
    """Base class of all supernets. A subclass creates its modules under the names of its standalone search form.

    Args:
        groups: Architecture parameters of the supernet.
        partial_channels: K, see `cells`.
    """

    loose_ends: ClassVar[bool] = False  # whether architectures may have operations whose output is not used

    def __init__(self, space: Space, groups: Sequence[Group], partial_channels: int = 1) -> None:
        super().__init__()
        self.space, self.groups, self.partial_channels = space, tuple(groups), partial_channels

    def forward(self, images: Tensor, weights: Weights) -> Tensor:
        """Maps images (n, in_channels, H, W) to logits (n, num_classes).

        On a CPU the pass can be differentiated once.

        Args:
            weights: For each group (edges, operations). With `MixtureWeights.chosen` only the chosen operations run.

        Raises: InvalidInput if weights do not match the groups.
        """
        return self.logits(images.contiguous(memory_format=torch.channels_last), rows_of(self.groups, weights))

    @abstractmethod
    def logits(self, images: Tensor, rows: Mapping[str, Rows]) -> Tensor:
        """Like `forward`, with the weights checked and the images in channels-last layout."""

    def check_probes(self) -> None:
        """Raises: InvalidInput if `Rows.probe` cannot measure the supernet's choices, which NASI needs."""

    @abstractmethod
    def path(self, architecture: Architecture) -> dict[str, MixtureWeights]:
        """Returns the weights under which only the operations of `architecture` are evaluated."""

    def modules_of(self, architecture: Architecture) -> dict[str, str]:
        """Returns the operations of `architecture`: name prefix in its standalone network -> in the supernet."""
        raise NotImplementedError(f"{type(self).__name__} defines weights_of instead")

    def weights_of(self, architecture: Architecture, names: Iterable[str]) -> dict[str, Tensor]:
        """Returns the state of the standalone network of `architecture`, whose tensors have these names.

        Raises: InvalidInput if the supernet has no tensor for a name.
        """
        places, shared, copied = self.modules_of(architecture), self.state_dict(), {}
        for name in names:
            prefix = next((prefix for prefix in places if name.startswith(prefix)), "")
            source = places.get(prefix, "") + name.removeprefix(prefix)
            if source not in shared:
                raise InvalidInput(
                    f"expected the parameter {source} in the supernet for {name} of the standalone network, got none; "
                    "build the standalone network in search form"
                )
            copied[name] = shared[source]
        return copied

    @classmethod
    @abstractmethod
    def groups_of(cls, space: Space, *, partial_channels: int, none: bool) -> tuple[Group, ...]:
        """Returns the groups of the supernet of `space`; see `groups`."""

    @classmethod
    @abstractmethod
    def discretize(cls, space: Space, rows: Mapping[str, Tensor]) -> Architecture:
        """Returns the architecture with the strongest operations (note G4). rows: group -> (edges, operations)."""


def groups(space: Space | str, *, partial_channels: int = 1, none: bool = True) -> tuple[Group, ...]:
    """Returns the architecture parameters of a space's supernet.

    Args:
        partial_channels: K of PC-DARTS. If it is above 1, there are also groups of edge weights.
        none: Whether the operation `none` has a column, if the space has it.

    Raises: UnknownName if the space has no supernet; InvalidInput if it has no partial channels.
    """
    space = get_space(space)
    if partial_channels < 1:
        raise InvalidInput(f"expected partial_channels of at least 1, got {partial_channels}")
    return SUPERNETS.get(space.family).groups_of(space, partial_channels=partial_channels, none=none)


def build_supernet(
    space: Space | str,
    network: NetworkSettings,
    in_channels: int,
    num_classes: int,
    seed: int | None,
    partial_channels: int = 1,
    none: bool = True,
    form: type[Supernet] | None = None,
) -> Supernet:
    """Builds the supernet of a space, in train mode, on the CPU, in channels-last layout.

    Args:
        network: Width, depth and initialization. The normalization has the search form (note G3).
        seed: Seed of the initial weights; torch's global generator does not change. None draws from that generator.
        partial_channels, none: As in `groups`.
        form: Class to use instead of the class registered for the space.

    Raises: UnknownName if the space has no supernet; InvalidInput if `network` is not in search form, or
        `partial_channels` does not divide the cells' channels.
    """
    space = get_space(space)
    if network.normalization != "auto":
        raise InvalidInput(
            f"expected normalization auto for a supernet, which is always in search form, got {network.normalization}"
        )
    if network.stem != "cifar" or network.auxiliary:
        raise InvalidInput(
            f"expected the stem cifar and no auxiliary classifier for a supernet, got stem {network.stem} and "
            f"auxiliary {network.auxiliary}. Set them for the standalone networks only"
        )
    groups(space, partial_channels=partial_channels, none=none)  # raises
    inherited = {}
    if network.weights is not None:
        network_options(space, getattr(space, "build", None) or NETWORKS.get(space.family), network)  # raises
        inherited = {"weights": network.weights}

    supernet_of: Callable[..., Supernet] = form or SUPERNETS.get(space.family)
    with nullcontext() if seed is None else restored_randomness(seed):  # weights are drawn on the CPU
        supernet = supernet_of(
            space,
            channels=network.channels,
            cells=network.cells,
            in_channels=in_channels,
            num_classes=num_classes,
            partial_channels=partial_channels,
            none=none,
            **inherited,
        )
        initialize(supernet, network.init)
    correct_average_pools(supernet)
    return supernet.to(memory_format=torch.channels_last).train()


def discretize(space: Space | str, weights: Mapping[str, Tensor | MixtureWeights]) -> str:
    """Returns the string of the architecture with the strongest weights (note G4); the first one wins a tie.

    Args:
        weights: group -> (edges, operations), probabilities.

    Raises: InvalidInput for a wrong shape; UnknownName if the space has no supernet.
    """
    space = get_space(space)
    rows = {name: (w.dense if isinstance(w, MixtureWeights) else w).detach().cpu() for name, w in weights.items()}
    return space.encode(SUPERNETS.get(space.family).discretize(space, rows))


@torch.no_grad()
def copy_weights(supernet: Supernet, architecture: Architecture | str, standalone: nn.Module) -> None:
    """Copies weights and statistics into `standalone`, the network of `architecture` in search form.

    Both networks then have equal outputs, the supernet with `supernet.path(architecture)`.

    Raises: InvalidArchitecture; InvalidInput with partial channels, or if `standalone` has another form or size.
    """
    if supernet.partial_channels > 1:
        raise InvalidInput(
            f"expected a supernet with partial_channels 1, got {supernet.partial_channels}: its operations have "
            "another width than the standalone network's modules"
        )
    choices = supernet.space.decode(architecture) if isinstance(architecture, str) else architecture
    try:
        standalone.load_state_dict(supernet.weights_of(choices, standalone.state_dict()))
    except RuntimeError as error:
        raise InvalidInput(f"expected a standalone network of the supernet's size: {error}") from error
