"""A weighted sum of normalised 1 x 1 convolutions, without making what is normalised or what is summed.

Batch normalisation of y = P d needs only the mean and covariance of d: with m = mean(d), S = cov(d) the variance of y's
channels is diag(P S P'), and

    sum_t w_t (P_t d_t - P_t m_t) / sqrt(diag(P_t S_t P_t') + eps)  =  sum_t A_t d_t + b

is again a 1 x 1 convolution. So neither pass reads or writes anything but d, the sum and their gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

EPS = 1e-5  # of torch's BatchNorm2d


def normalised_sum(
    inputs: Sequence[Tensor], weights: Tensor, mixture: Tensor | None = None, *, relu: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """sum_t mixture_t BN(P_t d_t), or its ReLU; BN with the batch's statistics and without affine parameters.

    Args:
        inputs: T tensors d_t (n, C_in, H, W); fast in channels-last layout.
        weights: (T, C_out, C_in), the P_t.
        mixture: (T, C_out), a weight per term and channel; ones unless given.

    Returns: (n, C_out, H, W); the mean and the biased variance of each P_t d_t, (T, C_out), without gradient.
    It can be differentiated once.
    """
    if mixture is None:
        mixture = weights.new_ones(weights.shape[:2])
    return _NormalisedSum.apply(relu, weights, mixture, *inputs)


class _NormalisedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, relu: bool, weights: Tensor, mixture: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
        means, covariances = _moments(inputs)  # (T, I), (T, I, I)
        mean = (weights @ means[..., None])[..., 0]  # (T, O)
        variance = ((weights @ covariances) * weights).sum(-1).clamp(min=0)  # (T, O); rounding may go below zero
        scale = (variance + EPS).rsqrt()
        maps = (mixture * scale)[..., None] * weights  # (T, O, I), the A_t
        out = torch.addmm(-(mixture * scale * mean).sum(0), pixels(inputs[0]), maps[0].T)  # (N, O)
        for d, a in zip(inputs[1:], maps[1:], strict=True):
            out.addmm_(pixels(d), a.T)
        if relu:
            out.relu_()
        ctx.relu = relu
        ctx.save_for_backward(weights, mixture, means, covariances, scale, maps, out if relu else None, *inputs)
        ctx.mark_non_differentiable(mean, variance)
        return image(out, inputs[0]), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        weights, mixture, means, covariances, scale, maps, out, *inputs = ctx.saved_tensors
        g = pixels(grad)  # (N, O)
        if ctx.relu:
            g = torch.ops.aten.threshold_backward(g, out, 0)
        total = g.sum(0)  # (O,)
        # Of the small matrices. The shift b is -A m, so A's gradient has a part from it.
        by_map = torch.stack([g.T @ pixels(d) for d in inputs]) - total[:, None] * means[:, None]  # (T, O, I)
        by_mixture = (by_map * scale[..., None] * weights).sum(-1)
        by_scaled = mixture[..., None] * by_map
        by_variance = -0.5 * scale**3 * (by_scaled * weights).sum(-1)  # (T, O)
        by_weights = scale[..., None] * by_scaled + 2 * by_variance[..., None] * (weights @ covariances)
        # Of the inputs, through the sum and through their own mean and covariance.
        count = len(g)
        spread = (weights.mT * (2 / count * by_variance)[:, None]) @ weights  # (T, I, I)
        shift = -(total @ maps) / count - (means[:, None] @ spread)[:, 0]  # (T, I)
        by_inputs = [
            image(torch.addmm(b, pixels(d), s).addmm_(g, a), d)
            for d, a, s, b in zip(inputs, maps, spread, shift, strict=True)
        ]
        return None, by_weights, by_mixture, *by_inputs


def _moments(inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The means (T, C) and the covariances (T, C, C) of the channels over all pixels of each input."""
    means, covariances = [], []
    for d in map(pixels, inputs):
        mean = d.mean(0)
        means.append(mean)
        covariances.append(torch.addmm(torch.outer(mean, mean), d.T, d, beta=-1, alpha=1 / len(d)))
    return torch.stack(means), torch.stack(covariances)


def pixels(x: Tensor) -> Tensor:
    """(n, C, H, W) -> (n H W, C), a view if x is in channels-last layout."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def image(flat: Tensor, like: Tensor) -> Tensor:
    """(n H W, C) -> (n, C, H, W) in channels-last layout, with the n, H and W of `like`."""
    n, _, height, width = like.shape
    return flat.view(n, height, width, -1).permute(0, 3, 1, 2)
