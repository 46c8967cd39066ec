"""Architecture parameters: a tensor per group, the relaxation that they are seen through, and their optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from archray.errors import InvalidInput
from archray.trainables.supernets.mixings.mixing import Lesson, Mixing, Mixture
from archray.trainables.supernets.networks import Group, Supernet, discretise
from archray.trainables.supernets.optimizers import MirrorDescent
from archray.trainables.supernets.relaxations import (
    Gumbel,
    MixtureWeights,
    Path,
    Relaxation,
    Simplex,
    Softmax,
    TemperatureSchedule,
    entropy,
)
from archray.trainables.supernets.relaxations.relaxation import Domain
from archray.trainables.supernets.search_settings import (
    AdamSettings,
    GumbelSettings,
    MirrorDescentSettings,
    NoOptimizerSettings,
    OptimizerSettings,
    PathSettings,
    RelaxationSettings,
    SimplexSettings,
    domain_of,
    mismatch,
)
from archray.trainables.supernets.unrolled import as_leaves


class ArchitectureParameters(Mixing):
    """The parameters of all groups of a supernet, learned by the gradient of the mixture.

    Args:
        supernet: whose groups they are; it is not changed.
        relaxation, optimizer: what parameters are and how they are updated.
        seed: of the initial parameters.
        device: of the parameters. Random relaxations draw on the CPU, the same for every device.

    Raises: InvalidInput if relaxation, optimizer and partial channels do not go together.
    """

    def __init__(
        self,
        supernet: Supernet,
        relaxation: RelaxationSettings,
        optimizer: OptimizerSettings,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        wrong = mismatch(relaxation, optimizer, supernet.partial_channels)
        if wrong is not None:
            raise InvalidInput(wrong)
        self.space, self.groups = supernet.space, supernet.groups
        self._settings, self._domain = relaxation, domain_of(optimizer)
        self.relaxation = make_relaxation(relaxation, self._domain, seed)
        self.parameters: dict[str, Tensor] = {
            group.name: self.relaxation.initial(*group.shape, device=device) for group in self.groups
        }
        self.optimizer = make_optimizer(optimizer, list(self.parameters.values()))
        self.learns = self.optimizer is not None
        for parameter in self.parameters.values():
            parameter.requires_grad_(self.learns)

    def reseed(self, seed: int) -> None:
        self.relaxation.generator.manual_seed(seed)

    def draw(self, progress: float) -> dict[str, MixtureWeights]:
        return self.relaxation.weights(self.parameters, progress)

    def evaluation(self, progress: float, seed: int) -> Callable[[], Mixture]:
        """Mixtures of the parameters as they are; where the relaxation draws, a new draw each time."""
        relaxation = make_relaxation(self._settings, self._domain, seed)

        @torch.no_grad()
        def draw() -> Mixture:
            return relaxation.weights(self.parameters, progress)

        return draw

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        drawn = self.draw(progress)
        loss, gradients = lesson.gradient(as_leaves(drawn))
        self.update(drawn, gradients)
        return loss

    def update(self, drawn: Mixture, gradients: Mapping[str, Tensor]) -> None:
        """One step by the gradients of a loss for the dense weights in `drawn`, a mixture of `draw`.

        Raises: FloatingPointError if the optimizer refuses a gradient that is NaN.
        """
        assert self.optimizer is not None  # else it does not learn
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward([drawn[name].dense for name in gradients], list(gradients.values()))
        self.optimizer.step()

    @torch.no_grad()
    def probabilities(self) -> dict[str, Tensor]:
        """group -> (edges, operations), rows that sum to one."""
        return {name: self.relaxation.probabilities(each.detach()) for name, each in self.parameters.items()}

    def entropies(self) -> dict[str, list[float]]:
        """group -> the entropy of each of its rows, in nats."""
        return {name: entropy(each).tolist() for name, each in self.probabilities().items()}

    def discretised(self) -> str:
        """The architecture of the strongest operations (note G4)."""
        return discretise(self.space, self.probabilities())

    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str | None:
        """`discretised`; None for uniform paths, which learn nothing."""
        return None if isinstance(self._settings, PathSettings) else self.discretised()

    def state_dict(self) -> dict[str, Any]:
        return {
            "parameters": {name: each.detach() for name, each in self.parameters.items()},
            "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
            "relaxation": self.relaxation.state_dict(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, parameter in self.parameters.items():
            parameter.copy_(state["parameters"][name])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        self.relaxation.load_state_dict(state["relaxation"])


def chooses_inputs(group: Group) -> bool:
    """Whether the columns of a group are nodes, not operations."""
    return all(name.isdigit() for name in group.operations)


def make_relaxation(settings: RelaxationSettings, domain: Domain, seed: int) -> Relaxation:
    """domain: of the parameters, where the relaxation takes both."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(settings, GumbelSettings):
        schedule = TemperatureSchedule(settings.start, settings.end, settings.form)
        return Gumbel(generator, domain, schedule, settings.hard)
    if isinstance(settings, PathSettings):
        return Path(generator, settings.fair)
    return Simplex(generator) if isinstance(settings, SimplexSettings) else Softmax(generator)


def make_optimizer(settings: OptimizerSettings, parameters: list[Tensor]) -> Optimizer | None:
    """Raises: InvalidInput for an optimizer that needs more than a gradient."""
    if isinstance(settings, AdamSettings):
        return torch.optim.Adam(parameters, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay)
    if isinstance(settings, MirrorDescentSettings):
        return MirrorDescent(
            parameters,
            lr=settings.lr,
            dgf=settings.dgf,
            floor=settings.actual_floor,
            log_space=settings.log_space,
        )
    if isinstance(settings, NoOptimizerSettings):
        return None
    raise InvalidInput(f"{settings.name} does not learn from the gradient of a mixture; see `build_mixing`")
