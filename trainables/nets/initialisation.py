"""The initialisations of thesis Table 7.9 (note P5), applied to a whole network."""

from __future__ import annotations

import math

import torch
from torch import nn

from archray.trainables.nets.network_settings import Initialisation


@torch.no_grad()
def initialise(network: nn.Module, init: Initialisation) -> None:
    """Draws the weights of all convolutions and linear layers anew, in place, from torch's global generator.

    With `fan_in`, `fan_out` the inputs and outputs of one unit (kernel included), weights are normal with variance

    - `lecun-normal`: 1 / fan_in,
    - `xavier`: 2 / (fan_in + fan_out) (Glorot and Bengio 2010),
    - `he`: 2 / fan_in (He et al. 2015),

    and biases are zero. `pytorch-default` leaves the network as torch made it. Normalisation layers are left alone.
    """
    if init == "pytorch-default":
        return
    for layer in network.modules():
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        if init == "lecun-normal":
            fan_in = layer.weight[0].numel()
            layer.weight.normal_(0.0, math.sqrt(1.0 / fan_in))
        elif init == "xavier":
            nn.init.xavier_normal_(layer.weight)
        elif init == "he":
            nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
        else:
            raise ValueError(f"there is no initialisation {init!r}")
        if layer.bias is not None:
            layer.bias.zero_()
