"""What every architecture optimizer says of itself, and how it learns from the batches of a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from archray.errors import InvalidInput
from archray.registry import Registry
from archray.settings import RegisteredSettings
from archray.trainables.supernets.mixing import Lesson, Mixture, as_leaves
from archray.trainables.supernets.supernet_training_settings import SECOND_ORDER, SupernetTrainingSettings

Domain = Literal["logits", "simplex"]  # what parameters are: unconstrained, or the probabilities themselves

OPTIMIZERS: Registry[type[OptimizerSettings]] = Registry("architecture optimizer")


class OptimizerSettings(RegisteredSettings):
    """The settings of an architecture optimizer, which make it. A subclass registers itself, by its `name`.

    One that needs no more than the gradient of the parameters says `domain` and `make`. Another one says `learner`.
    """

    registry = OPTIMIZERS
    domain: ClassVar[Domain | None]  # what it keeps parameters on; None if it changes none, or not those of a mixture
    looks_ahead: ClassVar[bool] = True  # whether it takes the gradient one step of the weights ahead

    def make(self, parameters: list[Tensor]) -> Optimizer:
        """The optimizer of parameters that are in its domain, rows (last dimension) on the simplex or any logits."""
        raise NotImplementedError(f"the architecture optimizer {self.name} does not learn from a gradient")

    def learner(self, parameters: Mapping[str, Tensor]) -> Learner | None:
        """What learns the parameters of each group; None if nothing does."""
        return GradientLearner(self.make(list(parameters.values())))

    def check_relaxation(self, relaxation: str) -> None:
        """Raises: InvalidInput if it is for other relaxations than the one of this name."""

    def check_objective(self, objective: str) -> None:
        """Raises: InvalidInput if it cannot learn by this objective of `SupernetTrainingSettings`."""
        if objective == SECOND_ORDER and not self.looks_ahead:
            raise InvalidInput(
                f"{self.name} does not look one step ahead; choose the objective bilevel or erm, not {objective}"
            )


class Learner(ABC):
    """Learns the parameters of a relaxation, which it was made for, one batch after the other."""

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:  # noqa: B027, few need it
        """As `Mixing.prepare`."""

    @abstractmethod
    def learn(self, draw: Callable[[], Mixture], lesson: Lesson) -> Tensor:
        """One update; the loss before it, detached. draw: a mixture of the parameters, differentiable.

        Raises: FloatingPointError if a gradient is NaN and the optimizer refuses it.
        """

    def compared(self, probabilities: dict[str, Tensor]) -> dict[str, Tensor]:
        """By what operations are compared when an architecture is derived: group -> (edges, operations)."""
        return probabilities

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain data only."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class GradientLearner(Learner):
    """Learns by the gradient of the objective for the mixture, sent back to the parameters."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def learn(self, draw: Callable[[], Mixture], lesson: Lesson) -> Tensor:
        drawn = draw()
        loss, gradients = lesson.gradient(as_leaves(drawn))
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward([drawn[name].dense for name in gradients], list(gradients.values()))
        self.optimizer.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state_dict(dict(state))
