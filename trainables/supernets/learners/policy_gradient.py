"""A policy learned by reward: REINFORCE. ENAS, Pham et al. 2018, section 3.2; Williams 1992."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:  # its settings, which make what is here
    from archray.trainables.supernets.optimizers.reinforce import ReinforceSettings


class Sampled(NamedTuple):
    """n samples of D decisions."""

    choices: Tensor  # (n, D) int64, the number of each choice
    log_probabilities: Tensor  # (n,), of the samples as wholes, differentiable
    entropies: Tensor  # (n, D) in nats, of each decision given the ones before it, without gradient


class Reinforce:
    """The policy gradient, with a baseline and the entropy in the reward.

    1. reward <- reward + entropy weight x the entropies along the sample, which are not differentiated.
    2. theta <- Adam by -(reward - baseline) grad log p(sample).
    3. baseline <- decay baseline + (1 - decay) reward.

    As the authors' program, except that it starts the baseline from 0, which reinforces whatever is sampled first, and
    moves it before 2. Here the first reward is the first baseline.
    """

    def __init__(self, parameters: Iterable[Tensor], settings: ReinforceSettings) -> None:
        self._settings = settings
        self.baseline: float | None = None
        self.optimizer = torch.optim.Adam(parameters, lr=settings.lr)

    def update(self, sampled: Sampled, rewards: Tensor) -> None:
        """One step by n samples of the policy and their rewards, (n,)."""
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
