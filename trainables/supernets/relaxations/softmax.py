"""The softmax mixture. DARTS, Liu et al. 2019, Eq. 2."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from archray.trainables.supernets.networks import MixtureWeights
from archray.trainables.supernets.optimizers.optimizer_settings import Domain
from archray.trainables.supernets.relaxations.relaxation import Relaxation
from archray.trainables.supernets.relaxations.relaxation_settings import RELAXATIONS, RelaxationSettings


class Softmax(Relaxation):
    """Every operation, weighted by the softmax of its edge's logits."""

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        return MixtureWeights(self.probabilities(parameters))


@RELAXATIONS.register("softmax")
class SoftmaxSettings(RelaxationSettings):
    """A mixture by the softmax of logits (DARTS)."""

    domains = ("logits",)

    name: Literal["softmax"] = "softmax"

    def make(self, generator: torch.Generator, domain: Domain) -> Softmax:
        return Softmax(generator, domain)
