"""One drawn operation per edge, with a gradient. Gumbel-softmax: Jang et al. 2017; GDAS: Dong and Yang 2019; SNAS."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.supernets.networks import MixtureWeights
from archray.trainables.supernets.networks.mixture_weights import one_hot
from archray.trainables.supernets.optimizers.optimizer_settings import Domain
from archray.trainables.supernets.relaxations.relaxation import Relaxation
from archray.trainables.supernets.relaxations.relaxation_settings import RELAXATIONS, RelaxationSettings

# Where GDAS ends. Between two equal operations the gradient p (1 - p) / tau has a mean near 1/4 and a variance of about
# 1 / (24 tau), and p (1 - p) is above 0.01 in a share of 2.3 tau of the draws: a quarter of them at 0.1. With less,
# ever fewer steps have a gradient, and those a very large one.
TAU_MIN = 0.1
TAU_MAX = 10.0  # where GDAS starts


@dataclass(frozen=True)
class TemperatureSchedule:
    """The temperature at each share of the search.

    Attributes:
        start: tau at progress 0. GDAS: 10; SNAS: 1.
        end: tau at progress 1. GDAS: 0.1; SNAS: 0.03.
        form: `linear` (GDAS) or `exponential` (SNAS).

    Raises: InvalidInput if a temperature is not positive, or the form is not known.
    """

    start: float = TAU_MAX
    end: float = TAU_MIN
    form: Literal["linear", "exponential"] = "linear"

    def __post_init__(self) -> None:
        for name, tau in (("start", self.start), ("end", self.end)):
            if not (math.isfinite(tau) and tau > 0):
                raise InvalidInput(f"expected the temperature's {name} to be above 0, got {tau}")
        if self.form not in ("linear", "exponential"):
            raise InvalidInput(f"expected a linear or exponential temperature schedule, got {self.form!r}")

    def __call__(self, progress: float) -> float:
        if self.form == "linear":
            return self.start + (self.end - self.start) * progress
        return self.start * (self.end / self.start) ** progress


def gumbel_noise(like: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from Gumbel(0, 1), shaped and placed like `like`; always finite."""
    uniform = torch.rand(like.shape, generator=generator, device=generator.device, dtype=like.dtype)
    limits = torch.finfo(like.dtype)
    uniform = uniform.clamp(limits.tiny, 1.0 - limits.eps)  # 0 and 1 would give infinite noise
    return -(-uniform.log()).log().to(like.device)


def log_probabilities(weights: Tensor) -> Tensor:
    """log(weights); where a weight is zero -inf, with a gradient of zero instead of NaN."""
    positive = weights > 0
    return torch.where(positive, torch.where(positive, weights, 1.0).log(), -torch.inf)


def gumbel_weights(logits: Tensor, noise: Tensor, tau: float, hard: bool) -> MixtureWeights:
    """softmax((logits + noise) / tau), thesis Eq. 6.16; straight-through if `hard`.

    Args:
        logits, noise: (edges, operations).
        hard: forward is the one-hot argmax, exactly; backward is the softmax's.
    """
    soft = ((logits + noise) / tau).softmax(-1)  # (E, O)
    if not hard:
        return MixtureWeights(soft)
    chosen = soft.detach().argmax(-1)  # (E,)
    return MixtureWeights(one_hot(chosen, soft.shape[-1], soft.dtype) + (soft - soft.detach()), chosen)


class Gumbel(Relaxation):
    """One operation per edge, drawn with the parameters' probabilities; gradients as if the draw were soft.

    Args:
        domain: `logits` (GDAS), or `simplex` (GAEA GDAS: the noise is added to the logarithm of the parameters). A
            parameter of zero is never drawn and has no gradient; the floor of `MirrorDescent` keeps it above zero.
        schedule: of the temperature; GDAS' unless given.
        hard: straight-through. False gives SNAS' mixture of all operations (Xie et al. 2019).
    """

    def __init__(
        self,
        generator: torch.Generator,
        domain: Domain = "logits",
        schedule: TemperatureSchedule | None = None,
        hard: bool = True,
    ) -> None:
        super().__init__(generator, domain)
        self.schedule = schedule if schedule is not None else TemperatureSchedule()
        self.hard = hard

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        logits = log_probabilities(parameters) if self.domain == "simplex" else parameters
        return gumbel_weights(logits, gumbel_noise(parameters, self.generator), self.schedule(progress), self.hard)


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
    start: float = Field(TAU_MAX, gt=0)
    end: float = Field(TAU_MIN, gt=0)
    form: Literal["linear", "exponential"] = "linear"
    hard: bool = True

    @property
    def draws_one(self) -> bool:
        return self.hard

    def make(self, generator: torch.Generator, domain: Domain) -> Gumbel:
        return Gumbel(generator, domain, TemperatureSchedule(self.start, self.end, self.form), self.hard)
