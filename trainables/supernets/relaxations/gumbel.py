"""The settings of one drawn operation per edge, with a gradient. GDAS: Dong and Yang 2019; SNAS: Xie et al. 2019."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from archray.trainables.supernets.optimizer_settings import Domain
from archray.trainables.supernets.relaxation_settings import RELAXATIONS, RelaxationSettings

if TYPE_CHECKING:
    import torch

    from archray.trainables.supernets.mixings.gumbel_noise import Gumbel

# Where GDAS ends. Between two equal operations the gradient p (1 - p) / tau has a mean near 1/4 and a variance of about
# 1 / (24 tau), and p (1 - p) is above 0.01 in a share of 2.3 tau of the draws: a quarter of them at 0.1. With less,
# ever fewer steps have a gradient, and those a very large one.
TAU_MIN = 0.1
TAU_MAX = 10.0  # where GDAS starts


@RELAXATIONS.register("gumbel")
class GumbelSettings(RelaxationSettings):
    """One drawn operation per edge with a straight-through gradient.

    Defaults are GDAS'. SNAS has `hard` false, start 1, end 0.03, exponential.

    Attributes:
        start, end: the temperature at the beginning and the end of the search.
        form: of its course in between.
        hard: false mixes all operations by the perturbed softmax.
    """

    domains = ("logits", "simplex")

    name: Literal["gumbel"] = "gumbel"
    start: float = Field(TAU_MAX, gt=0, allow_inf_nan=False)
    end: float = Field(TAU_MIN, gt=0, allow_inf_nan=False)
    form: Literal["linear", "exponential"] = "linear"
    hard: bool = True

    @property
    def draws_one(self) -> bool:
        return self.hard

    def make(self, generator: torch.Generator, domain: Domain) -> Gumbel:
        from archray.trainables.supernets.mixings.gumbel_noise import Gumbel

        return Gumbel(generator, domain, self)

    def temperature(self, progress: float) -> float:
        if self.form == "linear":
            return self.start + (self.end - self.start) * progress
        return self.start * (self.end / self.start) ** progress
