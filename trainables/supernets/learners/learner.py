"""How the parameters of a relaxation learn from the batches of a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from archray.trainables.supernets.mixings.mixing import Lesson, Mixture, as_leaves
from archray.trainables.supernets.supernet_training_settings import SupernetTrainingSettings


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
