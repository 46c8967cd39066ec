"""Loss gradient times weight, with its sign. Mozer and Smolensky 1989; Abdelfattah et al. 2021; note P1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def _weights(shared: SharedPass) -> Sequence[Tensor]:
    return shared.record.weights


@proxy(direction="max", gradients_by=_weights)
def plain(shared: SharedPass) -> float:
    """sum over l of theta_l^T g_l, over the weights of convolutions and linear layers, g of the mean cross-entropy.

    A layer followed by batch normalisation adds nothing but rounding (note P1): what is left is the classifier, and
    convolutions without a normalisation behind them.
    """
    weights = _weights(shared)
    products = [(w.detach().double() * g).sum() for w, g in zip(weights, shared.loss_gradients(weights), strict=True)]
    return float(torch.stack(products).sum())
