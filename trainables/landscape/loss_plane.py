"""The loss, and the gradient's variance, at points of a plane through a network's weights. Shu 2022, 4.3.2; note U3.

s(alpha, beta) = E_i f_i(w* + alpha w_1 + beta w_2) with w_1 and w_2 as in `directions`.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.landscape.directions import filter_normalised
from archray.trainables.landscape.gradient_variance import check_network, gradient_variance

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
