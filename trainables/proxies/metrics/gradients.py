"""Metrics from gradients of the loss and from the neural tangent kernel.

Shu 2022, Eq. 6.6, 6.7, 7.2 to 7.4, D.11 and Theorem 7.2; notes P1 to P4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from archray.registry import LazyModule
from archray.trainables.proxies.registry import PROXIES, NoScore, proxy

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
    """M_grad, the norm of the gradients of the mean cross-entropy.

    `layers` (note P1; used for the results in Shu 2022): sum over l of ||g_l||_2, g over the weights of
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
    |theta^T g| over all parameters. The latter is nearly zero under batch normalization, where theta_l^T g_l = 0.
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

    A layer that is followed by batch normalization adds only rounding errors (note P1). The classifier and convolutions
    without a following normalization contribute.
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

    a: (m, C, ...) outputs of convolutions and linear layers; b: their gradients of the mean cross-entropy.
    """
    total = torch.zeros((), dtype=torch.float64, device=shared.record.logits.device)
    calls = shared.record.calls
    for call, gradient in zip(calls, shared.loss_gradients(shared.record.edges), strict=True):
        product = call.output * gradient
        if isinstance(call.layer, torch.nn.Linear):  # its channels are last
            product = product.movedim(-1, 1)
        if product.ndim > 2:
            product = product.flatten(2).sum(2)  # (m, C)
        total += product.double().square().mean(0).sum() / 2
    return float(total)


def _by_tangents(shared: SharedPass) -> bool:
    return shared.settings.grasp == "signed" and shared.has_tangents


def _tangent_targets(shared: SharedPass) -> Sequence[Target]:
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
    """-theta^T H g, by a double backward pass, or by `tangents.py` if it covers all layers."""
    record = shared.record
    if _by_tangents(shared):
        weights = {id(w): g for w, g in zip(record.weights, shared.loss_gradients(record.weights), strict=True)}
        outputs, norm_outputs = shared.loss_gradients(record.edges), shared.loss_gradients(record.norm_edges)
        return -tangents.theta_hessian_gradient(shared.network, record, shared.images, weights, outputs, norm_outputs)
    attention = torch.nn.attention  # its faster kernels cannot be differentiated twice
    with attention.sdpa_kernel(attention.SDPBackend.MATH):
        # a graph that can be differentiated twice
        loss = torch.nn.functional.cross_entropy(shared.network(shared.images), shared.labels)
    if shared.settings.grasp == "signed":
        return double_backward(loss, record.weights)
    return abs(double_backward(loss, shared.parameters))


def double_backward(loss: Tensor, weights: Sequence[Tensor]) -> float:
    """Computes -theta^T H g, g = dL/dtheta and H = d^2L/dtheta^2, by a double backward pass.

    Eq. 7.3 without | |; note P1.

    Args:
        loss: Scalar with its graph, which is kept.
        weights: Tensors of the graph.
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


# The neural tangent kernel -------------------------------------------------------------------------------------------


def root_mean_trace(gram: Tensor) -> float:
    """Computes M_trace = sqrt(tr(Theta) / m), Eq. 7.4. gram: (m, m)."""
    return float((gram.trace() / len(gram)).sqrt())


@PROXIES.register("ntk_trace")
@proxy(direction="max", summary="Root of the mean diagonal of the neural tangent kernel", source="Shu 2022, Eq. 7.4")
def ntk_trace(shared: SharedPass) -> float:
    return root_mean_trace(shared.gram)


@PROXIES.register("ntk_trace_batch")
@proxy(
    direction="max",
    summary="Trace norm of the neural tangent kernel, approximated on one mini-batch",
    source="Shu 2022, Eq. 6.7",
    gradients_by=lambda shared: shared.parameters,
)
def ntk_trace_batch(shared: SharedPass) -> float:
    """||b^-1 sum_x grad L_x||^2 over all parameters, Eq. 6.7 per image, without m / gamma, equal for all networks.

    This is NASI's objective for a standalone network: `nasi.trace_norm` with the approximation `batch`. It is the
    square of `grad_norm` in its variant `global` and ranks a pool identically, but means over a pool (nu of Eq. 6.14)
    and penalties differ. `ntk_trace` uses the label's logit instead of the loss, and single images instead of the mean.
    """
    norms = torch.stack([gradient.double().norm() for gradient in shared.loss_gradients(shared.parameters)])
    return float(norms.norm()) ** 2


@PROXIES.register("ntk_trace_samples")
@proxy(
    direction="max",
    summary="Trace norm of the neural tangent kernel, approximated by samples' gradients",
    source="Shu 2022, the first bound of Eq. 6.6",
)
def ntk_trace_samples(shared: SharedPass) -> float:
    """b^-1 sum_x ||grad L_x||^2 over all parameters, where L_x is the cross-entropy of image x.

    This is `nasi.trace_norm` with the approximation `samples`, for a standalone network. Gradients include the effect
    of an image on the others through batch normalization. It takes b backward passes, `ntk_trace_batch` one.
    """
    losses = torch.nn.functional.cross_entropy(shared.record.logits, shared.labels, reduction="none")  # (b,)
    total = torch.zeros((), dtype=torch.float64, device=losses.device)
    for loss in losses:
        total += tangents.squared_norm(
            torch.autograd.grad(loss, shared.parameters, retain_graph=True, allow_unused=True)
        )
    return float(total) / len(losses)


def root_mean_entry(gram: Tensor) -> float:
    """Computes M_KNAS = sqrt(|sum_ij Theta_ij| / m^2), Eq. D.11: the norm of the mean of the per-sample gradients.

    gram: (m, m). With the per-sample gradients of note P2 this is ||grad sum_i f_{y_i}(x_i)|| / m (note P3).
    """
    return float(gram.double().sum().abs().sqrt() / len(gram))


@PROXIES.register("knas")
@proxy(
    direction="max",
    summary="Root of the mean entry of the neural tangent kernel",
    source="Xu et al. 2021; Shu 2022, Eq. D.11; note P3",
)
def knas(shared: SharedPass) -> float:
    return root_mean_entry(shared.gram)


class DegenerateKernel(NoScore):
    """The kernel has no condition number, because it is not finite or its smallest eigenvalue is not positive."""


def condition_number(gram: Tensor, rounding: float = 0.0) -> float:
    """Computes kappa = lambda_max(Theta) / lambda_min(Theta), Theorem 7.2, in float64.

    Args:
        gram: (m, m) symmetric.
        rounding: eps of the type in which `gram` was computed.

    Raises: DegenerateKernel if an entry is not finite, or lambda_min / lambda_max is not above the rounding of `gram`
        and of the eigenvalues (m times the eps of float64; note P4).
    """
    if not bool(gram.isfinite().all()):
        raise DegenerateKernel("the kernel has entries that are not finite")
    eigenvalues = torch.linalg.eigvalsh(gram.double())  # ascending
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    if low <= max(0.0, max(rounding, len(gram) * torch.finfo(torch.float64).eps) * high):
        raise DegenerateKernel(
            f"expected a positive lambda_min of the kernel, got {low:.3g} with lambda_max {high:.3g}"
        )
    return high / low


@PROXIES.register("kappa")
@proxy(
    direction="min", summary="Condition number of the neural tangent kernel", source="Shu 2022, Theorem 7.2; note P4"
)
def kappa(shared: SharedPass) -> float:
    return condition_number(shared.gram, torch.finfo(shared.record.logits.dtype).eps)
