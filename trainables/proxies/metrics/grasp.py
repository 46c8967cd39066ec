"""Weight times Hessian times gradient, negated. Shu 2022, Eq. 7.3; Wang et al. 2020; note P1.

Two ways to the same number: the double backward pass, for any network, and `tangents.py`, for known layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass, Target
from archray.trainables.proxies.tangents import theta_hessian_gradient


def double_backward(loss: Tensor, weights: Sequence[Tensor]) -> float:
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


def _by_tangents(shared: SharedPass) -> bool:
    return shared.settings.grasp == "signed" and shared.known_layers


def _known_layers(shared: SharedPass) -> Sequence[Target]:
    """What tangents need the gradients by; nothing for a double backward pass."""
    record = shared.record
    return [*record.weights, *record.edges, *record.norm_edges] if _by_tangents(shared) else []


@proxy(direction="max", gradients_by=_known_layers)
def grasp(shared: SharedPass) -> float:
    record = shared.record
    if _by_tangents(shared):
        weights = {id(w): g for w, g in zip(record.weights, shared.loss_gradients(record.weights), strict=True)}
        outputs, norm_outputs = shared.loss_gradients(record.edges), shared.loss_gradients(record.norm_edges)
        return -theta_hessian_gradient(shared.network, record, shared.images, weights, outputs, norm_outputs)
    with sdpa_kernel(SDPBackend.MATH):  # torch's faster kernels of attention cannot be differentiated twice
        loss = F.cross_entropy(shared.network(shared.images), shared.labels)  # a graph to differentiate twice
    if shared.settings.grasp == "signed":
        return double_backward(loss, record.weights)
    return abs(double_backward(loss, shared.parameters))
