"""Trainable numbers of the network, without an auxiliary tower."""

from __future__ import annotations

from torch import nn

from archray.trainables.costs.registry import ImageShape, cost
from archray.trainables.nets.cost import count_parameters


@cost(summed=True)
def parameters(network: nn.Module, image_shape: ImageShape) -> float:
    return float(count_parameters(network))
