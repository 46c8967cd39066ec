"""Loss gradient times weight (connection sensitivity). Lee et al. 2019; Shu 2022, Eq. 7.3; note P1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def connection_sensitivity(
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


def _theta(shared: SharedPass) -> Sequence[Tensor]:
    return shared.record.weights if shared.settings.snip == "absolute" else shared.parameters


@proxy(direction="max", gradients_by=_theta)
def snip(shared: SharedPass) -> float:
    theta = _theta(shared)
    return connection_sensitivity(theta, shared.loss_gradients(theta), shared.settings.snip)
