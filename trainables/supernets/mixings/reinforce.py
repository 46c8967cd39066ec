"""Architectures learned by reward: REINFORCE. ENAS, Pham et al. 2018, section 2.2; Williams 1992."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.spaces import Architecture
from archray.trainables.supernets.mixings.controller import Controller, Sampled
from archray.trainables.supernets.mixings.drawn_paths import DECISIONS, DrawnPaths, open_decisions
from archray.trainables.supernets.mixings.mixing import Lesson
from archray.trainables.supernets.networks import Supernet
from archray.trainables.supernets.search_settings import (
    ControllerSettings,
    ReinforceSettings,
    SupernetTrainingSettings,
    mismatch,
)

ENTROPY_SAMPLES = 100  # over which the entropy of a decision, given those before it, is averaged
ENTROPY_SEED = 0


class Reinforce:
    """The policy gradient of a controller, with a baseline and the entropy in the reward.

    1. reward <- reward + entropy weight x the entropies along the sample, which are not differentiated.
    2. theta <- Adam by -(reward - baseline) grad log p(sample).
    3. baseline <- decay baseline + (1 - decay) reward.

    As the authors' program, except that it starts the baseline from 0, which reinforces whatever is sampled first, and
    moves it before 2. Here the first reward is the first baseline.
    """

    def __init__(self, controller: Controller, settings: ReinforceSettings) -> None:
        self._settings = settings
        self.baseline: float | None = None
        self.optimizer = torch.optim.Adam(controller.parameters(), lr=settings.lr)

    def update(self, sampled: Sampled, rewards: Tensor) -> None:
        """One step by n samples of the controller and their rewards, (n,)."""
        rewards = rewards + self._settings.entropy * sampled.entropies.sum(1)
        mean = float(rewards.mean())
        baseline = mean if self.baseline is None else self.baseline
        loss = -((rewards - baseline) * sampled.log_probabilities).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        decay = self._settings.baseline_decay
        self.baseline = decay * baseline + (1.0 - decay) * mean

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "baseline": self.baseline}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.baseline = state["baseline"]


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

    Raises: InvalidInput if channels are partial.
    """

    learns = True

    def __init__(
        self, supernet: Supernet, controller: ControllerSettings, optimizer: ReinforceSettings, *, seed: int
    ) -> None:
        wrong = mismatch(controller, optimizer, supernet.partial_channels)
        if wrong is not None:
            raise InvalidInput(wrong)
        super().__init__(supernet)
        self._settings, self._optimizer = controller, optimizer
        self._open = open_decisions(supernet.space, supernet.groups)
        self.controller = Controller(
            tuple(self._open.values()),
            units=controller.units,
            temperature=controller.temperature,
            tanh_constant=controller.tanh_constant,
            seed=seed,
        )
        self.reinforce = Reinforce(self.controller, optimizer)

    def prepare(self, training: SupernetTrainingSettings, points: int) -> None:
        """Raises: InvalidInput if the objective is second order."""
        wrong = mismatch(self._settings, self._optimizer, 1, training.objective)
        if wrong is not None:
            raise InvalidInput(wrong)

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
        found = []
        for row in sampled.choices.tolist():
            choices = [decision.choices[0] for decision in self._supernet.space.decisions]
            for (at, decision), chosen in zip(self._open.items(), row, strict=True):
                choices[at] = decision.choices[chosen]
            found.append(tuple(choices))
        return found

    @torch.no_grad()
    def derive(self, accuracies: Callable[[Sequence[str]], list[float]], seed: int) -> str:
        sampled = self.controller(self._settings.samples, torch.Generator().manual_seed(seed))
        encode = self._supernet.space.encode
        strings = list(dict.fromkeys(encode(each) for each in self.architectures(sampled)))
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
