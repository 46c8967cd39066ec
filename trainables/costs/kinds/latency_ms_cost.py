"""Milliseconds that a batch takes, timed: the median of repeated passes; see `latency`. Here with the defaults."""

from __future__ import annotations

from torch import nn

from archray.trainables.costs.measures import network_latency
from archray.trainables.costs.registry import ImageShape, cost
from archray.trainables.costs.settings import LatencySettings


@cost(unit="ms", summed=True, measured=True)
def latency_ms(network: nn.Module, image_shape: ImageShape) -> float:
    return network_latency(network, image_shape, LatencySettings()).median
