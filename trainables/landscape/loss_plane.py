"""Loss and gradient variance on a plane through a network's weights. Shu 2022, 4.3.2; note U3.

s(alpha, beta) = E_i f_i(w* + alpha w_1 + beta w_2), with random directions w_1 and w_2 normalized per filter.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.proxies.gram import bias_gradients, weight_gradients
from archray.trainables.proxies.layers import BATCH_NORMS, WEIGHT_LAYERS, Call, forward
from archray.trainables.proxies.tangents import squared_norm


def filter_normalized(network: nn.Module, generator: torch.Generator) -> list[Tensor]:
    """Draws a Gaussian direction, a tensor per parameter, in the order of `parameters()`. Li et al. 2017, section 4.

    A filter is a slice of the first axis. Each has the norm of the weights' filter, so that a step of equal length has
    the same effect on networks of different scale. Biases and the parameters of normalizations, which have one axis, do
    not move, as in Li et al. (2017).

    generator: on the CPU, so that a seed gives the same direction on every device.
    """
    return [_direction(parameter.detach(), generator) for parameter in network.parameters()]


def _direction(weights: Tensor, generator: torch.Generator) -> Tensor:
    if weights.ndim < 2:
        return torch.zeros_like(weights)
    drawn = torch.randn(weights.shape, generator=generator).to(weights)
    norms = weights.flatten(1).norm(dim=1) / drawn.flatten(1).norm(dim=1)
    return drawn * norms.view(-1, *[1] * (weights.ndim - 1))


BATCH = 256  # images per pass: changes no result; the maps of a narrow network fit into a core's outer cache


class LossPlane:
    """A copy of a network that moves over the plane, in evaluation mode, with images for its loss.

    Both directions and the layout of the images are computed once. On the CPU, weights and images are channels-last,
    with which narrow convolutions are about twice as fast. A point is a change of the weights in place and a pass over
    the images; `torch.func.vmap` over several points is slower on a CPU (`benchmarks/loss_planes.py`).

    Args:
        network: Network with trained weights, which do not change; images (m, C, H, W) -> logits (m, K).
        images, labels: (m, C, H, W) and (m,), on the network's device.
        seed: Seed of both directions.

    Raises: InvalidInput without images.
    """

    def __init__(self, network: nn.Module, images: Tensor, labels: Tensor, *, seed: int, batch: int = BATCH) -> None:
        if len(images) == 0 or len(images) != len(labels):
            raise InvalidInput(f"expected one label per image and at least one, got {len(images)} and {len(labels)}")
        generator = torch.Generator().manual_seed(seed)
        directions = [filter_normalized(network, generator) for _ in range(2)]
        self.network = copy.deepcopy(network).eval()
        if images.device.type == "cpu" and images.ndim == 4:
            self.network.to(memory_format=torch.channels_last)
            images = images.contiguous(memory_format=torch.channels_last)
        self.batches = list(zip(images.split(batch), labels.split(batch), strict=True))
        moved = [place for place, direction in enumerate(directions[0]) if bool(direction.any())]
        parameters = [parameter.detach() for parameter in self.network.parameters()]
        self._moved = [parameters[place] for place in moved]  # views without a graph
        self._origin = [parameter.clone() for parameter in self._moved]
        self._directions = [  # in the parameters' memory layout, so that adding copies nothing
            [torch.empty_like(parameters[place]).copy_(direction[place]) for place in moved] for direction in directions
        ]

    def move(self, alpha: float, beta: float) -> None:
        """Sets the copy's weights to w* + alpha w_1 + beta w_2."""
        torch._foreach_copy_(self._moved, self._origin)
        for step, direction in zip((alpha, beta), self._directions, strict=True):
            torch._foreach_add_(self._moved, direction, alpha=step)

    def loss(self, alpha: float, beta: float) -> float:
        """Computes the mean cross-entropy at a point; infinite or NaN if the network's outputs are."""
        self.move(alpha, beta)
        with torch.inference_mode():
            total = sum(F.cross_entropy(self.network(x), y, reduction="sum").item() for x, y in self.batches)
        return total / sum(len(labels) for _, labels in self.batches)

    def loss_and_variance(self, alpha: float, beta: float) -> tuple[float, float]:
        """Computes the mean cross-entropy and the variance of its gradient over instances, by one pass and backward.

        Raises: InvalidInput for a network without gradients per instance; see `check_network`.
        """
        check_network(self.network)
        self.move(alpha, beta)
        return gradient_variance(self.network, self.batches)

    def largest_curvature(self, seed: int, iterations: int = 20) -> float:
        """Computes the Hessian's eigenvalue at w*, by all parameters, that is largest in size; by power iteration.

        The Hessian is that of the loss `loss(0, 0)`. Each iteration is a gradient and its gradient. seed: of the first
        vector.
        """
        self.move(0.0, 0.0)
        parameters = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        generator = torch.Generator().manual_seed(seed)
        vector = [torch.randn(parameter.shape, generator=generator).to(parameter) for parameter in parameters]
        value = 0.0
        for _ in range(iterations):
            norm = float(torch.stack(torch._foreach_norm(vector)).norm())
            if norm == 0:
                return 0.0
            torch._foreach_div_(vector, norm)
            product = self._hessian_times(parameters, vector)
            value = float(torch.stack([(a * b).sum() for a, b in zip(vector, product, strict=True)]).sum())
            vector = product
        return value

    def _hessian_times(self, parameters: list[nn.Parameter], vector: list[Tensor]) -> list[Tensor]:
        total = [torch.zeros_like(parameter) for parameter in parameters]
        instances = sum(len(labels) for _, labels in self.batches)
        for images, labels in self.batches:
            loss = F.cross_entropy(self.network(images), labels, reduction="sum") / instances
            gradients = torch.autograd.grad(
                loss, parameters, create_graph=True, allow_unused=True, materialize_grads=True
            )
            along = torch.stack([(g * v).sum() for g, v in zip(gradients, vector, strict=True)]).sum()
            torch._foreach_add_(
                total, torch.autograd.grad(along, parameters, allow_unused=True, materialize_grads=True)
            )
        return total


