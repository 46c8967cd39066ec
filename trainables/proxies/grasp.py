"""GraSP: weight times Hessian times gradient. Shu 2022, Eq. 7.3; Wang et al. 2020; note P1.

Two ways to the same number: the double backward pass, for any network, and `tangents.py`, for known layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def grasp(loss: Tensor, weights: Sequence[Tensor]) -> float:
    """-theta^T H g with g = dL/dtheta and H = d^2L/dtheta^2, by a double backward pass. Eq. 7.3 without | |.

    With theta the weights of convolutions and linear layers and L the mean cross-entropy this is what the thesis'
    results come from (note P1).

    loss: scalar with its graph, which is kept. weights: tensors of the graph.
    """
    gradients = torch.autograd.grad(loss, weights, create_graph=True, allow_unused=True, materialize_grads=True)
    along = torch.stack(
        [(gradient * weight.detach()).sum() for gradient, weight in zip(gradients, weights, strict=True)]
    )
    if not along.requires_grad:  # a loss linear in the weights
        return 0.0
    products = torch.autograd.grad(along.sum(), weights, retain_graph=True, allow_unused=True, materialize_grads=True)
    terms = [(h * g.detach()).sum(dtype=torch.float64) for h, g in zip(products, gradients, strict=True)]
    return -float(torch.stack(terms).sum())
