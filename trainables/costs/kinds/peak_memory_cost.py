"""The most bytes of activations that are alive at once in the forward pass of one image; see `liveness`."""

from __future__ import annotations

from torch import nn

from archray.trainables.costs.measures import peak_activation_bytes
from archray.trainables.costs.registry import ImageShape, cost


@cost(unit="bytes")
def peak_memory(network: nn.Module, image_shape: ImageShape) -> float:
    return float(peak_activation_bytes(network, image_shape))
