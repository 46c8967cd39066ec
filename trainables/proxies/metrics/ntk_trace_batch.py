"""Trace norm of the neural tangent kernel, approximated on one mini-batch. Shu 2022, Eq. 6.7."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from archray.trainables.proxies.metrics.grad_norm import gradient_norm
from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


def batch_trace_norm(gradients: Sequence[Tensor]) -> float:
    """||b^-1 sum_x grad L_x||^2, Eq. 6.7 per image: without m / gamma, a constant of all architectures.

    What NASI maximises, of a network of its own: `nasi.trace_norm` with the approximation `batch`. It is the square of
    `grad_norm` in its variant `global`, so it orders a pool as that does; a mean over a pool, which is nu of Eq. 6.14,
    and a penalty above it, are others for a square. `ntk_trace` is the root of the mean diagonal of the kernel itself:
    of the label's logit instead of the loss, of each image instead of their mean.

    gradients: of the mean cross-entropy by all parameters.
    """
    return gradient_norm(gradients, "global") ** 2


def _theta(shared: SharedPass) -> Sequence[Tensor]:
    return shared.parameters


@proxy(direction="max", gradients_by=_theta)
def ntk_trace_batch(shared: SharedPass) -> float:
    return batch_trace_norm(shared.loss_gradients(_theta(shared)))
