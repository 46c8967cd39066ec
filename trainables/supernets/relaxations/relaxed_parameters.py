"""Architecture parameters: a tensor per group, the relaxation that they are seen through, and what learns them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from archray.trainables.supernets.mixings.mixing import Lesson, Mixing, Mixture
from archray.trainables.supernets.networks import MixtureWeights, Supernet, discretise
from archray.trainables.supernets.optimizers import OptimizerSettings
from archray.trainables.supernets.relaxations.relaxation import Relaxation, entropy
from archray.trainables.supernets.supernet_training_settings import SupernetTrainingSettings


class ArchitectureParameters(Mixing):
    """The parameters of all groups of a supernet, and the mixture that a relaxation makes of them.

    Args:
        supernet: whose groups they are; it is not changed.
        relaxation: makes the relaxation that draws from a generator.
        optimizer: how the parameters learn.
        seed: of the initial parameters.
        device: of the parameters. Random relaxations draw on the CPU, the same for every device.
    """

    def __init__(
        self,
        supernet: Supernet,
        relaxation: Callable[[torch.Generator], Relaxation],
        optimizer: OptimizerSettings,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.space, self.groups = supernet.space, supernet.groups
        self._make, self._optimizer = relaxation, optimizer
        self.relaxation = relaxation(torch.Generator().manual_seed(seed))
        self.parameters: dict[str, Tensor] = {
            group.name: self.relaxation.initial(*group.shape, device=device) for group in self.groups
        }
        self.learner = optimizer.learner(self.parameters)
        self.learns = self.learner is not None
        for parameter in self.parameters.values():
            parameter.requires_grad_(self.learns)

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        self._optimizer.check_objective(training.objective)
        if self.learner is not None:
            self.learner.prepare(training, points)

    def reseed(self, seed: int) -> None:
        self.relaxation.generator.manual_seed(seed)

    def draw(self, progress: float) -> dict[str, MixtureWeights]:
        return self.relaxation.weights(self.parameters, progress)

    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        """Mixtures of the parameters as they are; where the relaxation draws, a new draw each time."""
        relaxation = self._make(torch.Generator().manual_seed(seed))

        @torch.no_grad()
        def draw() -> Mixture:
            return relaxation.weights(self.parameters, progress)

        return draw

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        assert self.learner is not None  # else it does not learn
        return self.learner.learn(lambda: self.draw(progress), lesson)

    @torch.no_grad()
    def probabilities(self) -> dict[str, Tensor]:
        """group -> (edges, operations), rows that sum to one."""
        return {name: self.relaxation.probabilities(rows.detach()) for name, rows in self.parameters.items()}

    def entropies(self) -> dict[str, list[float]]:
        """group -> the entropy of each of its rows, in nats."""
        return {name: entropy(rows).tolist() for name, rows in self.probabilities().items()}

    def discretised(self) -> str:
        """The architecture of the strongest operations (note G4)."""
        probabilities = self.probabilities()
        return discretise(self.space, self.learner.compared(probabilities) if self.learner else probabilities)

    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str | None:
        """`discretised`; None if the relaxation does not look at the parameters, so that nothing is learned."""
        return self.discretised() if self.relaxation.reads_parameters else None

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": {name: rows.detach() for name, rows in self.parameters.items()},
            "optimizer": None if self.learner is None else self.learner.state_dict(),
            "relaxation": self.relaxation.state_dict(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(state["parameters"][name])
        if self.learner is not None:
            self.learner.load_state_dict(state["optimizer"])
        self.relaxation.load_state_dict(state["relaxation"])
