"""Batch normalisation by the batch's statistics, with sums that keep their digits in channels-last layout.

torch's kernel for channels last on the CPU adds up a channel in one float32 after the other: at 64 x 32 x 32 values its
standard deviation is off by 6e-6, where the kernel for contiguous tensors is off by 6e-8. That switches ten times as
many ReLU units whose input is nearly zero, and moves the metrics by up to 5e-4. Here the two sums are pairwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

# Mean square over variance from which E[x^2] - E[x]^2 loses digits that float32 has.
FAR = 16.0

NODES = {"NativeBatchNormBackward0", "CudnnBatchNormBackward0", "PairwiseBatchNormBackward"}


class PairwiseBatchNorm(torch.autograd.Function):
    """y = gamma (x - mean) r + beta with r = (var + eps)^-1/2, over (m, C, H, W) in channels-last layout, float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float) -> Tensor:
        count = x.numel() // x.shape[1]
        mean = x.sum([0, 2, 3], dtype=torch.float32).double() / count  # (C,)
        var = (x * x).sum([0, 2, 3]).double() / count - mean.square()
        if bool((mean.square() > FAR * var).any()):  # the difference of two large numbers: centre first
            var = (x - mean.float().view(1, -1, 1, 1)).square().sum([0, 2, 3]).double() / count
        r = (var + eps).rsqrt().float()
        y: Tensor = torch.native_batch_norm(x, gamma, beta, mean.float(), var.float(), False, 0.0, eps)[0]
        ctx.save_for_backward(x, gamma, mean.float(), r)
        ctx.eps = eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, gamma, mean, r = ctx.saved_tensors
        mask = [True, ctx.needs_input_grad[1], ctx.needs_input_grad[2]]
        by_x, by_gamma, by_beta = torch.ops.aten.native_batch_norm_backward(
            gradient, x, gamma, None, None, mean, r, True, ctx.eps, mask
        )
        return by_x, by_gamma, by_beta, None


def statistics(node: Any) -> tuple[Tensor, Tensor] | None:
    """Mean and r = (var + eps)^-1/2, (C,) each, of a batch normalisation's node; None if it used other statistics."""
    if type(node).__name__ == "PairwiseBatchNormBackward":
        _, _, mean, r = node.saved_tensors
        return mean, r
    if type(node).__name__ in NODES and node._saved_training:
        return node._saved_result1, node._saved_result2
    return None


@contextmanager
def pairwise_sums(network: nn.Module) -> Iterator[None]:
    """Within it the network's batch normalisations in train mode take `PairwiseBatchNorm` where it applies."""
    patched = []
    for module in network.modules():
        # A subclass with a forward of its own may do anything.
        if isinstance(module, nn.BatchNorm2d) and type(module).forward is _BatchNorm.forward and module.training:
            module.forward = _normalise(module)  # type: ignore[method-assign]
            patched.append(module)
    try:
        yield
    finally:
        for module in patched:
            del module.forward


def _normalise(module: nn.BatchNorm2d) -> Any:
    def forward(x: Tensor) -> Tensor:
        applies = (
            x.ndim == 4
            and x.device.type == "cpu"
            and x.dtype == torch.float32
            and not x.is_contiguous()
            and x.is_contiguous(memory_format=torch.channels_last)
        )
        if applies:
            return PairwiseBatchNorm.apply(x, module.weight, module.bias, module.eps)
        return type(module).forward(module, x)

    return forward
