"""The simplex mixture: the parameters are the weights themselves. GAEA, Li et al. 2021, section 3.3."""

from __future__ import annotations

import torch
from torch import Tensor

from archray.trainables.supernets.relaxations.relaxation import Relaxation
from archray.trainables.supernets.relaxations.weights import MixtureWeights


class Simplex(Relaxation):
    """Every operation, weighted by its parameter. The optimizer keeps each edge's row on the simplex: `MirrorDescent`.

    The start is uniform (App. C.1.1).
    """

    name = "simplex"

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__(generator, "simplex")

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        return MixtureWeights(parameters)
