"""Replacements of torch's kernels for few channels compute the same numbers in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.nets import NetworkSettings, build
from archray.trainables.proxies import ProxySettings, gram, score
from archray.trainables.proxies.layers import ShiftedAveragePool, forward, shifted_sums
from archray.trainables.proxies.tangents import recognized

CHANNELS_LAST = torch.channels_last  # (m, H, W, C) in memory
METRICS = ("grad_norm", "snip", "grasp", "ntk_trace", "kappa", "knas", "fisher", "naswot")
POOLS = "|avg_pool_3x3~0|+|nor_conv_3x3~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_1x1~1|nor_conv_3x3~2|"


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=CHANNELS_LAST)


@pytest.mark.parametrize("size", [(8, 8), (5, 7), (2, 3), (1, 4), (1, 1)])
def test_shifted_sums_pool_as_torch_does(size: tuple[int, int]) -> None:
    x, b = last(normal(3, 4, *size)).requires_grad_(), last(normal(3, 4, *size, seed=1))
    found, expected = ShiftedAveragePool.apply(x), F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    gradients = [torch.autograd.grad(y, x, b)[0] for y in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    ("pool", "channels", "shifted"),
    [
        (nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False), 4, True),
        (nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False), 16, False),
        (nn.AvgPool2d(3, stride=1, padding=1), 4, False),
        (nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), 4, False),
        (nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False, divisor_override=2), 4, False),
    ],
)
def test_pools_are_shifted_only_where_it_is_equivalent(pool: nn.Module, channels: int, shifted: bool) -> None:
    x = last(normal(2, channels, 6, 6)).requires_grad_()
    with shifted_sums(pool):
        node = type(pool(x).grad_fn).__name__
        assert type(pool(x.contiguous()).grad_fn).__name__ == "AvgPool2DBackward0"
    assert node == ("ShiftedAveragePoolBackward" if shifted else "AvgPool2DBackward0")
    assert "forward" not in vars(pool)


@pytest.mark.parametrize(
    ("kernel", "padding", "size"),
    [((3, 3), 1, (8, 8)), ((1, 3), (0, 1), (7, 9)), ((5, 3), "same", (6, 5)), ((2, 2), 0, (8, 7)), ((3, 3), 0, (3, 3))],
)
def test_per_sample_gradients_by_shifts_equal_those_by_groups(kernel: Any, padding: Any, size: tuple[int, int]) -> None:
    layer = nn.Conv2d(3, 5, kernel, padding=padding).double().requires_grad_(False)
    x = normal(4, 3, *size)
    b = normal(*layer(x).shape, seed=1)
    expected = gram.weight_gradients(layer, x, b)
    for gradient in (b, last(b)):
        torch.testing.assert_close(gram.weight_gradients(layer, last(x), gradient), expected, rtol=1e-11, atol=1e-12)
    part = gram.weight_gradients(layer, last(x), last(b)[:, 1:3])
    torch.testing.assert_close(part, expected[:, 1:3], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("channels", [4, 8])
def test_no_metric_changes(channels: int) -> None:
    """Images in channels-last layout use the special kernels, and contiguous images those of torch."""
    settings = NetworkSettings(channels=channels, cells=1)
    network = build("nasbench201", POOLS, network=settings, in_channels=3, num_classes=4, seed=0, for_scoring=True)
    images, labels = normal(8, 3, 12, 12), torch.arange(8) % 4
    assert recognized(forward(network.double(), last(images)))  # by the tangents of grasp
    ours, torchs = (score(network, x, labels, METRICS, ProxySettings()) for x in (last(images), images))
    assert {name: result.failure for name, result in ours.items()} == dict.fromkeys(METRICS)
    for name in METRICS:
        assert ours[name].value == pytest.approx(torchs[name].value, rel=1e-8), name
