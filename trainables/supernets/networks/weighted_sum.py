"""Sums of weighted tensors whose products are never made, and of batch normalisations without what is normalised.

With mean m and standard deviation s of each channel, sum_t w_t (y_t - m_t) / s_t = sum_t a_t y_t + b, where
a_t = w_t / s_t and b = -sum_t a_t m_t: a pass over the y_t for the statistics and one for the sum. The gradient of y_t
is again of that form, a_t g + c_t y_t + d_t.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

EPS = 1e-5  # of torch's BatchNorm2d

Term = tuple[Tensor, Tensor | None]  # a tensor and its weight, () or (1,); None for 1


def weighted_sum(terms: Sequence[Term]) -> Tensor:
    """sum_t w_t x_t, for tensors of one shape. It can be differentiated once; without weights any number of times.

    On a CPU the products are added as they are computed; elsewhere that would wait for the device at each weight.
    """
    tensors = [tensor for tensor, _ in terms]
    if all(weight is None for _, weight in terms):
        return reduce(torch.add, tensors)
    if tensors[0].device.type != "cpu":
        products = [tensor if weight is None else weight * tensor for tensor, weight in terms]
        return torch.stack(products).sum(0)
    factors = [weight for _, weight in terms if weight is not None]
    weights = torch.cat([weight.reshape(1) for weight in factors]) if factors else tensors[0].new_empty(0)
    return _WeightedSum.apply(tuple(weight is not None for _, weight in terms), weights, *tensors)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weighted: tuple[bool, ...], weights: Tensor, *tensors: Tensor) -> Tensor:
        factors = iter(weights.tolist())
        ctx.factors = [next(factors) if has_weight else None for has_weight in weighted]
        ctx.save_for_backward(*(tensor for tensor, has_weight in zip(tensors, weighted, strict=True) if has_weight))
        first = ctx.factors[0]
        out = tensors[0].clone() if first is None else tensors[0] * first
        for tensor, factor in zip(tensors[1:], ctx.factors[1:], strict=True):
            out.add_(tensor, alpha=1.0 if factor is None else factor)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        flat = grad.permute(0, 2, 3, 1).flatten()  # a view in channels-last layout
        dots = [torch.dot(flat, tensor.permute(0, 2, 3, 1).flatten()) for tensor in ctx.saved_tensors]
        by_weights = torch.stack(dots) if dots else None
        return None, by_weights, *(grad if factor is None else grad * factor for factor in ctx.factors)


def normalised_sum(inputs: Sequence[Tensor], mixture: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """sum_t w_t BN(y_t), or its ReLU; BN with the batch's statistics and without affine parameters.

    Args:
        inputs: T tensors y_t (n, C, H, W); fast in channels-last layout.
        mixture: (T, C), the w_t, a weight per term and channel; ones unless given.

    Returns: (n, C, H, W). It can be differentiated once.
    """
    if mixture is None:
        mixture = inputs[0].new_ones(len(inputs), inputs[0].shape[1])
    summed: Tensor = _NormalisedSum.apply(relu, mixture, *inputs)
    return summed


class _NormalisedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, relu: bool, mixture: Tensor, *inputs: Tensor) -> Tensor:
        flat = [_pixels(y) for y in inputs]  # (N, C), N = n H W
        mean = torch.stack([y.mean(0) for y in flat])  # (T, C)
        square = torch.stack([(y * y).mean(0) for y in flat])
        variance = (square - mean * mean).clamp_(min=0)  # rounding may go below zero
        scale = (variance + EPS).rsqrt()
        factors = mixture * scale
        out = torch.addcmul(-(factors * mean).sum(0), flat[0], factors[0])
        for y, factor in zip(flat[1:], factors[1:], strict=True):
            out.addcmul_(y, factor)
        if relu:
            out.relu_()
        ctx.save_for_backward(mean, scale, factors, out if relu else None, *inputs)
        return _image(out, inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        mean, scale, factors, out, *inputs = ctx.saved_tensors
        g = _pixels(grad)
        if out is not None:
            g = torch.ops.aten.threshold_backward(g, out, 0)
        total = g.sum(0)  # (C,)
        # <g, (y - m) / s>: the gradient of the mixture, and what normalisation takes out of each y's gradient.
        along = (torch.stack([(g * _pixels(y)).sum(0) for y in inputs]) - total * mean) * scale  # (T, C)
        slopes = -factors * scale * along / len(g)
        shifts = -factors * total / len(g) - slopes * mean
        by_inputs = [
            _image(torch.addcmul(shift, g, factor).addcmul_(_pixels(y), slope), y)
            for y, factor, slope, shift in zip(inputs, factors, slopes, shifts, strict=True)
        ]
        return None, along, *by_inputs


def _pixels(x: Tensor) -> Tensor:
    """(n, C, H, W) -> (n H W, C), a view if x is in channels-last layout."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def _image(flat: Tensor, like: Tensor) -> Tensor:
    """(n H W, C) -> (n, C, H, W) in channels-last layout, with the n, H and W of `like`."""
    n, _, height, width = like.shape
    return flat.view(n, height, width, -1).permute(0, 3, 1, 2)
