"""Metrics of the neural tangent kernel. Shu 2022, Eq. 6.6, 6.7, 7.4, D.11 and Theorem 7.2; notes P2 to P4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import LazyModule
from archray.trainables.proxies.registry import PROXIES, NoScore, proxy

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from archray.trainables.proxies.shared_pass import SharedPass
else:
    torch = LazyModule("torch")


def root_mean_trace(gram: Tensor) -> float:
    """M_trace = sqrt(tr(Theta) / m), Eq. 7.4. gram: (m, m)."""
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
    """||b^-1 sum_x grad L_x||^2 over all parameters, Eq. 6.7 per image: without m / gamma, which all networks share.

    What NASI maximises, of a network of its own: `nasi.trace_norm` with the approximation `batch`. It is the square of
    `grad_norm` in its variant `global`, so it orders a pool as that does; a mean over a pool, which is nu of Eq. 6.14,
    and a penalty above it, are others for a square. `ntk_trace` is the root of the mean diagonal of the kernel itself:
    of the label's logit instead of the loss, of each image instead of their mean.
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
    """b^-1 sum_x ||grad L_x||^2 over all parameters, of L_x the cross-entropy of image x.

    `nasi.trace_norm` with the approximation `samples`, of a network of its own. A gradient is that of the loss, batch
    normalisation and all, in which images meet: b backward passes, where `ntk_trace_batch` takes one.
    """
    losses = torch.nn.functional.cross_entropy(shared.record.logits, shared.labels, reduction="none")  # (b,)
    total = 0.0
    for loss in losses:
        gradients = torch.autograd.grad(loss, shared.parameters, retain_graph=True, allow_unused=True)
        total += sum(float(g.double().square().sum()) for g in gradients if g is not None)
    return total / len(losses)


def root_mean_entry(gram: Tensor) -> float:
    """M_KNAS = sqrt(|sum_ij Theta_ij| / m^2), Eq. D.11: the norm of the mean of the per-sample gradients.

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
    """The kernel has no condition number: its smallest eigenvalue is not positive, or it is not finite."""


def condition_number(gram: Tensor, rounding: float = 0.0) -> float:
    """kappa = lambda_max(Theta) / lambda_min(Theta), Theorem 7.2, in float64.

    gram: (m, m) symmetric. rounding: of the numbers that `gram` was made of (the eps of their type), relative to
    lambda_max: a lambda_min below it has an accidental value and an accidental sign. So has one that the eigenvalues'
    own rounding, m times the eps of float64, may have made.
    Raises: DegenerateKernel if an entry is not finite or lambda_min is not positive (note P4) beyond rounding.
    """
    if not bool(gram.isfinite().all()):
        raise DegenerateKernel("the kernel has entries that are not finite")
    eigenvalues = torch.linalg.eigvalsh(gram.double())  # ascending
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    if low <= max(0.0, max(rounding, len(gram) * torch.finfo(torch.float64).eps) * high):
        raise DegenerateKernel(f"lambda_min of the kernel is not positive: {low:.3g}, lambda_max is {high:.3g}")
    return high / low


@PROXIES.register("kappa")
@proxy(
    direction="min", summary="Condition number of the neural tangent kernel", source="Shu 2022, Theorem 7.2; note P4"
)
def kappa(shared: SharedPass) -> float:
    return condition_number(shared.gram, torch.finfo(shared.record.logits.dtype).eps)
