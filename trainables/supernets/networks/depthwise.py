"""Depthwise convolution with a backward pass that is fast on a CPU: what takes most of a DARTS supernet's step.

oneDNN has fast kernels for the forward pass of any depthwise convolution, but for its gradients only up to three
columns without dilation; the others take up to 25 times as long. Both gradients are put in terms of fast ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional


def depthwise(x: Tensor, weight: Tensor, stride: int = 1, dilation: int = 1) -> Tensor:
    """(n, C, H, W) -> (n, C, H/stride, W/stride), rounded up: padded to keep the size at stride 1.

    Args:
        weight: (C, 1, k, k), k 3 or 5.
        dilation: 1 or 2; 1 if the stride is not 1.

    It can be differentiated once.
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
