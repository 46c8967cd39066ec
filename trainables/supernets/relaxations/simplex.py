"""The simplex mixture: the parameters are the weights themselves. GAEA, Li et al. 2021, section 3.3."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from archray.trainables.supernets.networks import MixtureWeights
from archray.trainables.supernets.optimizers.optimizer_settings import Domain
from archray.trainables.supernets.relaxations.relaxation import Relaxation
from archray.trainables.supernets.relaxations.relaxation_settings import RELAXATIONS, RelaxationSettings


class Simplex(Relaxation):
    """Every operation, weighted by its parameter. The optimizer keeps each edge's row on the simplex: `MirrorDescent`.

    The start is uniform (App. C.1.1).
    """

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        return MixtureWeights(parameters)


@RELAXATIONS.register("simplex")
class SimplexSettings(RelaxationSettings):
    """A mixture by the parameters themselves (GAEA)."""

    domains = ("simplex",)

    name: Literal["simplex"] = "simplex"

    def make(self, generator: torch.Generator, domain: Domain) -> Simplex:
        return Simplex(generator, domain)
