"""Cells of several spaces: their Tune trainable, and the worker of loss planes. Shu 2022, A.1.3 and section 4.3.1."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from archray.errors import InvalidInput
from archray.seeds import named_seed
from archray.trainables.checkpoint import load_fitting, read_weights
from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device, tf32
from archray.trainables.landscape.loss_plane import LossPlane
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces.genotypes import cell_space
from archray.trainables.tune.standalone_trainable import StandaloneTrainable


class CellTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` for genotypes of any space of cells.

    Config: as in `StandaloneTrainable`, and `lr_factor`, which multiplies the learning rate (default: 1). The
    genotype determines the space.
    """

    def _read(self, config: dict[str, Any]) -> None:
        super()._read(config)
        factor = config.get("lr_factor", 1.0)
        if not isinstance(factor, int | float) or factor <= 0:
            raise InvalidInput(f"expected a number above 0 as `lr_factor` in the config, got {factor!r}")
        training = self._settings.training
        self._settings = self._settings.model_copy(
            update={
                "space": cell_space(self._architecture).name,
                "training": training.model_copy(update={"lr": training.lr * factor}),
            }
        )


def network_state(state: dict[str, Any]) -> dict[str, Any]:
    """Converts the state in a checkpoint of a `CellTrainable` to the state for `trained_cell`."""
    return {
        "architecture": state["architecture"],
        "network": state["trainer"]["network"],
        "settings": state["settings"]["network"],
        "in_channels": state["in_channels"],
        "num_classes": state["num_classes"],
    }


def trained_cell(uri: str) -> nn.Module:
    """Loads the network of a `network_state` from a URI, on the CPU, in evaluation mode.

    Raises: InvalidInput if the weights belong to another network.
    """
    state = read_weights(uri)
    space, shape = cell_space(state["architecture"]), {name: state[name] for name in ("in_channels", "num_classes")}
    network = build(space, state["architecture"], network=NetworkSettings(**state["settings"]), seed=0, **shape)
    load_fitting(network, state["network"], f"the weights of {state['architecture']} in {uri}")
    return network.eval()


COLUMNS = {"values": "string", "seconds": "float64", "failure": "string"}
CENTRE, LOSSES, VARIANCES = "center", "losses", "variances"


def items_of(architecture: str, points: int, gradient_points: int) -> list[str]:
    """Returns the items of a `LandscapeWorker` for one network: center, rows of the square and of the coarser one."""
    rows = [(CENTRE, 1), (LOSSES, points), (VARIANCES, gradient_points)]
    return [f"{part} {number} {architecture}" for part, numbers in rows for number in range(numbers)]


class LandscapeWorker:
    """Measures the loss around trained cells, in an actor or in this process, one item of `items_of` at a time.

    The `values` are JSON, with null for values that are infinite or NaN. For a row: a loss or a variance of the
    gradient per point. For the center: the loss, the variance, and the largest eigenvalue of the Hessian.

    Args:
        weights: Architecture -> the URI of its trained network, see `network_state`.
        data: Settings of the data, as a dict; the first `images` of its validation split are used.
        points, gradient_points: Points per side of the square, and of the coarser one of gradients.
        radius: Half a side, in lengths of the filters.
        seed: Seed of the directions, together with the architecture's string.
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
        self.images, self.labels = validation.batch(slice(images)), validation.labels[:images]
        self.weights, self.seed = weights, seed
        self.steps = torch.linspace(-radius, radius, points).tolist()
        coarse = torch.linspace(-radius / 2, radius / 2, gradient_points) if gradient_points > 1 else torch.zeros(1)
        self.coarse = coarse.tolist()
        self._last: tuple[str, LossPlane] | None = None

    @tf32(False)
    def __call__(self, item: str) -> dict[str, Any]:
        start = time.perf_counter()
        part, number, architecture = item.split(" ", 2)
        plane = self._plane(architecture)
        if part == CENTRE:
            values = [*plane.loss_and_variance(0.0, 0.0), plane.largest_curvature(seed=self.seed)]
        elif part == LOSSES:
            values = [plane.loss(self.steps[int(number)], beta) for beta in self.steps]
        else:
            values = [plane.loss_and_variance(self.coarse[int(number)], beta)[1] for beta in self.coarse]
        text = json.dumps([value if math.isfinite(value) else None for value in values])
        return {"values": text, "seconds": time.perf_counter() - start, "failure": None}

    def _plane(self, architecture: str) -> LossPlane:
        """Returns the plane through the network's weights. The last one is cached, as items are grouped by network."""
        if self._last is None or self._last[0] != architecture:
            network = trained_cell(self.weights[architecture]).to(self.device)
            seed = named_seed(self.seed, architecture)
            self._last = architecture, LossPlane(network, self.images, self.labels, seed=seed)
        return self._last[1]