FLAT = 1.0  # nats above the center; a point within this range counts as flat


def flatness(steps: NDArray[np.float64], losses: NDArray[np.float64], flat: float = FLAT) -> dict[str, float]:
    """Computes measures of a plane, losses (n, n) over alpha and beta in `steps` (n,), ascending and even.

    `center`: the loss nearest to (0, 0). `rise`: the median of the losses minus it, which a few extremely large losses
    do not change. `flat_share`: the share of the points at most `flat` above it.
    `curvature`: the largest eigenvalue, in size, of the plane's Hessian by finite differences over its inner points.
    Points with an infinite or NaN loss count as infinitely high, and their neighbors have no curvature; NaN if none
    has.
    """
    middle = int(np.abs(steps).argmin())
    center = float(losses[middle, middle])
    above = np.where(np.isfinite(losses), losses, np.inf) - center
    return {
        "center": center,
        "rise": float(np.median(above)),
        "flat_share": float((above <= flat).mean()),
        "curvature": _largest_curvature(losses, float(steps[1] - steps[0])),
    }


def _largest_curvature(losses: NDArray[np.float64], step: float) -> float:
    if len(losses) < 3:
        return float("nan")
    with np.errstate(invalid="ignore", over="ignore"):
        inner = losses[1:-1, 1:-1]
        aa = (losses[2:, 1:-1] - 2 * inner + losses[:-2, 1:-1]) / step**2
        bb = (losses[1:-1, 2:] - 2 * inner + losses[1:-1, :-2]) / step**2
        ab = (losses[2:, 2:] - losses[2:, :-2] - losses[:-2, 2:] + losses[:-2, :-2]) / (4 * step**2)
        mean, half = (aa + bb) / 2, np.hypot((aa - bb) / 2, ab)
        size = np.abs(mean) + half
    finite = size[np.isfinite(size)]
    return float(finite.max()) if finite.size else float("nan")


