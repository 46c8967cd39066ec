"""Activation times its gradient, squared. Theis et al. 2018; over layers as Abdelfattah et al. 2021."""

from __future__ import annotations

import torch
from torch import nn

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


@proxy(direction="max", gradients_by=lambda shared: shared.record.edges, copies_outputs=True)
def fisher(shared: SharedPass) -> float:
    """Fisher information of channels: sum over layers and channels of (1 / 2m) sum_i (sum_s a_isc b_isc)^2.

    a: (m, C, ...) the outputs of convolutions and linear layers, b their gradients of the mean cross-entropy.
    """
    total = torch.zeros((), dtype=torch.float64)
    calls = shared.record.calls
    for call, gradient in zip(calls, shared.loss_gradients(shared.record.edges), strict=True):
        product = call.output * gradient
        if isinstance(call.layer, nn.Linear):  # it has its channels last
            product = product.movedim(-1, 1)
        if product.ndim > 2:
            product = product.flatten(2).sum(2)  # (m, C)
        total += product.double().square().mean(0).sum().cpu() / 2
    return float(total)
