"""Norm of the loss gradient. Shu 2022, Eq. 7.2; Abdelfattah et al. 2021; note P1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def gradient_norm(gradients: Sequence[Tensor], variant: Literal["layers", "global"] = "layers") -> float:
    """M_grad of the gradients of the mean cross-entropy.

    `layers` (note P1; what the thesis' results come from): sum over l of ||g_l||_2, g over the weights of
    convolutions and linear layers. `global` (Eq. 7.2): ||g||_2, with g over all parameters.
    """
    norms = torch.stack([gradient.double().norm() for gradient in gradients])
    return float(norms.sum() if variant == "layers" else norms.norm())


def _theta(shared: SharedPass) -> Sequence[Tensor]:
    return shared.record.weights if shared.settings.grad_norm == "layers" else shared.parameters


@proxy(direction="max", gradients_by=_theta)
def grad_norm(shared: SharedPass) -> float:
    return gradient_norm(shared.loss_gradients(_theta(shared)), shared.settings.grad_norm)
