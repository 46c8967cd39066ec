"""Two implementations of grad_norm, snip, grasp, ntk_trace and kappa as baselines of archray's shared passes.

- `plain`: a pass per metric. grasp uses a double backward pass. ntk_trace and kappa each compute per-sample gradients
  by giving every sample a copy of the weights (note P2), which is faster than the authors' method.
- `authors`: the public part of the program of Shu (2022) (github.com/shuyao95/HNAS, built on the zero-cost-nas of
  Abdelfattah et al. 2021), reimplemented. Every metric uses a separate deep copy, which is garbage-collected
  afterwards. snip differentiates by a mask on each weight. grasp makes a forward and backward pass for g and a second
  pass, differentiated twice. ntk_trace and kappa each compute the kernel's per-sample gradients by hooks, from an
  unfolded input and an einsum per layer (`tools/autograd_hacks.py` there). The use of these gradients in the two
  metrics is not public: here it is one product.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Values = dict[str, float]


def weight_layers(network: nn.Module) -> list[Any]:
    return [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]


def plain(network: nn.Module, images: Tensor, labels: Tensor) -> Values:
    """Computes the metrics with a pass per metric."""
    weights = [layer.weight for layer in weight_layers(network)]
    values = {}
    gradients = torch.autograd.grad(F.cross_entropy(network(images), labels), weights)
    values["grad_norm"] = sum(float(g.norm()) for g in gradients)
    gradients = torch.autograd.grad(F.cross_entropy(network(images), labels), weights)
    values["snip"] = sum(float((w.detach() * g).abs().sum()) for w, g in zip(weights, gradients, strict=True))
    constant = torch.autograd.grad(F.cross_entropy(network(images), labels), weights)
    gradients = torch.autograd.grad(F.cross_entropy(network(images), labels), weights, create_graph=True)
    product = torch.stack([(c * g).sum() for c, g in zip(constant, gradients, strict=True)]).sum()
    products = torch.autograd.grad(product, weights)
    values["grasp"] = -sum(float((w.detach() * h).sum()) for w, h in zip(weights, products, strict=True))
    jacobian = separate_copies_jacobian(network, images, labels)
    values["ntk_trace"] = float((jacobian.square().sum() / len(images)).sqrt())
    jacobian = separate_copies_jacobian(network, images, labels)
    values["kappa"] = condition_number(jacobian)
    return values


def separate_copies_jacobian(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Returns the gradient of the sum of label logits by each sample's copy of the weights (note P2), (m, d)."""
    m = len(images)
    copies: list[Tensor] = []
    layers = weight_layers(network)

    def copied(parameter: Tensor) -> Tensor:
        copies.append(parameter.detach().expand(m, *parameter.shape).clone().requires_grad_())
        return copies[-1]

    def replace(layer: Any) -> None:
        weight = copied(layer.weight)
        bias = copied(layer.bias) if layer.bias is not None else None
        if isinstance(layer, nn.Linear):
            assert bias is not None
            layer.forward = lambda x: torch.baddbmm(bias[:, None], x[:, None], weight.transpose(1, 2))[:, 0]
            return
        assert bias is None and layer.groups == 1

        def convolve(x: Tensor) -> Tensor:  # a group per sample
            y = F.conv2d(
                x.reshape(1, -1, *x.shape[2:]), weight.flatten(0, 1), None, layer.stride, layer.padding, groups=m
            )
            return y.view(m, -1, *y.shape[2:])

        layer.forward = convolve

    for layer in layers:
        replace(layer)
    try:
        total = network(images).gather(1, labels[:, None]).sum()
        gradients = torch.autograd.grad(total, copies)
    finally:
        for layer in layers:
            del layer.forward
    return torch.cat([gradient.flatten(1) for gradient in gradients], 1)


def authors(network: nn.Module, images: Tensor, labels: Tensor) -> Values:
    """Computes every metric on a separate copy of the network."""
    metrics: dict[str, Callable[[nn.Module, Tensor, Tensor], float]] = {
        "grad_norm": authors_grad_norm,
        "snip": authors_snip,
        "grasp": authors_grasp,
        "ntk_trace": lambda *batch: float((unfolded_jacobian(*batch).square().sum() / len(images)).sqrt()),
        "kappa": lambda *batch: condition_number(unfolded_jacobian(*batch)),
    }
    values = {}
    for name, metric in metrics.items():
        values[name] = metric(copy.deepcopy(network), images, labels)
        gc.collect()
    return values


def condition_number(jacobian: Tensor) -> float:
    eigenvalues = torch.linalg.eigvalsh((jacobian @ jacobian.T).double())
    return float(eigenvalues[-1] / eigenvalues[0])


def authors_grad_norm(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    F.cross_entropy(network(images), labels).backward()
    return sum(float(layer.weight.grad.norm()) for layer in weight_layers(network))


def authors_snip(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    masks = []

    def masked(layer: Any) -> Callable[[Tensor], Tensor]:
        mask = torch.ones_like(layer.weight).requires_grad_()
        masks.append(mask)
        layer.weight.requires_grad_(False)
        if isinstance(layer, nn.Linear):
            return lambda x: F.linear(x, layer.weight * mask, layer.bias)
        return lambda x: layer._conv_forward(x, layer.weight * mask, layer.bias)

    for layer in weight_layers(network):
        layer.forward = masked(layer)
    F.cross_entropy(network(images), labels).backward()
    return sum(float(mask.grad.abs().sum()) for mask in masks if mask.grad is not None)


def authors_grasp(network: nn.Module, images: Tensor, labels: Tensor) -> float:
    layers = weight_layers(network)
    weights = [layer.weight for layer in layers]
    constant = torch.autograd.grad(F.cross_entropy(network(images), labels), weights)
    gradients = torch.autograd.grad(F.cross_entropy(network(images), labels), weights, create_graph=True)
    torch.stack([(c * g).sum() for c, g in zip(constant, gradients, strict=True)]).sum().backward()
    return -sum(float((w.detach() * w.grad).sum()) for w in weights)


def unfolded_jacobian(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Returns the per-sample gradients of the sum of label logits, from inputs and output gradients, (m, d)."""
    layers, m = weight_layers(network), len(images)
    inputs: dict[Any, Tensor] = {}
    output_gradients: dict[Any, Tensor] = {}

    def record(layer: Any, arguments: tuple[Tensor], output: Tensor) -> None:
        inputs[layer] = arguments[0].detach()
        output.register_hook(lambda gradient: output_gradients.__setitem__(layer, gradient))

    for layer in layers:
        layer.register_forward_hook(record)
    network(images).gather(1, labels[:, None]).sum().backward()
    rows = []
    for layer in layers:
        x, b = inputs[layer], output_gradients[layer]
        if isinstance(layer, nn.Linear):
            rows.append(torch.einsum("ni,nj->nij", b, x).flatten(1))
        else:
            assert layer.groups == 1
            x = F.unfold(x, layer.kernel_size, dilation=layer.dilation, padding=layer.padding, stride=layer.stride)
            rows.append(torch.einsum("njk,nlk->njl", b.reshape(m, -1, x.shape[-1]), x).flatten(1))
        if layer.bias is not None:
            rows.append(b.flatten(2).sum(2) if b.ndim > 2 else b)
    return torch.cat(rows, 1)
