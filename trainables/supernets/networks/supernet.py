"""Supernets: all architectures of a space in one network with shared weights. Thesis 2.1; Liu et al. 2019, section 2.2.

A supernet holds weights, no architecture parameters: the weights of the mixture come in with each forward pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from archray.registry import Registry
from archray.trainables.spaces import Architecture, Space
from archray.trainables.supernets.networks.group import Group, Rows, Weights, rows_of
from archray.trainables.supernets.networks.mixture_weights import MixtureWeights


class Supernet(nn.Module, ABC):
    """The base of all supernets. A subclass makes its modules under the names of its standalone search form.

    Args:
        space: whose architectures it holds.
        groups: the architecture parameters it takes.
        partial_channels: K, see `mixed_cell`.
    """

    loose_ends: ClassVar[bool] = (
        False  # whether an architecture may have operations that nothing reads: not in its path
    )

    def __init__(self, space: Space, groups: Sequence[Group], partial_channels: int = 1) -> None:
        super().__init__()
        self.space, self.groups, self.partial_channels = space, tuple(groups), partial_channels

    def forward(self, images: Tensor, weights: Weights) -> Tensor:
        """Logits (n, num_classes).

        Args:
            images: (n, in_channels, H, W).
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
        """The groups of the supernet of `space`; see `build_supernet.groups`."""

    @classmethod
    @abstractmethod
    def discretise(cls, space: Space, rows: Mapping[str, Tensor]) -> Architecture:
        """The architecture of the strongest operations (note G4). rows: group -> (edges, operations)."""


SUPERNETS: Registry[type[Supernet]] = Registry("supernet")  # by the name of the space