# The exact variance of a network's gradient over instances, without storing a gradient per instance. Shu 2022,
# 4.3.2.2. Var[grad f_i] = E|g_i - E g|^2, g_i the gradient of one instance's loss by all parameters: the noise of a
# step with a batch of one. For a batch of B random instances it is 1/B of that. Batch normalization uses running
# statistics, because otherwise instances have no separate gradients (note U3).

Batch = tuple[Tensor, Tensor]  # images (m, C, H, W), labels (m,)


@dataclass
class _Moments:
    """Sums over instances, parameter by parameter."""

    squares: Tensor  # (), of |g_i|^2, float64
    sums: dict[int, Tensor] = field(default_factory=dict)  # by the parameter's id: of g_i, float64

    def add(self, parts: dict[int, list[Tensor]]) -> None:
        """parts: by the parameter's id, the gradients (m, ...) of the instances from each use of the parameter."""
        for parameter, uses in parts.items():
            gradients = (torch.stack(uses).sum(0) if len(uses) > 1 else uses[0]).flatten(1)
            self.squares += gradients.square().sum(1).sum(dtype=torch.float64)
            total = gradients.sum(0).double()
            self.sums[parameter] = self.sums[parameter] + total if parameter in self.sums else total


def gradient_variance(network: nn.Module, batches: Iterable[Batch]) -> tuple[float, float]:
    """Computes the mean cross-entropy and E|g_i - E g|^2 over all instances, independent of the sizes of the batches.

    network: in evaluation mode. A layer's gradients per instance, (m, C_out, d_in), are added and dropped.

    Raises: InvalidInput as `check_network`.
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
    mean = squared_norm([total / instances for total in moments.sums.values()]).item()
    return losses / instances, moments.squares.item() / instances - mean


def check_network(network: nn.Module) -> None:
    """Raises: InvalidInput for an unsupported network.

    These are networks with a batch normalization by batch statistics, where instances have no separate gradients, and
    with a parameter of another layer than a convolution, a linear layer or a batch normalization.
    """
    supported: set[int] = set()
    for module in network.modules():
        if isinstance(module, BATCH_NORMS) and (module.training or module.running_mean is None):
            raise InvalidInput(
                "expected batch normalization by running statistics for the gradient's variance, got one by batch "
                "statistics; build the network in its training form and put it in evaluation mode"
            )
        if isinstance(module, (*WEIGHT_LAYERS, *BATCH_NORMS)):
            supported.update(id(parameter) for parameter in module.parameters(recurse=False))
    others = [name for name, parameter in network.named_parameters() if id(parameter) not in supported]
    if others:
        raise InvalidInput(
            "expected convolutions, linear layers and batch normalizations only for the gradient's variance, got other "
            f"parameters: {', '.join(others[:5])}. Leave the variance out"
        )


def _split(call: Call, gradient: Tensor, parts: dict[int, list[Tensor]]) -> None:
    """Adds the gradients of a layer's parameters per instance. gradient: (m, C, ...) of the layer's output."""
    layer = call.layer
    if isinstance(layer, WEIGHT_LAYERS):
        parts.setdefault(id(layer.weight), []).append(weight_gradients(layer, call.input, gradient))
        if layer.bias is not None:
            parts.setdefault(id(layer.bias), []).append(bias_gradients(layer, gradient))
    elif layer.weight is not None:
        over = list(range(2, gradient.ndim))
        shape = (1, -1, *[1] * len(over))
        scale = (layer.running_var + layer.eps).rsqrt().view(shape)
        normalized = (call.input - layer.running_mean.view(shape)) * scale
        products = gradient * normalized
        parts.setdefault(id(layer.weight), []).append(products.sum(over) if over else products)
        parts.setdefault(id(layer.bias), []).append(gradient.sum(over) if over else gradient)
