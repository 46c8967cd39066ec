"""Training on given architectures only: each step the path of one of them. Khodak et al. 2020, Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from archray.errors import InvalidInput
from archray.trainables.nets.supernet import Supernet
from archray.trainables.supernet_training.mixing import Mixing, Mixture


class CandidatePaths(Mixing):
    """Draws candidates uniformly and independently, one for each step.

    Algorithm 1 draws one for each data point. Here a batch shares one, which a network can evaluate at once.

    Args:
        candidates: strings of the supernet's space.

    Raises: InvalidInput if there is none; InvalidArchitecture.
    """

    def __init__(self, supernet: Supernet, candidates: Sequence[str]) -> None:
        if not candidates:
            raise InvalidInput("expected at least one candidate, got none")
        self.candidates = tuple(candidates)
        self._supernet = supernet
        self._architectures = [supernet.space.decode(each) for each in candidates]
        self._generator = torch.Generator()

    def reseed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def draw(self, progress: float) -> Mixture:
        return self._path(self._generator)

    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        generator = torch.Generator().manual_seed(seed)
        return lambda: self._path(generator)

    def _path(self, generator: torch.Generator) -> Mixture:
        number = int(torch.randint(len(self._architectures), (), generator=generator))
        return self._supernet.path(self._architectures[number])
