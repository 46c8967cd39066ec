"""Random directions in the space of a network's weights, normalised filter by filter. Li et al. 2017, section 4."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def filter_normalised(network: nn.Module, generator: torch.Generator) -> list[Tensor]:
    """A Gaussian direction: a tensor of its shape, device and type for each parameter, in the order of `parameters()`.

    A filter is what makes one output: a slice of the first axis. Each has the norm of the weights' filter, so that a
    step of one length changes networks of different scale alike. Biases and the parameters of normalisations, which
    have one axis, do not move (Li et al. 2017 leave them out likewise).

    generator: of the CPU, so that a seed gives the same direction on every device.
    """
    return [_direction(parameter.detach(), generator) for parameter in network.parameters()]


def _direction(weights: Tensor, generator: torch.Generator) -> Tensor:
    if weights.ndim < 2:
        return torch.zeros_like(weights)
    drawn = torch.randn(weights.shape, generator=generator).to(weights)
    norms = weights.flatten(1).norm(dim=1) / drawn.flatten(1).norm(dim=1)
    return drawn * norms.view(-1, *[1] * (weights.ndim - 1))
