"""The variance of a network's gradient over instances, exact, without a gradient per instance. Shu 2022, 4.3.2.2.

Var[grad f_i] = E|g_i - E g|^2, g_i the gradient of one instance's loss by all parameters: the noise of a step with a
batch of one. Of a batch of B instances drawn at random it is 1/B of that. Batch normalisation is by running statistics,
else an instance would have no gradient of its own (note U3).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.proxies.gram import bias_gradients, weight_gradients
from archray.trainables.proxies.layers import BATCH_NORMS, WEIGHT_LAYERS, Call, forward

Batch = tuple[Tensor, Tensor]  # images (m, C, H, W), labels (m,)


@dataclass
class _Moments:
    """Sums over instances, parameter by parameter."""

    squares: Tensor  # (), of |g_i|^2, float64
    sums: dict[int, Tensor] = field(default_factory=dict)  # by the parameter's id: of g_i, float64

    def add(self, parts: dict[int, list[Tensor]]) -> None:
        """parts: by the parameter's id the gradients (m, ...) that each of its uses gives the instances."""
        for parameter, uses in parts.items():
            gradients = (torch.stack(uses).sum(0) if len(uses) > 1 else uses[0]).flatten(1)
            self.squares += gradients.square().sum(1).sum(dtype=torch.float64)
            total = gradients.sum(0).double()
            self.sums[parameter] = self.sums[parameter] + total if parameter in self.sums else total


def gradient_variance(network: nn.Module, batches: Iterable[Batch]) -> tuple[float, float]:
    """The mean cross-entropy and E|g_i - E g|^2 over all instances of the batches; how they are cut changes neither.

    network: in evaluation mode. A layer's gradients are split by instance, (m, C_out, d_in), added up and dropped.
    Raises: InvalidInput if the network is not one that `check_network` lets through.
    """
    check_network(network)
    moments, losses, instances = None, 0.0, 0
    for images, labels in batches:
        record = forward(network, images)
        loss = F.cross_entropy(record.logits, labels, reduction="sum")
        calls = [call for call in (*record.calls, *record.norms) if call.edge is not None]
        edges: list[Any] = [call.edge for call in calls]
        gradients = torch.autograd.grad(loss, edges, allow_unused=True)
        parts: dict[int, list[Tensor]] = {}
        for call, gradient in zip(calls, gradients, strict=True):
            if gradient is not None:
                _split(call, gradient, parts)
        if moments is None:
            moments = _Moments(torch.zeros((), dtype=torch.float64, device=images.device))
        moments.add(parts)
        losses += loss.item()
        instances += len(labels)
    if moments is None:
        raise InvalidInput("expected at least one batch of images, got none")
    mean = sum(total.div(instances).square().sum().item() for total in moments.sums.values())
    return losses / instances, moments.squares.item() / instances - mean


def check_network(network: nn.Module) -> None:
    """Raises: InvalidInput where instances have no gradient of their own that is known here.

    That is a batch normalisation that goes by its batch, and a parameter of another layer than a convolution, a linear
    layer or a batch normalisation.
    """
    known: set[int] = set()
    for module in network.modules():
        if isinstance(module, BATCH_NORMS) and (module.training or module.running_mean is None):
            raise InvalidInput(
                "the gradient's variance needs batch normalisation by running statistics, got one that goes by its "
                "batch; build the network in its training form and put it in evaluation mode"
            )
        if isinstance(module, (*WEIGHT_LAYERS, *BATCH_NORMS)):
            known.update(id(parameter) for parameter in module.parameters(recurse=False))
    others = [name for name, parameter in network.named_parameters() if id(parameter) not in known]
    if others:
        raise InvalidInput(
            "the gradient's variance is known for networks of convolutions, linear layers and batch normalisations; "
            f"this one has other parameters too: {', '.join(others[:5])}; leave the variance out"
        )


def _split(call: Call, gradient: Tensor, parts: dict[int, list[Tensor]]) -> None:
    """Adds the gradients of a layer's parameters, split by instance. gradient: (m, C, ...) of the layer's output."""
    layer = call.layer
    if isinstance(layer, WEIGHT_LAYERS):
        parts.setdefault(id(layer.weight), []).append(weight_gradients(layer, call.input, gradient))
        if layer.bias is not None:
            parts.setdefault(id(layer.bias), []).append(bias_gradients(layer, gradient))
    elif layer.weight is not None:
        over = list(range(2, gradient.ndim))
        shape = (1, -1, *[1] * len(over))
        scale = (layer.running_var + layer.eps).rsqrt().view(shape)
        normalised = (call.input - layer.running_mean.view(shape)) * scale
        products = gradient * normalised
        parts.setdefault(id(layer.weight), []).append(products.sum(over) if over else products)
        parts.setdefault(id(layer.bias), []).append(gradient.sum(over) if over else gradient)
