"""The worker of planes around trained cells: losses on a square of weights, and the variance of the gradient there."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from archray.seeds import named_seed
from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device
from archray.trainables.tune.cell_trainable import trained_cell

# `plane`: the losses, (points, points) as JSON, NaN as null. `centre`: that of the trained weights. `rise`: the mean
# over the plane of the loss above it, no point counted beyond CAP. `flat`: the share of the plane below a uniform
# guess, ln K. `gradient_variance`: at the trained weights; `plane_variance`: the mean over the coarser square.
COLUMNS = {
    "plane": "string",
    "centre": "float64",
    "rise": "float64",
    "flat": "float64",
    "gradient_variance": "float64",
    "plane_variance": "float64",
    "seconds": "float64",
    "failure": "string",
}
CAP = 10.0  # nats, of a rise: far out losses are in the thousands, and one would be the mean
CHUNK = 32  # images whose gradients are held at a time

Weights = dict[str, Tensor]


def filter_direction(network: nn.Module, generator: torch.Generator) -> Weights:
    """A normal direction, each filter as long as that of the weights; none along biases and normalisation.

    The plot of Hao Li et al. that the thesis uses (Shu 2022, sec. 4.3.2.1).
    """
    direction = {}
    for name, weight in network.named_parameters():
        drawn = torch.randn(weight.shape, generator=generator).to(weight)
        if weight.dim() < 2:
            direction[name] = torch.zeros_like(weight)
            continue
        per_filter = (slice(None), *[None] * (weight.dim() - 1))
        lengths = weight.detach().flatten(1).norm(dim=1) / drawn.flatten(1).norm(dim=1).clamp_min(1e-12)
        direction[name] = drawn * lengths[per_filter]
    return direction


class LandscapeWorker:
    """Measures the surroundings of trained cells, inside an actor or here.

    Args:
        weights: architecture -> the URI of its trained network, see `cell_trainable.network_state`.
        data: settings of the data, as a dict; the first `images` of its validation split are used.
        points, gradient_points: on a side of the square, and of the coarser one of gradients.
        radius: half a side, in lengths of the filters. seed: of the directions, with the architecture's string.
    """

    def __init__(
        self,
        weights: Mapping[str, str],
        data: dict[str, Any],
        points: int,
        radius: float,
        images: int,
        gradient_points: int,
        seed: int,
        device: str,
    ) -> None:
        self.device = choose_device(device)
        validation = load_images(DataSettings(**data), device=self.device).validation
        self.images, self.labels = validation.images[:images], validation.labels[:images]
        self.weights, self.seed = weights, seed
        self.steps = torch.linspace(-radius, radius, points).tolist()
        coarse = torch.linspace(-radius / 2, radius / 2, gradient_points) if gradient_points > 1 else torch.zeros(1)
        self.coarse = coarse.tolist()

    def __call__(self, architecture: str) -> dict[str, Any]:
        began = time.perf_counter()
        network = trained_cell(self.weights[architecture]).to(self.device)
        generator = torch.Generator().manual_seed(named_seed(self.seed, architecture))
        centre = {name: weight.detach() for name, weight in network.named_parameters()}
        one, other = (filter_direction(network, generator) for _ in range(2))

        def at(a: float, b: float) -> Weights:
            return {name: weight + a * one[name] + b * other[name] for name, weight in centre.items()}

        losses = torch.tensor([[self._loss(network, at(a, b)) for b in self.steps] for a in self.steps])
        least = self._loss(network, centre)
        rises = (losses - least).nan_to_num(CAP, CAP).clamp(max=CAP)
        classes = int(self._logits(network, centre, self.images[:1]).shape[1])
        variances = torch.tensor([self._variance(network, at(a, b)) for a in self.coarse for b in self.coarse])
        return {
            "plane": json.dumps(
                [[value if math.isfinite(value) else None for value in row] for row in losses.tolist()]
            ),
            "centre": least,
            "rise": float(rises.mean()),
            "flat": float((losses < math.log(classes)).double().mean()),
            "gradient_variance": self._variance(network, centre),
            "plane_variance": float(variances.mean()),
            "seconds": time.perf_counter() - began,
            "failure": None,
        }

    @staticmethod
    def _logits(network: nn.Module, weights: Weights, images: Tensor) -> Tensor:
        logits: Tensor = functional_call(network, weights, (images,))
        return logits

    @torch.no_grad()
    def _loss(self, network: nn.Module, weights: Weights) -> float:
        return float(functional.cross_entropy(self._logits(network, weights, self.images), self.labels))

    def _variance(self, network: nn.Module, weights: Weights) -> float:
        """E |g_i - E g|^2 over the images, g_i the gradient of one image's loss (sec. 4.3.2.2)."""

        def loss(weights: Weights, image: Tensor, label: Tensor) -> Tensor:
            return functional.cross_entropy(self._logits(network, weights, image[None]), label[None])

        of_each = vmap(grad(loss), (None, 0, 0))
        total, squares = {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}, 0.0
        for images, labels in zip(self.images.split(CHUNK), self.labels.split(CHUNK), strict=True):
            for name, gradients in of_each(weights, images, labels).items():
                total[name] += gradients.double().sum(0)
                squares += float(gradients.double().square().sum())
        number = len(self.images)
        return squares / number - sum(float((each / number).square().sum()) for each in total.values())
