"""Trace norm of the neural tangent kernel, approximated by samples' gradients. Shu 2022, the first bound of Eq. 6.6."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from archray.trainables.proxies.proxy_registry import proxy
from archray.trainables.proxies.shared_pass import SharedPass


@proxy(direction="max")
def ntk_trace_samples(shared: SharedPass) -> float:
    """b^-1 sum_x ||grad L_x||^2 over all parameters, of L_x the cross-entropy of image x.

    `nasi.trace_norm` with the approximation `samples`, of a network of its own. A gradient is that of the loss, batch
    normalisation and all, in which images meet: b backward passes, where `ntk_trace_batch` takes one.
    """
    losses = F.cross_entropy(shared.record.logits, shared.labels, reduction="none")  # (b,)
    total = 0.0
    for loss in losses:
        gradients = torch.autograd.grad(loss, shared.parameters, retain_graph=True, allow_unused=True)
        total += sum(float(g.double().square().sum()) for g in gradients if g is not None)
    return total / len(losses)
