"""The worker of planes around trained cells: losses on a square of weights, and the variance of the gradient there."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from archray.seeds import named_seed
from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device
from archray.trainables.landscape.flatness import flatness
from archray.trainables.landscape.loss_plane import LossPlane
from archray.trainables.tune.cell_trainable import trained_cell

# `plane`: the losses, (points, points) as JSON, not finite ones as null. `centre`: that of the trained weights. `rise`,
# `flat`: of `flatness`, over the plane. `gradient_variance`: at the trained weights; `plane_variance`: the mean over
# the coarser square, `variances`, as JSON. `hessian`: the Hessian's largest eigenvalue at the trained weights.
COLUMNS = {
    "plane": "string",
    "variances": "string",
    "hessian": "float64",
    "centre": "float64",
    "rise": "float64",
    "flat": "float64",
    "gradient_variance": "float64",
    "plane_variance": "float64",
    "seconds": "float64",
    "failure": "string",
}


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
        plane = LossPlane(network, self.images, self.labels, seed=named_seed(self.seed, architecture))
        losses = [[plane.loss(a, b) for b in self.steps] for a in self.steps]
        measures = flatness(np.array(self.steps), np.array(losses))
        centre, variance = plane.loss_and_variance(0.0, 0.0)
        variances = [[plane.loss_and_variance(a, b)[1] for b in self.coarse] for a in self.coarse]
        return {
            "plane": _square(losses),
            "variances": _square(variances),
            "hessian": plane.largest_curvature(seed=self.seed),
            "centre": centre,
            "rise": measures["rise"],
            "flat": measures["flat_share"],
            "gradient_variance": variance,
            "plane_variance": float(np.mean(variances)),
            "seconds": time.perf_counter() - began,
            "failure": None,
        }


def _square(values: list[list[float]]) -> str:
    """As JSON, what is not finite as null."""
    return json.dumps([[value if math.isfinite(value) else None for value in row] for row in values])
