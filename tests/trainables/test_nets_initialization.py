"""Initializations: variances by layer, compared with their formulas."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from archray.trainables.nets import NetworkSettings, build

CELL = "|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|+|nor_conv_3x3~0|none~1|skip_connect~2|"
VARIANCE = {
    "lecun-normal": lambda fan_in, fan_out: 1 / fan_in,
    "xavier": lambda fan_in, fan_out: 2 / (fan_in + fan_out),
    "he": lambda fan_in, fan_out: 2 / fan_in,
    "pytorch-default": lambda fan_in, fan_out: 1 / (3 * fan_in),  # uniform on +-1/sqrt(fan_in)
}


@pytest.mark.parametrize("init", VARIANCE)
def test_variance_of_every_layer(init):
    network = build("nasbench201", CELL, network=NetworkSettings(init=init), in_channels=3, num_classes=100, seed=0)
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(layers) > 20
    for layer in layers:
        kernel = layer.weight[0, 0].numel()
        fan_out, fan_in = layer.weight.shape[0] * kernel, layer.weight.shape[1] * kernel
        weight = layer.weight.detach().double()
        expected = VARIANCE[init](fan_in, fan_out)
        # The variance of n normal samples has the relative deviation sqrt(2/n): within six of them.
        assert weight.square().mean().item() == pytest.approx(expected, rel=6 * math.sqrt(2 / weight.numel()))
        if layer.bias is not None and init != "pytorch-default":
            assert torch.count_nonzero(layer.bias) == 0
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert (layer.weight == 1).all()


def test_settings():
    assert (NetworkSettings().channels, NetworkSettings().cells) == (16, 5)
    with pytest.raises(ValidationError):
        NetworkSettings(cells=0)
    with pytest.raises(ValidationError):
        NetworkSettings(init="orthogonal")
