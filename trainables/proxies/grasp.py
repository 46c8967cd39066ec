"""GraSP: weight times Hessian times gradient. Shu 2022, Eq. 7.3; Wang et al. 2020; note P1.

Let W be the weights of all convolutions and linear layers, L the mean cross-entropy, g = dL/dW and H = d^2L/dW^2.
The value is -theta^T H g = -sum_l theta_l^T (H g)_l, l over layers.

A layer whose output goes into a batch normalisation (batch statistics) and nowhere else is *scale invariant*:
L(a theta_l, rest) = L(theta_l, rest) for every a > 0. Differentiated by a at a = 1 this says theta_l^T g_l = 0 for all
values of all weights. Differentiated once more, by the weights of another layer k and by its own,

    theta_l^T H_lk = 0 (k != l),    theta_l^T H_ll + g_l^T = 0,

so theta_l^T (H g)_l = sum_k theta_l^T H_lk g_k = -||g_l||^2: no second backward pass. For the set O of all other layers
let s = sum_{l in O} theta_l^T g_l with theta held constant. Then sum_{l in O} theta_l^T (H g)_l = g^T (ds/dW), which
has the cross terms of O with every layer. Together

    -theta^T H g = sum_{l not in O} ||g_l||^2 - g^T (ds/dW).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from archray.trainables.proxies.layers import Call


def grasp(loss: Tensor, weights: Sequence[Tensor], invariant: Sequence[bool] | None = None) -> float:
    """-theta^T H g over `weights`.

    loss: scalar with its graph, which is kept. weights: tensors of the graph. invariant: for each weight whether the
    loss does not depend on its scale (see `scale_invariant`); None: none is, the plain double backward.
    """
    return float(grasp_and_gradients(loss, weights, invariant)[0])


def grasp_and_gradients(
    loss: Tensor, weights: Sequence[Tensor], invariant: Sequence[bool] | None = None
) -> tuple[Tensor, list[Tensor]]:
    """The value of `grasp` (float64 scalar) and the gradients of `weights`, which it needs anyway."""
    flags = list(invariant) if invariant is not None else [False] * len(weights)
    others = [weight for weight, is_invariant in zip(weights, flags, strict=True) if not is_invariant]
    # The gradients of the other layers first: their graph covers only the layers above them.
    graph_gradients = torch.autograd.grad(loss, others, create_graph=True, allow_unused=True, materialize_grads=True)
    gradients = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
    value = torch.zeros((), dtype=torch.float64, device=loss.device)
    for gradient, is_invariant in zip(gradients, flags, strict=True):
        if is_invariant:
            value += gradient.double().square().sum()
    terms = [(weight.detach() * g).sum() for weight, g in zip(others, graph_gradients, strict=True)]
    if not terms or not any(term.requires_grad for term in terms):
        return value, list(gradients)
    products = torch.autograd.grad(
        torch.stack(terms).sum(), weights, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    for product, gradient in zip(products, gradients, strict=True):
        value -= (product.double() * gradient).sum()
    return value, list(gradients)


def scale_invariant(calls: Sequence[Call], logits: Tensor) -> list[bool]:
    """For each weight, in the order of first calls, whether the loss does not depend on its scale.

    True when the weight is used once, by a call whose output goes into a batch normalisation with batch statistics and
    nowhere else. Read from the autograd graph of `logits`, so functional calls count as well; what is not recognised is
    False, which costs time and no correctness.
    """
    consumers = _consumers(logits)
    uses: dict[int, list[Call]] = {}
    for call in calls:
        uses.setdefault(id(call.layer.weight), []).append(call)
    return [len(group) == 1 and _normalised(group[0], consumers) for group in uses.values()]


def _normalised(call: Call, consumers: dict[object, list[tuple[object, int, int]]]) -> bool:
    readers = consumers.get(call.edge.node, [])
    if len(readers) != 1:
        return False
    node, position, output_nr = readers[0]
    is_batch_norm = "BatchNorm" in type(node).__name__ and getattr(node, "_saved_training", False)
    return bool(is_batch_norm and position == 0 and output_nr == call.edge.output_nr)


def _consumers(logits: Tensor) -> dict[object, list[tuple[object, int, int]]]:
    """For each node of the graph the nodes that read it, as (node, position among its inputs, which output)."""
    consumers: dict[object, list[tuple[object, int, int]]] = {}
    seen, stack = {logits.grad_fn}, [logits.grad_fn]
    while stack:
        node = stack.pop()
        assert node is not None
        for position, (source, output_nr) in enumerate(node.next_functions):
            if source is None:
                continue
            consumers.setdefault(source, []).append((node, position, output_nr))
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return consumers
