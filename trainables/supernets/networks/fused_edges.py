"""All operations of all edges that leave a node of a DARTS cell, in one go, for training on a CPU.

The outputs and the gradients are those of the modules one by one. What is saved: a node's ReLU
and its pools are made once and not per edge; the gradients of depthwise convolutions are the fast ones of `depthwise`;
normalisations, weights and the sum are one pass (`normalised_sum`); small edges go through all this together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from archray.trainables.supernets.networks.depthwise import depthwise
from archray.trainables.supernets.networks.normalised_sum import normalised_sum
from archray.trainables.supernets.networks.weighted_sum import Term

POOLS = ("max_pool_3x3", "avg_pool_3x3")
SKIP = "skip_connect"
SEPARABLE = {"sep_conv_3x3": 3, "sep_conv_5x5": 5}  # kernels
DILATED = {"dil_conv_3x3": 3, "dil_conv_5x5": 5}
LANES = 16  # numbers in a vector register: narrower tensors waste them
CACHE = 2**19  # numbers in a tensor of 2 MB: smaller ones take less time than what surrounds each kernel


class FusedEdges:
    """See the module. A `mixed_cell.FusedEdges` for cells of DARTS' operations.

    Args:
        operations: the columns of weights, in order.
    """

    def __init__(self, operations: Sequence[str]) -> None:
        self.column = {name: column for column, name in enumerate(operations)}

    def __call__(self, x: Tensor, edges: Sequence[nn.ModuleDict], rows: Tensor, stride: int) -> list[list[Term]]:
        """x: (n, C, H, W); edges: the modules of E edges; rows: (E, operations) -> the terms of each edge's target."""
        terms = self._convolutions(x, edges, rows, stride)
        first: Any = edges[0]  # the edges have their pools in common
        pools = [normalised_sum([first[name][0](x)]) for name in POOLS]
        weights = rows[:, [self.column[name] for name in (*POOLS, SKIP)]].flatten().split(1)
        for number, (of_edge, edge) in enumerate(zip(terms, edges, strict=True)):
            of_edge += zip((*pools, edge[SKIP](x)), weights[3 * number : 3 * number + 3], strict=True)
        return terms

    def _convolutions(self, x: Tensor, edges: Sequence[nn.ModuleDict], rows: Tensor, stride: int) -> list[list[Term]]:
        """Per edge one term: the weighted sum of its four convolutions."""
        channels, together = x.shape[1], _together(x)
        active = x.relu()
        # A dilation of 2 at stride 2 reads every second pixel only: it is none on these.
        halved, dilation = (active, 2) if stride == 1 else (active[..., ::2, ::2], 1)
        columns = [self.column[name] for name in (*SEPARABLE, *DILATED)]
        mixture = rows[:, columns].T.repeat_interleave(channels, dim=1).split(together * channels, dim=1)  # (4, E C)
        terms: list[list[Term]] = []
        for part, at in zip(mixture, range(0, len(edges), together), strict=True):
            some = edges[at : at + together]
            modules: dict[str, list[Any]] = {name: [edge[name] for edge in some] for name in (*SEPARABLE, *DILATED)}
            u, v = (_repeated(source, len(some)) for source in (active, halved))
            outs = []
            for name in SEPARABLE:
                first = _pointwise(depthwise(u, _weights(modules[name], 1), stride), modules[name], 2)
                middle = normalised_sum([first], relu=True)
                outs.append(_pointwise(depthwise(middle, _weights(modules[name], 5)), modules[name], 6))
            for name in DILATED:
                outs.append(_pointwise(depthwise(v, _weights(modules[name], 1), 1, dilation), modules[name], 2))
            out = normalised_sum(outs, part)
            terms += [[(summed, None)] for summed in (out.split(channels, dim=1) if len(some) > 1 else (out,))]
        return terms


def _together(x: Tensor) -> int:
    """How many edges that leave x are evaluated as one, side by side in channels."""
    lanes, cache = LANES // x.shape[1], CACHE // x.numel()
    return max(1, lanes if x.shape[1] < LANES else cache)


def _weights(modules: Sequence[Any], layer: int) -> Tensor:
    """The weights of a convolution of each of E modules, (E C, ...)."""
    return torch.cat([module[layer].weight for module in modules])


def _pointwise(x: Tensor, modules: Sequence[Any], layer: int) -> Tensor:
    """A 1 x 1 convolution of each of E modules: (n, E C, H, W) -> (n, E C, H, W)."""
    weights, edges = _weights(modules, layer), len(modules)
    channels = weights.shape[1]
    if edges > 1 and channels < LANES:  # as one convolution without groups, which is faster than with them
        blocks = weights.view(edges, channels, 1, channels) * torch.eye(edges, dtype=x.dtype)[:, None, :, None]
        weights, edges = blocks.view(edges * channels, -1, 1, 1), 1
    return functional.conv2d(x, weights, groups=edges)


def _repeated(x: Tensor, times: int) -> Tensor:
    """(n, C, H, W) -> (n, times C, H, W) in channels-last layout."""
    x = x.permute(0, 2, 3, 1)
    return (x.repeat(1, 1, 1, times) if times > 1 else x.contiguous()).permute(0, 3, 1, 2)
