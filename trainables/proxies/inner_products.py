"""Inner products of activations and gradients (m, C, ...), whole or by channel, with little memory read and written."""

from __future__ import annotations

import torch
from torch import Tensor

from archray.trainables.proxies.batch_norm import channel_sum, is_channels_last

BLOCK = 2**18  # numbers that are multiplied at once: 1 MiB of float32, which a core's cache holds


def inner_product(a: Tensor, b: Tensor) -> Tensor:
    """<a, b> in float64. In float32 it is added up in parts, so that it keeps its digits."""
    if is_channels_last(a) and is_channels_last(b):  # a dot product per sample makes no copy
        rows, columns = (x.permute(0, 2, 3, 1).reshape(len(x), 1, -1) for x in (a, b))
        return torch.bmm(rows, columns.transpose(1, 2)).sum(dtype=torch.float64)
    return (a * b).sum().double()


def channel_products(a: Tensor, b: Tensor) -> Tensor:
    """(C,): <a, b> of each channel, some samples at a time."""
    if a.numel() <= BLOCK:
        return channel_sum(a * b)
    step = max(1, len(a) * BLOCK // a.numel())
    return torch.stack([channel_sum(x * y) for x, y in zip(a.split(step), b.split(step), strict=True)]).sum(0)
