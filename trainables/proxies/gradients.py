"""Metrics of the loss gradient: grad_norm, snip, fisher. Shu 2022, Eq. 7.2 and 7.3; Abdelfattah et al. 2021."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


def grad_norm(gradients: Sequence[Tensor], variant: Literal["layers", "global"] = "layers") -> float:
    """M_grad of the gradients of the mean cross-entropy.

    `layers` (note P1; what the thesis' results come from): sum over l of ||g_l||_2, g over the weights of
    convolutions and linear layers. `global` (Eq. 7.2): ||g||_2, with g over all parameters.
    """
    norms = torch.stack([gradient.double().norm() for gradient in gradients])
    return float(norms.sum() if variant == "layers" else norms.norm())


def snip(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], variant: Literal["absolute", "signed"] = "absolute"
) -> float:
    """M_SNIP of weights theta and the gradients g of the mean cross-entropy.

    `absolute` (note P1): sum |theta * g| over the weights of convolutions and linear layers. `signed` (Eq. 7.3):
    |theta^T g| over all parameters; nearly empty under batch normalisation, where theta_l^T g_l = 0.
    """
    products = [weight.detach().double() * gradient for weight, gradient in zip(weights, gradients, strict=True)]
    if variant == "absolute":
        return float(torch.stack([product.abs().sum() for product in products]).sum())
    return float(torch.stack([product.sum() for product in products]).sum().abs())


def fisher(outputs: Sequence[Tensor], output_gradients: Sequence[Tensor]) -> float:
    """Fisher information of channels: sum over layers and channels of (1 / 2m) sum_i (sum_s a_isc b_isc)^2.

    a: (m, C, ...) the outputs of convolutions and linear layers, b their gradients of the mean cross-entropy
    (Theis et al. 2018; over layers as Abdelfattah et al. 2021).
    """
    total = torch.zeros((), dtype=torch.float64)
    for output, gradient in zip(outputs, output_gradients, strict=True):
        product = output * gradient
        if product.ndim > 2:
            product = product.flatten(2).sum(2)  # (m, C)
        total += product.double().square().mean(0).sum().cpu() / 2
    return float(total)
