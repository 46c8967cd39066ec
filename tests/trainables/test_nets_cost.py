"""Multiply-adds, compared with counts by hand and a published network; parameters without the auxiliary tower."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archray.trainables.nets import count_multiply_adds, count_parameters


def tiny_network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 5, padding=2, groups=4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def test_by_hand() -> None:
    # Maps of 6 x 6 after the stride; a group of the second convolution reads 2 of the 8 channels.
    assert count_multiply_adds(tiny_network(), (3, 12, 12)) == 36 * 8 * 3 * 9 + 36 * 8 * 2 * 25 + 80


def test_products_outside_layers_count() -> None:
    class Attention(nn.Linear):
        def forward(self, images: Tensor) -> Tensor:
            x = super().forward(images.flatten(2))  # (n, C, d)
            return (x @ x.transpose(1, 2)).softmax(-1) @ x

    assert count_multiply_adds(Attention(4, 6), (5, 2, 2)) == 5 * 4 * 6 + 2 * 5 * 5 * 6


def mobile_net() -> nn.Sequential:
    """MobileNet, table 1 of Howard et al. 2017 (arXiv 1704.04861)."""

    def block(before: int, after: int, kernel: int, stride: int, groups: int = 1) -> list[nn.Module]:
        conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
        return [conv, nn.BatchNorm2d(after), nn.ReLU()]

    layers, width = block(3, 32, 3, 2), 32
    for after, stride in [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ]:
        layers += block(width, width, 3, stride, groups=width) + block(width, after, 1, 1)
        width = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def test_a_published_network() -> None:
    network = mobile_net().to("meta")
    assert count_multiply_adds(network, (3, 224, 224)) == pytest.approx(569e6, abs=0.5e6)  # their table 4
    assert count_parameters(network) == pytest.approx(4.2e6, abs=0.05e6)


@pytest.mark.parametrize("training", [True, False])
def test_the_network_is_unchanged(training: bool) -> None:
    network = tiny_network().train(training)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    count_multiply_adds(network, (3, 12, 12))
    assert network.training is training
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_frozen_numbers_and_the_tower_are_not_parameters_of_the_network() -> None:
    network = tiny_network()
    whole = count_parameters(network)
    network.auxiliary = nn.Linear(3, 3)
    assert count_parameters(network) == whole
    network[0].requires_grad_(False)
    assert count_parameters(network) == whole - 8 * 27 - 8
