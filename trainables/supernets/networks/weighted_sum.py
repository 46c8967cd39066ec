"""Sums of weighted tensors whose products are never made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Term = tuple[Tensor, Tensor | None]  # a tensor and its weight, () or (1,); None for 1


def weighted_sum(terms: Sequence[Term]) -> Tensor:
    """sum_t w_t x_t, for tensors of one shape. It can be differentiated once.

    On a CPU the products are added as they are computed; elsewhere that would wait for the device at each weight.
    """
    tensors = [tensor for tensor, _ in terms]
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
