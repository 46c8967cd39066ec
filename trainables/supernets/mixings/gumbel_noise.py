"""One drawn operation per edge, with a gradient. Gumbel-softmax: Jang et al. 2017; GDAS: Dong and Yang 2019; SNAS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from archray.trainables.supernets.mixings.relaxation import Relaxation
from archray.trainables.supernets.networks import MixtureWeights
from archray.trainables.supernets.networks.group import one_hot
from archray.trainables.supernets.optimizer_settings import Domain

if TYPE_CHECKING:  # its settings, which make what is here
    from archray.trainables.supernets.relaxations.gumbel import GumbelSettings


def gumbel_noise(like: Tensor, generator: torch.Generator) -> Tensor:
    """Draws from Gumbel(0, 1), shaped and placed like `like`; always finite."""
    uniform = torch.rand(like.shape, generator=generator, device=generator.device, dtype=like.dtype)
    limits = torch.finfo(like.dtype)
    uniform = uniform.clamp(limits.tiny, 1.0 - limits.eps)  # 0 and 1 would give infinite noise
    return -(-uniform.log()).log().to(like.device)


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

    Unless `hard`, SNAS' mixture of all operations (Xie et al. 2019). domain: `logits` (GDAS), or `simplex` (GAEA GDAS:
    the noise is added to the logarithm of the parameters). A parameter of zero is never drawn and has no gradient; the
    floor of `MirrorDescent` keeps it above zero.
    """

    def __init__(self, generator: torch.Generator, domain: Domain, settings: GumbelSettings) -> None:
        super().__init__(generator, domain)
        self.settings = settings

    def group_weights(self, group: str, parameters: Tensor, progress: float) -> MixtureWeights:
        logits = parameters
        if self.domain == "simplex":  # where a weight is zero -inf, with a gradient of zero instead of NaN
            positive = parameters > 0
            logits = torch.where(positive, torch.where(positive, parameters, 1.0).log(), -torch.inf)
        noise = gumbel_noise(parameters, self.generator)
        return gumbel_weights(logits, noise, self.settings.temperature(progress), self.settings.hard)
