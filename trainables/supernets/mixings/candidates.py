"""Training on given architectures only: each step the path of one of them. Khodak et al. 2020, Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from archray.errors import InvalidInput
from archray.trainables.spaces import Architecture
from archray.trainables.supernets.mixings.drawn_paths import DrawnPaths
from archray.trainables.supernets.networks import Supernet


class CandidatePaths(DrawnPaths):
    """Draws candidates uniformly and independently, one for each step.

    Algorithm 1 draws one for each data point. Here a batch shares one, which a network can evaluate at once.

    Args:
        candidates: strings of the supernet's space.

    Raises: InvalidInput if there is none; InvalidArchitecture.
    """

    def __init__(self, supernet: Supernet, candidates: Sequence[str]) -> None:
        if not candidates:
            raise InvalidInput("expected at least one candidate, got none")
        super().__init__(supernet)
        self.candidates = tuple(candidates)
        self._architectures = [supernet.space.decode(each) for each in candidates]

    def drawn(self, generator: torch.Generator) -> Architecture:
        return self._architectures[int(torch.randint(len(self._architectures), (), generator=generator))]
