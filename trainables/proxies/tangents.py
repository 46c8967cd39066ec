"""theta^T H g without a second backward pass, by two passes of tangents through a network of known layers.

L is the loss and H = d^2L/dW^2 over the weights W of convolutions and linear layers. theta^T H g is the mixed second
derivative of L along theta and g. Let x_s, x_t be the derivatives of an activation x along theta and g, and b the
gradient of L by a layer's output. By the chain rule, each layer adds a term:

- convolution or linear layer z = w * x:  z_s = w * x_s + w * x and z_t = w * x_t + g * x; it adds
  <b, g * x_s + w * x_t>. Along theta the weight's part w * x is the recorded output.
- batch normalization y = gamma yhat + beta, yhat = r (x - mean), r = (var + eps)^-1/2:  y_s = J x_s with J its
  symmetric Jacobian; it adds, per channel and summed, with alpha_s = mean(yhat x_s),
  <b, y_st> = -r [alpha_t <b, y_s> + alpha_s <b, y_t> + gamma r (cov(x_s, x_t) - alpha_s alpha_t) <b, yhat>].
- ReLU passes tangents of active units; other linear layers map tangents like activations.
- mean cross-entropy of logits f, p = softmax(f): adds <f_s, (diag(p) - p p^T) f_t> / m.

Nothing is approximated. It takes four forward convolutions per layer and no graph. (The identities of note P1 would
save two of the four, but hold for eps = 0 only: the parts of the sum nearly cancel, and in NAS-Bench-201 with N = 5
an eps of 1e-5 causes a relative error of 1e-4 to 1e-1.)
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.trainables.proxies import layers
from archray.trainables.proxies.gram import padded
from archray.trainables.proxies.layers import Record, channel_sum, is_channels_last

BLOCK = 2**18  # numbers that are multiplied at once: 1 MiB of float32, the size of a CPU core's cache

# Nodes of the autograd graph that are linear for all arguments.
LINEAR_NODES = {
    "AccumulateGrad",
    "AdaptiveAvgPool2DBackward0",
    "AsStridedBackward0",
    "AsStridedBackward1",
    "AvgPool2DBackward0",
    "CatBackward0",
    "CloneBackward0",
    "MeanBackward1",
    "ReshapeAliasBackward0",
    "ShiftedAveragePoolBackward",
    "SliceBackward0",
    "SqueezeBackward1",
    "SumBackward1",
    "TBackward0",
    "UnsafeViewBackward0",
    "ViewBackward0",
}


def recognized(record: Record) -> bool:
    """Whether `theta_hessian_gradient` covers all nodes of the network's graph. If not, use a double backward pass.

    Convolutions, linear layers, batch normalizations and ReLUs must be modules, whose forward can be replaced.
    """
    linear = {call.node for call in record.calls}
    norms = {call.node for call in record.norms}
    relus = {call.node for call in record.relus}
    if None in linear | norms or not all(call.intact for call in record.calls):
        return False
    root = record.logits.grad_fn
    seen: set[Any] = {root}
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        name = type(node).__name__
        sources = [source for source, _ in node.next_functions]
        if name in ("ConvolutionBackward0", "AddmmBackward0", "MmBackward0"):
            covered = node in linear
        elif name in layers.NORM_NODES:
            covered = node in norms and layers.norm_statistics(node) is not None
        elif name == "ReluBackward0":
            covered = node in relus
        else:
            # A constant or a parameter outside these layers has no tangent, but would be added like one.
            leaf = any(type(source).__name__ == "AccumulateGrad" for source in sources)
            covered = node._saved_alpha == 1 if name == "AddBackward0" else name in LINEAR_NODES
            covered = covered and None not in sources and (not leaf or name == "TBackward0")
        if not covered:
            return False
        for source in sources:
            if source is not None and source not in seen:
                seen.add(source)
                stack.append(source)
    return True


@torch.no_grad()
def theta_hessian_gradient(
    network: nn.Module,
    record: Record,
    images: Tensor,
    weights: dict[int, Tensor],
    outputs: Sequence[Tensor],
    norm_outputs: Sequence[Tensor],
) -> float:
    """Computes theta^T H g for the mean cross-entropy.

    Args:
        network: Module of `record`, which `recognized` accepts; it runs twice.
        images: (m, C, H, W).
        weights: Gradients of the mean cross-entropy by each weight, by the weight's id.
        outputs: (m, ...) gradients by the output of each call of a weight layer.
        norm_outputs: (m, C, ...) gradients by the output of each batch normalization.
    """
    tangents = _Tangents(record, weights, outputs, norm_outputs)
    no_tangent = torch.zeros_like(images)
    with layers.shifted_sums(network):
        with _instead(record, tangents.theta_map, tangents.theta_norm, tangents.relu):
            logits_s = network(no_tangent)
        with _instead(record, tangents.gradient_map, tangents.gradient_norm, tangents.relu):
            logits_t = network(no_tangent)
    p = record.logits.detach().softmax(1)  # (m, K)
    curved = p * (logits_t - (p * logits_t).sum(1, keepdim=True))  # (diag(p) - p p^T) f_t
    return float(tangents.total()) + float((logits_s * curved).double().sum()) / len(p)


class _Tangents:
    """The maps of tangents in each layer, and the sum of the layers' terms."""

    def __init__(
        self, record: Record, weights: dict[int, Tensor], outputs: Sequence[Tensor], norm_outputs: Sequence[Tensor]
    ) -> None:
        self.record, self.weights, self.outputs, self.norm_outputs = record, weights, outputs, norm_outputs
        self.along_theta: dict[int, _NormTangent] = {}
        self.sums: list[tuple[Tensor, ...]] = []  # for each normalization, (C,) each
        self.added: list[Tensor] = []
        self.readers = Counter(call.node for call in record.relus)
        self.unread: dict[Any, list[Tensor]] = {}

    def theta_map(self, i: int, x_s: Tensor) -> Tensor:
        call = self.record.calls[i]
        layer = call.layer
        self.added.append(inner_product(self.outputs[i], _apply(layer, self.weights[id(layer.weight)], x_s)))
        z_s = _apply(layer, layer.weight, x_s)
        z_s += call.output
        if layer.bias is not None:  # a bias is not one of the weights
            z_s -= layer.bias if isinstance(layer, nn.Linear) else layer.bias.view(-1, *[1] * (z_s.ndim - 2))
        return z_s

    def gradient_map(self, i: int, x_t: Tensor) -> Tensor:
        call = self.record.calls[i]
        layer = call.layer
        z_t = _apply(layer, layer.weight, x_t)
        self.added.append(inner_product(self.outputs[i], z_t))
        z_t += _apply(layer, self.weights[id(layer.weight)], call.input)
        return z_t

    def theta_norm(self, j: int, x_s: Tensor) -> Tensor:
        y_s, self.along_theta[j] = self._norm(j, x_s)
        return y_s

    def gradient_norm(self, j: int, x_t: Tensor) -> Tensor:
        y_t, t = self._norm(j, x_t)
        s = self.along_theta.pop(j)
        call, b = self.record.norms[j], self.norm_outputs[j]
        mean, r = self._statistics(j)
        gamma = torch.ones_like(r) if call.layer.weight is None else call.layer.weight
        along_output = r * (channel_products(b, call.input) - mean * channel_sum(b))  # <b, yhat>
        count = call.input.numel() // call.input.shape[1]
        covariance = channel_products(s.x, t.x) / count - s.mean * t.mean
        self.sums.append((r, gamma, s.alpha, s.along, t.alpha, t.along, covariance, along_output))
        return y_t

    def total(self) -> Tensor:
        """Sums the terms of all layers in float64."""
        total = torch.stack(self.added).sum()
        if self.sums:
            r, gamma, alpha_s, along_s, alpha_t, along_t, covariance, along_output = (
                torch.cat(parts).double() for parts in zip(*self.sums, strict=True)
            )
            curved = gamma * r * (covariance - alpha_s * alpha_t) * along_output
            total = total - (r * (alpha_t * along_s + alpha_s * along_t + curved)).sum()
        return total

    def _norm(self, j: int, x_s: Tensor) -> "tuple[Tensor, _NormTangent]":
        """Computes y_s = J x_s, and its part of the sum."""
        call = self.record.norms[j]
        mean, r = self._statistics(j)
        # J is symmetric, so the backward kernel applies it. Its other results are sum(yhat x_s) and sum(x_s).
        y_s, scale, shift = layers.norm_backward(x_s, call.input, call.layer.weight, mean, r, call.layer.eps)
        count = x_s.numel() // x_s.shape[1]
        along = channel_products(self.norm_outputs[j], y_s)  # <b, y_s>
        return y_s, _NormTangent(x_s, shift / count, scale / count, along)

    def _statistics(self, j: int) -> tuple[Tensor, Tensor]:
        statistics = layers.norm_statistics(self.record.norms[j].node)
        assert statistics is not None  # `recognized` checks it
        return statistics

    def relu(self, i: int, x_s: Tensor) -> Tensor:
        call = self.record.relus[i]
        if call.node is None or self.readers[call.node] == 1:
            return torch.ops.aten.threshold_backward(x_s, call.output, 0)
        if not (outputs := self.unread.setdefault(call.node, [])):  # computed once for all ReLUs that share the output
            outputs += [torch.ops.aten.threshold_backward(x_s, call.output, 0)] * self.readers[call.node]
        return outputs.pop()


