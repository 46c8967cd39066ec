"""All operations of all edges that leave a node of a DARTS cell, in one go, for training on a CPU.

The outputs, the gradients and the running statistics are those of the modules one by one. What is saved: a node's ReLU
and its pools are made once and not per edge; the gradients of depthwise convolutions are the fast ones of `depthwise`;
what follows a depthwise convolution, the 1 x 1 convolution, its normalisation, the weight and the sum, is one 1 x 1
convolution (`normalised_sum`); edges of few channels go through it together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from archray.trainables.nets.supernet.depthwise import depthwise
from archray.trainables.nets.supernet.normalised_sum import EPS, normalised_sum
from archray.trainables.nets.supernet.weighted_sum import Term

POOLS = ("max_pool_3x3", "avg_pool_3x3")
SKIP = "skip_connect"
SEPARABLE = {"sep_conv_3x3": 3, "sep_conv_5x5": 5}  # kernels
DILATED = {"dil_conv_3x3": 3, "dil_conv_5x5": 5}
# Edges are evaluated together up to this many channels: narrower tensors leave vector lanes empty, and wider ones gain
# nothing, as their 1 x 1 convolutions are block-diagonal and their depthwise convolutions leave the cache.
TOGETHER = 16


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
        for name in POOLS:
            pooled = _pooled(x, [edge[name] for edge in edges])
            for of_edge, row in zip(terms, rows, strict=True):
                of_edge.append((pooled, row[self.column[name]]))
        for of_edge, row, edge in zip(terms, rows, edges, strict=True):
            of_edge.append((edge[SKIP](x), row[self.column[SKIP]]))
        return terms

    def _convolutions(self, x: Tensor, edges: Sequence[nn.ModuleDict], rows: Tensor, stride: int) -> list[list[Term]]:
        """Per edge one term: the weighted sum of its four convolutions."""
        channels = x.shape[1]
        active = x.relu()
        # A dilation of 2 at stride 2 reads every second pixel only: it is none on these.
        halved, dilation = (active, 2) if stride == 1 else (active[..., ::2, ::2], 1)
        terms: list[list[Term]] = []
        together = max(1, TOGETHER // channels)
        for at in range(0, len(edges), together):
            some = edges[at : at + together]
            features, weights, norms = [], [], []
            u, v = (_repeated(each, len(some)) for each in (active, halved))
            for name in SEPARABLE:
                modules = [edge[name] for edge in some]
                first = depthwise(u, _stacked(modules, 1), stride)
                middle, *moments = normalised_sum([first], _block_diagonal(modules, 2)[None], relu=True)
                _update_all([[module[3] for module in modules]], *moments, first)
                features.append(depthwise(middle, _stacked(modules, 5)))
                weights.append(_block_diagonal(modules, 6))
                norms.append([module[7] for module in modules])
            for name in DILATED:
                modules = [edge[name] for edge in some]
                features.append(depthwise(v, _stacked(modules, 1), 1, dilation))
                weights.append(_block_diagonal(modules, 2))
                norms.append([module[3] for module in modules])
            columns = [self.column[name] for name in (*SEPARABLE, *DILATED)]
            mixture = rows[at : at + together, columns].T.repeat_interleave(channels, dim=1)  # (4, edges x C)
            out, *moments = normalised_sum(features, torch.stack(weights), mixture)
            _update_all(norms, *moments, out)
            terms += [[(each, None)] for each in out.split(channels, dim=1)]
        return terms


def _pooled(x: Tensor, modules: Sequence[Any]) -> Tensor:
    """The pool and its normalisation, which the edges have in common."""
    pooled, mean, scale = torch.native_batch_norm(modules[0][0](x), None, None, None, None, True, 0.0, EPS)
    with torch.no_grad():
        for module in modules:
            _update(module[1], mean, scale**-2 - EPS, pooled)
    return pooled


def _stacked(modules: Sequence[Any], layer: int) -> Tensor:
    """The weights of a depthwise layer of each of E modules, (E C, 1, k, k)."""
    return torch.cat([module[layer].weight for module in modules])


def _block_diagonal(modules: Sequence[Any], layer: int) -> Tensor:
    """The weights of a 1 x 1 convolution of each of E modules, (E C, E C), none between modules."""
    return torch.block_diag(*(module[layer].weight[:, :, 0, 0] for module in modules))


def _repeated(x: Tensor, times: int) -> Tensor:
    """(n, C, H, W) -> (n, times C, H, W) in channels-last layout."""
    x = x.permute(0, 2, 3, 1)
    return (x.repeat(1, 1, 1, times) if times > 1 else x.contiguous()).permute(0, 3, 1, 2)


@torch.no_grad()
def _update_all(norms: Sequence[Sequence[Any]], mean: Tensor, variance: Tensor, like: Tensor) -> None:
    """norms: T times E layers; mean, variance: (T, E C)."""
    for of_term, means, variances in zip(norms, mean, variance, strict=True):
        channels = len(means) // len(of_term)
        for norm, m, v in zip(of_term, means.split(channels), variances.split(channels), strict=True):
            _update(norm, m, v, like)


def _update(norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor, like: Tensor) -> None:
    """Moves the running statistics as the layer itself would: by the mean and the unbiased variance, (C,)."""
    count = like.shape[0] * like.shape[2] * like.shape[3]
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (count / (count - 1)), norm.momentum)
    norm.num_batches_tracked += 1
