"""Activation times its gradient, squared. Theis et al. 2018; over layers as Abdelfattah et al. 2021."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from archray.trainables.proxies.layers import Call
from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def fisher_information(outputs: Sequence[Tensor], output_gradients: Sequence[Tensor]) -> float:
    """Fisher information of channels: sum over layers and channels of (1 / 2m) sum_i (sum_s a_isc b_isc)^2.

    a: (m, C, ...) the outputs of convolutions and linear layers, b their gradients of the mean cross-entropy.
    """
    total = torch.zeros((), dtype=torch.float64)
    for output, gradient in zip(outputs, output_gradients, strict=True):
        product = output * gradient
        if product.ndim > 2:
            product = product.flatten(2).sum(2)  # (m, C)
        total += product.double().square().mean(0).sum().cpu() / 2
    return float(total)


@proxy(direction="max", gradients_by=lambda shared: shared.record.edges, copies_outputs=True)
def fisher(shared: SharedPass) -> float:
    calls = shared.record.calls
    gradients = shared.loss_gradients(shared.record.edges)
    return fisher_information(
        [_channels_second(call, call.output) for call in calls],
        [_channels_second(call, gradient) for call, gradient in zip(calls, gradients, strict=True)],
    )


def _channels_second(call: Call, tensor: Tensor) -> Tensor:
    """An output of the call, or its gradient, as (m, C, ...); a linear layer has its channels last."""
    return tensor.movedim(-1, 1) if isinstance(call.layer, nn.Linear) else tensor
