"""Supernets: all architectures of a space in one network with shared weights. Thesis 2.1; Liu et al. 2019, section 2.2.

A supernet holds weights, no architecture parameters: the weights of the mixture come in with each forward pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import ClassVar

import torch
from torch import Tensor, nn

from archray.errors import InvalidInput
from archray.trainables.devices import own_randomness
from archray.trainables.nets.build_network import initialise
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import Architecture, Space, get_space
from archray.trainables.supernets.networks.group import Group, MixtureWeights, Rows, Weights, rows_of
from archray.trainables.supernets.supernet_registry import SUPERNETS


class Supernet(nn.Module, ABC):
    """The base of all supernets. A subclass makes its modules under the names of its standalone search form.

    groups: the architecture parameters it takes. partial_channels: K, see `mixed_cell`.
    """

    loose_ends: ClassVar[bool] = False  # whether architectures may have operations that nothing reads: not in a path

    def __init__(self, space: Space, groups: Sequence[Group], partial_channels: int = 1) -> None:
        super().__init__()
        self.space, self.groups, self.partial_channels = space, tuple(groups), partial_channels

    def forward(self, images: Tensor, weights: Weights) -> Tensor:
        """Images (n, in_channels, H, W) -> logits (n, num_classes).

        Args:
            weights: for each group (edges, operations). Given as `MixtureWeights` with `chosen`, only the chosen
                operation of an edge is evaluated, times its weight.

        On a CPU the pass can be differentiated once. Raises: InvalidInput if weights do not fit the groups.
        """
        return self.logits(images.contiguous(memory_format=torch.channels_last), rows_of(self.groups, weights))

    @abstractmethod
    def logits(self, images: Tensor, rows: Mapping[str, Rows]) -> Tensor:
        """As `forward`, with the weights checked and the images in channels-last layout."""

    @abstractmethod
    def path(self, architecture: Architecture) -> dict[str, MixtureWeights]:
        """The weights that force `architecture`: nothing but its operations is evaluated."""

    @abstractmethod
    def modules_of(self, architecture: Architecture) -> dict[str, str]:
        """The operations of `architecture`: prefix of names in its standalone network -> prefix in the supernet."""

    @classmethod
    @abstractmethod
    def groups_of(cls, space: Space, *, partial_channels: int, none: bool) -> tuple[Group, ...]:
        """The groups of the supernet of `space`; see `groups`."""

    @classmethod
    @abstractmethod
    def discretise(cls, space: Space, rows: Mapping[str, Tensor]) -> Architecture:
        """The architecture of the strongest operations (note G4). rows: group -> (edges, operations)."""


def groups(space: Space | str, *, partial_channels: int = 1, none: bool = True) -> tuple[Group, ...]:
    """The architecture parameters of a space's supernet.

    Args:
        partial_channels: K of PC-DARTS. Above 1 there are groups of edge weights too.
        none: whether the operation `none` has a column, where the space has it.

    Raises: UnknownName if the space has no supernet; InvalidInput if it has no partial channels.
    """
    space = get_space(space)
    if partial_channels < 1:
        raise InvalidInput(f"expected partial_channels to be at least 1, got {partial_channels}")
    return SUPERNETS.get(space.name).groups_of(space, partial_channels=partial_channels, none=none)


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
    """The supernet of a space, in train mode, on the CPU, in channels-last layout.

    Args:
        network: width, depth and initialisation. The normalisation is that of the search form (note G3); stem and
            auxiliary tower are for standalone networks.
        seed: of the initial weights; torch's global generator is left as it was. None draws from that generator.
        partial_channels, none: as `groups`.
        form: another class than the one registered for the space.

    Raises: UnknownName if the space has no supernet; InvalidInput if `network` has another normalisation than
    `auto`, another stem than `cifar` or an auxiliary tower, or if `partial_channels` does not divide the cells'
    channels.
    """
    space = get_space(space)
    if network.normalisation != "auto":
        raise InvalidInput(
            f"expected normalisation auto, as a supernet is always in search form, got {network.normalisation}"
        )
    if network.stem != "cifar" or network.auxiliary:
        raise InvalidInput(
            f"expected the stem cifar and no auxiliary tower, as a supernet has no other form, got stem "
            f"{network.stem} and auxiliary {network.auxiliary}; set them for the standalone networks alone"
        )
    groups(space, partial_channels=partial_channels, none=none)  # raises

    supernet_of: Callable[..., Supernet] = form or SUPERNETS.get(space.name)
    with nullcontext() if seed is None else own_randomness(seed):  # weights are drawn on the CPU
        supernet = supernet_of(
            space,
            channels=network.channels,
            cells=network.cells,
            in_channels=in_channels,
            num_classes=num_classes,
            partial_channels=partial_channels,
            none=none,
        )
        initialise(supernet, network.init)
    return supernet.to(memory_format=torch.channels_last).train()


def discretise(space: Space | str, weights: Mapping[str, Tensor | MixtureWeights]) -> str:
    """The string of the architecture of the strongest weights (note G4); the first one wins a draw.

    weights: for each group (edges, operations), the relaxation's probabilities. Raises: InvalidInput if their shape is
    another; UnknownName if the space has no supernet.
    """
    space = get_space(space)
    rows = {name: (w.dense if isinstance(w, MixtureWeights) else w).detach().cpu() for name, w in weights.items()}
    return space.encode(SUPERNETS.get(space.name).discretise(space, rows))


@torch.no_grad()
def copy_weights(supernet: Supernet, architecture: Architecture | str, standalone: nn.Module) -> None:
    """Gives `standalone`, the network of `architecture` in search form, its weights and statistics in the supernet.

    After this both give the same outputs, the supernet under the weights `supernet.path(architecture)`.

    Raises: InvalidArchitecture; InvalidInput if channels are partial, or `standalone` is of another form or size.
    """
    if supernet.partial_channels > 1:
        raise InvalidInput(
            f"expected a supernet of whole channels, got partial_channels {supernet.partial_channels}: its operations "
            "have another width than the standalone network's"
        )
    choices = supernet.space.decode(architecture) if isinstance(architecture, str) else architecture
    places = supernet.modules_of(choices)
    shared = supernet.state_dict()
    copied = {}
    for name in standalone.state_dict():
        prefix = next((prefix for prefix in places if name.startswith(prefix)), "")
        source = places.get(prefix, "") + name.removeprefix(prefix)
        if source not in shared:
            raise InvalidInput(
                f"the supernet has no {source} for the standalone network's {name}; build its search form"
            )
        copied[name] = shared[source]
    try:
        standalone.load_state_dict(copied)
    except RuntimeError as error:
        raise InvalidInput(f"expected a standalone network of the supernet's size: {error}") from error
