"""The softmax mixture. DARTS, Liu et al. 2019, Eq. 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from archray.trainables.supernets.optimizer_settings import Domain
from archray.trainables.supernets.relaxation_settings import RELAXATIONS, RelaxationSettings

if TYPE_CHECKING:
    import torch

    from archray.trainables.supernets.mixings.relaxation import WholeMixture


@RELAXATIONS.register("softmax")
class SoftmaxSettings(RelaxationSettings):
    """A mixture by the softmax of logits (DARTS)."""

    domains = ("logits",)

    name: Literal["softmax"] = "softmax"

    def make(self, generator: torch.Generator, domain: Domain) -> WholeMixture:
        from archray.trainables.supernets.mixings.relaxation import WholeMixture

        return WholeMixture(generator, domain)
