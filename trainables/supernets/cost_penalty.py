"""The expected cost of a supernet's mixture in its loss, at a weight or up to a target.

FBNet (Wu et al. 2019, Eq. 2 to 4) multiplies the loss by a power of the logarithm of the latency; ProxylessNAS (Cai et
al. 2019, Eq. 2 and 3) adds the expected latency at a weight, as is done here, in units of the uniform mixture's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from archray.trainables.costs.edges import EdgeCosts
from archray.trainables.supernets.cost_penalty_settings import CostPenaltySettings
from archray.trainables.supernets.mixings.mixing import Lesson, Mixture


class CostPenalty:
    """Adds weight * E[cost] / E_uniform[cost] to the architecture's loss; with a target the weight is adapted.

    After each step, with a target: weight <- max(0, weight + rate (E[cost] / target - 1)), dual ascent.

    Args:
        costs: of the supernet's groups. shapes: group -> (edges, operations).
    """

    def __init__(self, settings: CostPenaltySettings, costs: EdgeCosts, shapes: Mapping[str, tuple[int, int]]) -> None:
        self.settings, self.costs, self.weight = settings, costs, settings.weight
        uniform = {name: torch.full(shape, 1.0 / shape[1], dtype=torch.float64) for name, shape in shapes.items()}
        self.unit = float(costs.expected(uniform)) or 1.0

    def added(self, lesson: Lesson) -> Lesson:
        """The lesson with the penalty in its gradient and its loss."""

        def gradient(leaves: Mixture) -> tuple[Tensor, dict[str, Tensor]]:
            loss, gradients = lesson.gradient(leaves)
            dense = {name: weights.dense.detach() for name, weights in leaves.items()}
            expected = self.costs.expected(dense)
            scale = self.weight / self.unit
            for name, entries in self.costs.tensors(loss).items():
                gradients[name] = gradients[name] + scale * entries
            if self.settings.target is not None:
                missed = float(expected) / self.settings.target - 1.0
                self.weight = max(0.0, self.weight + self.settings.rate * missed)
            return loss + scale * expected, gradients

        return replace(lesson, gradient=gradient)

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.weight = float(state["weight"])
