"""The simplex mixture: the parameters are the weights themselves. GAEA, Li et al. 2021, section 3.3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from archray.trainables.supernets.optimizer_settings import Domain
from archray.trainables.supernets.relaxation_settings import RELAXATIONS, RelaxationSettings

if TYPE_CHECKING:
    import torch

    from archray.trainables.supernets.mixings.relaxation import WholeMixture


@RELAXATIONS.register("simplex")
class SimplexSettings(RelaxationSettings):
    """A mixture by the parameters themselves (GAEA). The optimizer keeps each edge's row on the simplex."""

    domains = ("simplex",)

    name: Literal["simplex"] = "simplex"

    def make(self, generator: torch.Generator, domain: Domain) -> WholeMixture:
        from archray.trainables.supernets.mixings.relaxation import WholeMixture

        return WholeMixture(generator, domain)
