"""All operations of all edges that leave a node of a DARTS cell, in one go, for training on a CPU.

The outputs and the gradients are those of the modules one by one. What is saved: a node's ReLU and its pools are made
once and not per edge; the gradients of depthwise convolutions, which take most of a step, are the fast ones of
`depthwise`; normalisations, weights and the sum are one pass (`normalised_sum`); small edges go through all this
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from archray.trainables.supernets.networks.weighted_sum import Term, normalised_sum

POOLS = ("max_pool_3x3", "avg_pool_3x3")
SKIP = "skip_connect"
SEPARABLE = {"sep_conv_3x3": 3, "sep_conv_5x5": 5}  # kernels
DILATED = {"dil_conv_3x3": 3, "dil_conv_5x5": 5}
LANES = 16  # numbers in a vector register: narrower tensors waste them
CACHE = 2**19  # numbers in a tensor of 2 MB: smaller ones take less time than what surrounds each kernel


def depthwise(x: Tensor, weight: Tensor, stride: int = 1, dilation: int = 1) -> Tensor:
    """(n, C, H, W) -> (n, C, H/stride, W/stride), rounded up: padded to keep the size at stride 1.

    Args:
        weight: (C, 1, k, k), k 3 or 5.
        dilation: 1 or 2; 1 if the stride is not 1.

    It can be differentiated once. oneDNN has fast kernels for the forward pass of any depthwise convolution, but for
    its gradients only up to three columns without dilation; the others take up to 25 times as long. Both gradients are
    put in terms of fast ones.
    """
    return _Depthwise.apply(x, weight, stride, dilation)


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.dilation = stride, dilation
        return _same(x, weight, stride, dilation)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        if ctx.stride > 1:
            padding = weight.shape[-1] // 2
            wanted = (needs_x, needs_weight, False)
            return (*_gradients(x, weight, grad, ctx.stride, (padding, padding), wanted), None, None)
        grad_x = _same(grad, weight.flip(2, 3), 1, ctx.dilation) if needs_x else None
        grad_weight = _weight_gradient(x, grad, weight.shape[-1], ctx.dilation) if needs_weight else None
        return grad_x, grad_weight, None, None


def _same(x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
    padding = dilation * (weight.shape[-1] // 2)
    return functional.conv2d(x, weight, None, stride, padding, dilation, groups=len(weight))


def _weight_gradient(x: Tensor, grad: Tensor, kernel: int, dilation: int) -> Tensor:
    """(C, 1, k, k), the gradient of the weight at stride 1, from kernels of three columns without dilation.

    Taps that lie s columns apart are neighbours where columns of equal remainder mod s are channels: a view. So the
    three inner columns of taps come from one call with s = dilation, the two outer ones of k = 5 from another with
    s = 2 dilation. Dilated rows are every second one of a higher kernel.
    """
    rows = dilation * (kernel - 1) + 1
    step = dilation if kernel == 3 else 2 * dilation
    # oneDNN has no fast kernel higher than the image; zeros added on the right and below change nothing.
    extra = (0, -x.shape[3] % step, 0, max(0, rows - x.shape[2]))
    if any(extra):
        x, grad = functional.pad(x, extra), functional.pad(grad, extra)

    def taps(apart: int) -> Tensor:  # (C, 1, k, 3)
        u, g = _columns_as_channels(x, apart), _columns_as_channels(grad, apart)
        weight = u.new_empty(u.shape[1], 1, rows, 3)
        _, found, _ = _gradients(u, weight, g, 1, (rows // 2, 1), (False, True, False))
        return found.unflatten(0, (apart, -1)).sum(0)[:, :, ::dilation]

    inner = taps(dilation)
    if kernel == 3:
        return inner
    outer = taps(2 * dilation)
    return torch.cat([outer[..., :1], inner, outer[..., 2:]], dim=-1)


def _columns_as_channels(x: Tensor, step: int) -> Tensor:
    """(n, C, H, W) -> (n, step C, H, W/step), a view if x is in channels-last layout."""
    n, _, height, width = x.shape
    return x.permute(0, 2, 3, 1).reshape(n, height, width // step, -1).permute(0, 3, 1, 2)


def _gradients(
    x: Tensor, weight: Tensor, grad: Tensor, stride: int, padding: tuple[int, int], wanted: tuple[bool, bool, bool]
) -> tuple[Any, Any, Any]:
    return torch.ops.aten.convolution_backward(
        grad, x, weight, None, (stride, stride), padding, (1, 1), False, (0, 0), len(weight), wanted
    )


class FusedEdges:
    """See the module. What `mixed_cell.Fused` says, for cells of DARTS' operations: the columns of weights."""

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
