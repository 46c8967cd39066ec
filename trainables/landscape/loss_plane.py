"""Loss and gradient variance on a plane through a network's weights. Shu 2022, 4.3.2; note U3.

s(alpha, beta) = E_i f_i(w* + alpha w_1 + beta w_2), with random directions w_1 and w_2 normalized filter by filter.
"""

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.landscape.gradient_variance import check_network, gradient_variance

# Random directions in weight space, normalized filter by filter. Li et al. 2017, section 4.


def filter_normalised(network: nn.Module, generator: torch.Generator) -> list[Tensor]:
    """A Gaussian direction: a tensor of its shape, device and type for each parameter, in the order of `parameters()`.

    A filter is what makes one output: a slice of the first axis. Each has the norm of the weights' filter, so that a
    step of one length changes networks of different scale alike. Biases and the parameters of normalisations, which
    have one axis, do not move (Li et al. 2017 leave them out likewise).

    generator: of the CPU, so that a seed gives the same direction on every device.
    """
    return [_direction(parameter.detach(), generator) for parameter in network.parameters()]


def _direction(weights: Tensor, generator: torch.Generator) -> Tensor:
    if weights.ndim < 2:
        return torch.zeros_like(weights)
    drawn = torch.randn(weights.shape, generator=generator).to(weights)
    norms = weights.flatten(1).norm(dim=1) / drawn.flatten(1).norm(dim=1)
    return drawn * norms.view(-1, *[1] * (weights.ndim - 1))


BATCH = 256  # images of a pass: changes no result; maps of a narrow network then lie in a core's outer cache


class LossPlane:
    """A copy of a network that is moved over the plane, in evaluation mode, with the images it is judged on.

    Everything that is the same at all points is made once: both directions, the images on their device, and on the CPU
    the channels-last layout of weights and images, in which narrow convolutions are about twice as fast. A point is a
    change of the weights in place and a pass over the images: one after another they are faster on a CPU than several
    at once by `torch.func.vmap`, whose grouped convolutions are slow there (`benchmarks/loss_planes.py`).

    Args:
        network: with its trained weights, which stay as they are; images (m, C, H, W) -> logits (m, K).
        images, labels: (m, C, H, W) and (m,), on the network's device.
        seed: of both directions.

    Raises: InvalidInput without images.
    """

    def __init__(self, network: nn.Module, images: Tensor, labels: Tensor, *, seed: int, batch: int = BATCH) -> None:
        if len(images) == 0 or len(images) != len(labels):
            raise InvalidInput(f"expected images and a label for each, got {len(images)} and {len(labels)}")
        generator = torch.Generator().manual_seed(seed)
        directions = [filter_normalised(network, generator) for _ in range(2)]
        self.network = copy.deepcopy(network).eval()
        if images.device.type == "cpu" and images.ndim == 4:
            self.network.to(memory_format=torch.channels_last)
            images = images.contiguous(memory_format=torch.channels_last)
        self.batches = list(zip(images.split(batch), labels.split(batch), strict=True))
        moved = [place for place, direction in enumerate(directions[0]) if bool(direction.any())]
        parameters = [parameter.detach() for parameter in self.network.parameters()]
        self._moved = [parameters[place] for place in moved]  # views of them, which no graph watches
        self._origin = [parameter.clone() for parameter in self._moved]
        self._directions = [[_like(direction[place], parameters[place]) for place in moved] for direction in directions]

    def move(self, alpha: float, beta: float) -> None:
        """Sets the copy's weights to w* + alpha w_1 + beta w_2."""
        torch._foreach_copy_(self._moved, self._origin)
        for step, direction in zip((alpha, beta), self._directions, strict=True):
            torch._foreach_add_(self._moved, direction, alpha=step)

    def loss(self, alpha: float, beta: float) -> float:
        """The mean cross-entropy at a point; infinite or NaN where the network's outputs are."""
        self.move(alpha, beta)
        with torch.inference_mode():
            total = sum(F.cross_entropy(self.network(x), y, reduction="sum").item() for x, y in self.batches)
        return total / sum(len(labels) for _, labels in self.batches)

    def loss_and_variance(self, alpha: float, beta: float) -> tuple[float, float]:
        """The mean cross-entropy and the variance of its gradient over instances, by one pass there and back.

        Raises: InvalidInput for a network whose instances have no gradient of their own; see `check_network`.
        """
        check_network(self.network)
        self.move(alpha, beta)
        return gradient_variance(self.network, self.batches)

    def largest_curvature(self, seed: int, iterations: int = 20) -> float:
        """The eigenvalue of the Hessian at w*, by all parameters, that is largest in size; by power iteration.

        Of the loss that `loss(0, 0)` gives, each iteration a gradient there and back. seed: of the first vector.
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
            value = sum(float((a * b).sum()) for a, b in zip(vector, product, strict=True))
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


def _like(direction: Tensor, parameter: Tensor) -> Tensor:
    """The direction in the parameter's memory layout, so that adding it copies nothing."""
    return torch.empty_like(parameter).copy_(direction)


# Flatness of a plane of losses around its middle.


FLAT = 1.0  # nats above the middle within which a point counts as flat


def flatness(steps: NDArray[np.float64], losses: NDArray[np.float64], flat: float = FLAT) -> dict[str, float]:
    """Measures of a plane, losses (n, n) over alpha and beta in `steps` (n,), ascending and even.

    `centre`: the loss nearest to (0, 0). `rise`: the median over the plane of what is above it, which a few points of
    extremely large loss do not move. `flat_share`: the share of the points at most `flat` above it.
    `curvature`: the largest eigenvalue, in size, of the plane's Hessian by finite differences over its inner points.
    Points whose loss is not finite count as infinitely high, and their neighbours have no curvature; NaN if none has.
    """
    middle = int(np.abs(steps).argmin())
    centre = float(losses[middle, middle])
    above = np.where(np.isfinite(losses), losses, np.inf) - centre
    return {
        "centre": centre,
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
