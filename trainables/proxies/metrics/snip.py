"""Loss gradient times weight (connection sensitivity). Lee et al. 2019; Shu 2022, Eq. 7.3; note P1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def _theta(shared: SharedPass) -> Sequence[Tensor]:
    return shared.record.weights if shared.settings.snip == "absolute" else shared.parameters


@proxy(direction="max", gradients_by=_theta)
def snip(shared: SharedPass) -> float:
    """M_SNIP of weights theta and the gradients g of the mean cross-entropy.

    `absolute` (note P1): sum |theta * g| over the weights of convolutions and linear layers. `signed` (Eq. 7.3):
    |theta^T g| over all parameters; nearly empty under batch normalisation, where theta_l^T g_l = 0.
    """
    theta = _theta(shared)
    products = [w.detach().double() * g for w, g in zip(theta, shared.loss_gradients(theta), strict=True)]
    if shared.settings.snip == "absolute":
        return float(torch.stack([product.abs().sum() for product in products]).sum())
    return float(torch.stack([product.sum() for product in products]).sum().abs())