@dataclass
class _NormTangent:
    """A tangent x (m, C, ...) at a normalization; per channel (C,) its mean, alpha = mean(yhat x) and <b, J x>."""

    x: Tensor
    mean: Tensor
    alpha: Tensor
    along: Tensor


def _instead(
    record: Record,
    weight_map: Callable[[int, Tensor], Tensor],
    norm: Callable[[int, Tensor], Tensor],
    relu: Callable[[int, Tensor], Tensor],
) -> AbstractContextManager[None]:
    """Makes recorded modules map tangents within the context: call i of a kind is `action(i, tangent)`."""
    forwards: dict[nn.Module, Callable[[Tensor], Tensor]] = {}
    for calls, action in ((record.calls, weight_map), (record.norms, norm), (record.relus, relu)):
        numbers: dict[nn.Module, list[int]] = {}
        for number, call in enumerate(calls):
            numbers.setdefault(call.layer, []).append(number)
        forwards |= {module: _numbered(action, of_module) for module, of_module in numbers.items()}
    return layers.replaced_forwards(forwards)


def _numbered(action: Callable[[int, Tensor], Tensor], numbers: list[int]) -> Callable[[Tensor], Tensor]:
    remaining = iter(numbers)
    return lambda tangent: action(next(remaining), tangent)


