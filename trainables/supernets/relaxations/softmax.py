"""The softmax mixture. DARTS, Liu et al. 2019, Eq. 2."""

from __future__ import annotations

import torch
from torch import Tensor

from archray.trainables.supernets.relaxations.relaxation import Relaxation
from archray.trainables.supernets.relaxations.weights import MixtureWeights


class Softmax(Relaxation):
    """Every operation, weighted by the softmax of its edge's logits."""

    name = "softmax"

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__(generator, "logits")

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        return MixtureWeights(self.probabilities(parameters))
