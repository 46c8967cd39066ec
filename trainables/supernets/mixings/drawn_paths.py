"""Mixings whose every step is the path of one drawn architecture, and the decisions that such a draw makes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch

from archray.trainables.spaces import Architecture, Decision, Space
from archray.trainables.supernets.mixings.mixing import Mixing, Mixture
from archray.trainables.supernets.networks import Group, Supernet
from archray.trainables.supernets.networks.group import NONE

DECISIONS = "decisions"  # the group of the entropies


def open_decisions(space: Space, groups: Sequence[Group]) -> dict[int, Decision]:
    """The decisions with two choices or more, by their place in the space; `none` is one only if a group has it."""
    none = any(NONE in group.operations for group in groups)
    kept = {
        at: tuple(choice for choice in decision.choices if none or choice != NONE)
        for at, decision in enumerate(space.decisions)
    }
    return {at: Decision(space.decisions[at].name, choices) for at, choices in kept.items() if len(choices) > 1}


class DrawnPaths(Mixing):
    """Each step's mixture is the path of an architecture of its own. A subclass says how one is drawn.

    Args:
        supernet: whose paths they are; it is not changed.
    """

    def __init__(self, supernet: Supernet) -> None:
        self._supernet = supernet
        self._generator = torch.Generator()

    @abstractmethod
    def drawn(self, generator: torch.Generator) -> Architecture:
        """An architecture of the supernet's space."""

    def reseed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    @torch.no_grad()
    def draw(self, progress: float) -> Mixture:
        return self._supernet.path(self.drawn(self._generator))

    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        generator = torch.Generator().manual_seed(seed)

        @torch.no_grad()
        def draw() -> Mixture:
            return self._supernet.path(self.drawn(generator))

        return draw
