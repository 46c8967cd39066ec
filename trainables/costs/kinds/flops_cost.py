"""Floating-point operations of the forward pass of one image, by torch's counter: two for a multiply-add.

Convolutions and matrix products count; normalisation, pooling, activations and sums do not. What many papers call FLOPs
are multiply-adds, half of this.
"""

from __future__ import annotations

from torch import nn

from archray.trainables.costs.registry import ImageShape, cost
from archray.trainables.nets.cost import count_multiply_adds


@cost(summed=True)
def flops(network: nn.Module, image_shape: ImageShape) -> float:
    return 2.0 * count_multiply_adds(network, image_shape)