def _apply(layer: Any, weight: Tensor, x: Tensor) -> Tensor:
    """Applies the layer's linear map with another weight and no bias."""
    if isinstance(layer, nn.Linear):
        return F.linear(x, weight)
    x, padding = padded(layer, x)
    return torch.convolution(
        x, weight, None, layer.stride, padding, layer.dilation, False, [0] * len(padding), layer.groups
    )


def inner_product(a: Tensor, b: Tensor) -> Tensor:
    """Computes <a, b> in float64. float32 tensors are summed in parts, for precision."""
    if is_channels_last(a) and is_channels_last(b):  # a dot product per sample makes no copy
        rows, columns = (x.permute(0, 2, 3, 1).reshape(len(x), 1, -1) for x in (a, b))
        return torch.bmm(rows, columns.transpose(1, 2)).sum(dtype=torch.float64)
    return (a * b).sum().double()


def squared_norm(tensors: Iterable[Tensor | None]) -> Tensor:
    """Computes the sum of the squares of all entries in float64, on the tensors' device. None counts as zero."""
    return torch.stack([tensor.double().square().sum() for tensor in tensors if tensor is not None]).sum()


def channel_products(a: Tensor, b: Tensor) -> Tensor:
    """Computes <a, b> per channel, (C,), for some samples at a time."""
    if a.numel() <= BLOCK:
        return channel_sum(a * b)
    step = max(1, len(a) * BLOCK // a.numel())
    return torch.stack([channel_sum(x * y) for x, y in zip(a.split(step), b.split(step), strict=True)]).sum(0)
