"""Mixings whose every step is the path of one drawn architecture: a candidate, or any of the space."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch

from archray.errors import InvalidInput
from archray.trainables.spaces import Architecture, Decision, Space
from archray.trainables.supernets.mixings.mixing import Mixing, Mixture
from archray.trainables.supernets.networks import Group, Supernet
from archray.trainables.supernets.networks.group import possible_choices

DECISIONS = "decisions"  # the group of the entropies


class OpenDecisions:
    """The decisions of a space that leave two choices or more to a supernet of these groups.

    Attributes:
        decisions: in the space's order, with the choices that are possible.
    """

    def __init__(self, space: Space, groups: Sequence[Group]) -> None:
        possible = [Decision(decision.name, possible_choices(decision, groups)) for decision in space.decisions]
        self._first = [decision.choices[0] for decision in space.decisions]
        self._places = [place for place, decision in enumerate(possible) if len(decision.choices) > 1]
        self.decisions = tuple(possible[place] for place in self._places)

    def architecture(self, numbers: Sequence[int]) -> Architecture:
        """numbers: for each of the decisions that of the choice."""
        choices = self._first.copy()
        for place, decision, number in zip(self._places, self.decisions, numbers, strict=True):
            choices[place] = decision.choices[number]
        return tuple(choices)


class DrawnPaths(Mixing):
    """Each step's mixture is the path of an architecture of its own. A subclass says how one is drawn."""

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
        return torch.no_grad()(lambda: self._supernet.path(self.drawn(generator)))


class CandidatePaths(DrawnPaths):
    """Draws candidates uniformly and independently, one for each step. Khodak et al. 2020, Algorithm 1.

    Algorithm 1 draws one for each data point. Here a batch shares one, which a network can evaluate at once.
    Raises: InvalidInput if there is no candidate; InvalidArchitecture.
    """

    def __init__(self, supernet: Supernet, candidates: Sequence[str]) -> None:
        if not candidates:
            raise InvalidInput("expected at least one candidate, got none")
        super().__init__(supernet)
        self._architectures = [supernet.space.decode(candidate) for candidate in candidates]

    def drawn(self, generator: torch.Generator) -> Architecture:
        return self._architectures[int(torch.randint(len(self._architectures), (), generator=generator))]


class UniformArchitectures(DrawnPaths):
    """Each step trains the path of one uniformly drawn architecture of the space. Shu 2022 (thesis), 5.2.1, App. B.1.

    In DARTS a path has two inputs for each node, so an edge into node t is drawn in a share of 2 / t of the steps. With
    partial channels an edge weighs 1 where the path takes it, and 0 elsewhere: the edge weights of PC-DARTS compare
    mixed inputs, and a path has nothing to compare. The thesis is silent on them. Shared weights are scored so too.
    `none` is drawn only if the supernet's groups have it.
    """

    def __init__(self, supernet: Supernet) -> None:
        super().__init__(supernet)
        self._open = OpenDecisions(supernet.space, supernet.groups)

    def drawn(self, generator: torch.Generator) -> Architecture:
        sizes = [len(decision.choices) for decision in self._open.decisions]
        return self._open.architecture([int(torch.randint(size, (), generator=generator)) for size in sizes])

    def entropies(self) -> dict[str, list[float]]:
        return {DECISIONS: [math.log(len(decision.choices)) for decision in self._open.decisions]}
