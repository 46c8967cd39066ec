"""Metrics of the loss gradient by weights and activations. Shu 2022, Eq. 7.2 and 7.3; note P1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from archray.registry import LazyModule
from archray.trainables.proxies.registry import PROXIES, proxy

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from archray.trainables.proxies import tangents
    from archray.trainables.proxies.shared_pass import SharedPass, Target
else:
    torch, tangents = LazyModule("torch"), LazyModule("archray.trainables.proxies.tangents")


def _norm_theta(shared: SharedPass) -> Sequence[Tensor]:
    return shared.record.weights if shared.settings.grad_norm == "layers" else shared.parameters


@PROXIES.register("grad_norm")
@proxy(
    direction="max",
    summary="Norm of the loss gradient",
    source="Shu 2022, Eq. 7.2; Abdelfattah et al. 2021; note P1",
    gradients_by=_norm_theta,
)
def grad_norm(shared: SharedPass) -> float:
    """M_grad of the gradients of the mean cross-entropy.

    `layers` (note P1; what the thesis' results come from): sum over l of ||g_l||_2, g over the weights of
    convolutions and linear layers. `global` (Eq. 7.2): ||g||_2, with g over all parameters.
    """
    norms = torch.stack([gradient.double().norm() for gradient in shared.loss_gradients(_norm_theta(shared))])
    return float(norms.sum() if shared.settings.grad_norm == "layers" else norms.norm())


def _snip_theta(shared: SharedPass) -> Sequence[Tensor]:
    return shared.record.weights if shared.settings.snip == "absolute" else shared.parameters


@PROXIES.register("snip")
@proxy(
    direction="max",
    summary="Loss gradient times weight (connection sensitivity)",
    source="Lee et al. 2019; Shu 2022, Eq. 7.3; note P1",
    gradients_by=_snip_theta,
)
def snip(shared: SharedPass) -> float:
    """M_SNIP of weights theta and the gradients g of the mean cross-entropy.

    `absolute` (note P1): sum |theta * g| over the weights of convolutions and linear layers. `signed` (Eq. 7.3):
    |theta^T g| over all parameters; nearly empty under batch normalisation, where theta_l^T g_l = 0.
    """
    theta = _snip_theta(shared)
    products = [w.detach().double() * g for w, g in zip(theta, shared.loss_gradients(theta), strict=True)]
    if shared.settings.snip == "absolute":
        return float(torch.stack([product.abs().sum() for product in products]).sum())
    return float(torch.stack([product.sum() for product in products]).sum().abs())


@PROXIES.register("plain")
@proxy(
    direction="max",
    summary="Loss gradient times weight, with its sign",
    source="Mozer and Smolensky 1989; Abdelfattah et al. 2021; note P1",
    gradients_by=lambda shared: shared.record.weights,
)
def plain(shared: SharedPass) -> float:
    """sum over l of theta_l^T g_l, over the weights of convolutions and linear layers, g of the mean cross-entropy.

    A layer followed by batch normalisation adds nothing but rounding (note P1): what is left is the classifier, and
    convolutions without a normalisation behind them.
    """
    weights = shared.record.weights
    products = [(w.detach().double() * g).sum() for w, g in zip(weights, shared.loss_gradients(weights), strict=True)]
    return float(torch.stack(products).sum())


@PROXIES.register("fisher")
@proxy(
    direction="max",
    summary="Activation times its gradient, squared",
    source="Theis et al. 2018; over layers as Abdelfattah et al. 2021",
    gradients_by=lambda shared: shared.record.edges,
    copies_outputs=True,
)
def fisher(shared: SharedPass) -> float:
    """Fisher information of channels: sum over layers and channels of (1 / 2m) sum_i (sum_s a_isc b_isc)^2.

    a: (m, C, ...) the outputs of convolutions and linear layers, b their gradients of the mean cross-entropy.
    """
    total = torch.zeros((), dtype=torch.float64)
    calls = shared.record.calls
    for call, gradient in zip(calls, shared.loss_gradients(shared.record.edges), strict=True):
        product = call.output * gradient
        if isinstance(call.layer, torch.nn.Linear):  # it has its channels last
            product = product.movedim(-1, 1)
        if product.ndim > 2:
            product = product.flatten(2).sum(2)  # (m, C)
        total += product.double().square().mean(0).sum().cpu() / 2
    return float(total)


def _by_tangents(shared: SharedPass) -> bool:
    return shared.settings.grasp == "signed" and shared.has_tangents


def _tangent_targets(shared: SharedPass) -> Sequence[Target]:
    """What tangents need the gradients by; nothing for a double backward pass."""
    record = shared.record
    return [*record.weights, *record.edges, *record.norm_edges] if _by_tangents(shared) else []


@PROXIES.register("grasp")
@proxy(
    direction="max",
    summary="Weight times Hessian times gradient, negated",
    source="Shu 2022, Eq. 7.3; Wang et al. 2020; note P1",
    gradients_by=_tangent_targets,
)
def grasp(shared: SharedPass) -> float:
    """Two ways to the same number: the double backward pass, for any network, and `tangents.py`, for known layers."""
    record = shared.record
    if _by_tangents(shared):
        weights = {id(w): g for w, g in zip(record.weights, shared.loss_gradients(record.weights), strict=True)}
        outputs, norm_outputs = shared.loss_gradients(record.edges), shared.loss_gradients(record.norm_edges)
        return -tangents.theta_hessian_gradient(shared.network, record, shared.images, weights, outputs, norm_outputs)
    attention = torch.nn.attention  # its faster kernels cannot be differentiated twice
    with attention.sdpa_kernel(attention.SDPBackend.MATH):
        # a graph to differentiate twice
        loss = torch.nn.functional.cross_entropy(shared.network(shared.images), shared.labels)
    if shared.settings.grasp == "signed":
        return double_backward(loss, record.weights)
    return abs(double_backward(loss, shared.parameters))


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
