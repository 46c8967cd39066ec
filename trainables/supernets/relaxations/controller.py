"""Architectures sampled from a controller that learns by reward. ENAS, Pham et al. 2018, section 2.2."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.spaces import Architecture, Space
from archray.trainables.supernets.mixings.drawn_paths import DECISIONS, DrawnPaths, OpenDecisions
from archray.trainables.supernets.mixings.mixing import Lesson
from archray.trainables.supernets.networks import Group, Supernet
from archray.trainables.supernets.optimizers import OptimizerSettings
from archray.trainables.supernets.optimizers.reinforce import Reinforce, ReinforceSettings, Sampled
from archray.trainables.supernets.relaxations.lstm_policy import Controller
from archray.trainables.supernets.relaxations.relaxation_settings import RELAXATIONS, RelaxationSettings
from archray.trainables.supernets.supernet_training_settings import SupernetTrainingSettings

ENTROPY_SAMPLES = 100  # over which the entropy of a decision, given those before it, is averaged
ENTROPY_SEED = 0


@RELAXATIONS.register("controller")
class ControllerSettings(RelaxationSettings):
    """Whole architectures from an LSTM's policy. ENAS, Pham et al. 2018, section 2; needs the optimizer `reinforce`.

    Defaults are those of the paper's search on CIFAR-10. Its program for the cell search has tanh_constant 1.1, a
    further 2.5 times less for operations, and no temperature.

    Attributes:
        units: of the one layer, and of its embeddings.
        temperature, tanh_constant: logits are tanh_constant tanh(logits / temperature); None leaves either step out.
        samples: drawn to derive the architecture, the best of which by accuracy with shared weights is taken. Each is
            evaluated on the validation data after every epoch.
    """

    name: Literal["controller"] = "controller"
    units: int = Field(100, ge=1)
    temperature: float | None = Field(5.0, gt=0)
    tanh_constant: float | None = Field(2.5, gt=0)
    samples: int = Field(10, ge=1)

    @property
    def draws_one(self) -> bool:
        return True

    def mixing(
        self, supernet: Supernet, optimizer: OptimizerSettings, *, seed: int, device: torch.device | str = "cpu"
    ) -> ReinforcedController:
        assert isinstance(optimizer, ReinforceSettings)  # `check_optimizer` refuses others
        return ReinforcedController(supernet, self, optimizer, seed=seed)

    def entropy_rows(self, space: Space, groups: Sequence[Group]) -> dict[str, int]:
        return {DECISIONS: len(OpenDecisions(space, groups).decisions)}

    def check_optimizer(self, optimizer: OptimizerSettings) -> None:
        if not isinstance(optimizer, ReinforceSettings):
            raise InvalidInput(
                f"the relaxation controller and the optimizer reinforce need each other; got controller and "
                f"{optimizer.name}"
            )


class ReinforcedController(DrawnPaths):
    """Each step's mixture is the path of one architecture, sampled from a controller that learns by reward.

    - The weights' steps train the path of a new sample each.
    - `learn`: the reward of a sample is its accuracy on the batch, by a forward pass alone. Networks are in training
      mode, as in the authors' program: normalisation is by the batch's statistics.
    - `derive`: of some samples the one of the best accuracy with shared weights, the first of equals. The paper scores
      them on one minibatch; here on all validation data, so that this accuracy is the best of several and no unbiased
      estimate.
    - `entropies`: of each decision given the ones before it, the mean over 100 samples.

    The controller lies on the CPU, whatever the supernet's device: one sample is too little work for another.

    Args:
        supernet: whose paths they are; it is not changed. `none` is no choice if its groups do not have it.
        seed: of the controller's initial weights.
    """

    learns = True

    def __init__(
        self, supernet: Supernet, controller: ControllerSettings, optimizer: ReinforceSettings, *, seed: int
    ) -> None:
        super().__init__(supernet)
        self._samples, self._optimizer = controller.samples, optimizer
        self._open = OpenDecisions(supernet.space, supernet.groups)
        self.controller = Controller(
            self._open.decisions,
            units=controller.units,
            temperature=controller.temperature,
            tanh_constant=controller.tanh_constant,
            seed=seed,
        )
        self.reinforce = Reinforce(self.controller.parameters(), optimizer)

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        self._optimizer.check_objective(training.objective)

    def drawn(self, generator: torch.Generator) -> Architecture:
        """By the present policy."""
        [architecture] = self.architectures(self.controller(1, generator))
        return architecture

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        sampled = self.controller(1, self._generator)
        [architecture] = self.architectures(sampled)
        with torch.no_grad():
            losses, correct = lesson.outcome(self._supernet.path(architecture))
        self.reinforce.update(sampled, correct.float().mean(0, keepdim=True).cpu())
        return losses.mean()

    def architectures(self, sampled: Sampled) -> list[Architecture]:
        """The samples in the space's own terms."""
        return [self._open.architecture(numbers) for numbers in sampled.choices.tolist()]

    @torch.no_grad()
    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str:
        sampled = self.controller(self._samples, torch.Generator().manual_seed(seed))
        encode = self._supernet.space.encode
        strings = list(dict.fromkeys(encode(architecture) for architecture in self.architectures(sampled)))
        return strings[int(np.argmax(accuracies(strings)))]

    @torch.no_grad()
    def entropies(self) -> dict[str, list[float]]:
        sampled = self.controller(ENTROPY_SAMPLES, torch.Generator().manual_seed(ENTROPY_SEED))
        return {DECISIONS: sampled.entropies.mean(0).tolist()}

    def state_dict(self) -> dict[str, Any]:
        return {"controller": self.controller.state_dict(), "reinforce": self.reinforce.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.controller.load_state_dict(state["controller"])
        self.reinforce.load_state_dict(state["reinforce"])
