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
from archray.trainables.devices import choose_device
from archray.trainables.landscape.loss_plane import LossPlane
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces.genotypes import cell_space
from archray.trainables.tune.standalone_trainable import StandaloneTrainable


class CellTrainable(StandaloneTrainable):
    """A `StandaloneTrainable` of a genotype of any space of cells.

    Config: that of `StandaloneTrainable`, and `lr_factor`, which multiplies the learning rate (1). The genotype
    determines the space.
    """

    def _read(self, config: dict[str, Any]) -> None:
        super()._read(config)
        factor = config.get("lr_factor", 1.0)
        if not isinstance(factor, int | float) or factor <= 0:
            raise InvalidInput(f"expected the config's `lr_factor` to be a number above 0, got {factor!r}")
        training = self._settings.training
        self._settings = self._settings.model_copy(
            update={
                "space": cell_space(self._architecture).name,
                "training": training.model_copy(update={"lr": training.lr * factor}),
            }
        )


def network_state(state: dict[str, Any]) -> dict[str, Any]:
    """The state for `trained_cell`, from that in a checkpoint of a `CellTrainable`."""
    return {
        "architecture": state["architecture"],
        "network": state["trainer"]["network"],
        "settings": state["settings"]["network"],
        "in_channels": state["in_channels"],
        "num_classes": state["num_classes"],
    }


def trained_cell(uri: str) -> nn.Module:
    """The network of a `network_state` at a URI, on the CPU, in evaluation mode.

    Raises: InvalidInput if the weights are of another network.
    """
    state = read_weights(uri)
    space, shape = cell_space(state["architecture"]), {name: state[name] for name in ("in_channels", "num_classes")}
    network = build(space, state["architecture"], network=NetworkSettings(**state["settings"]), seed=0, **shape)
    load_fitting(network, state["network"], f"the weights of {state['architecture']} in {uri}")
    return network.eval()


COLUMNS = {"values": "string", "seconds": "float64", "failure": "string"}
CENTRE, LOSSES, VARIANCES = "centre", "losses", "variances"


def items_of(architecture: str, points: int, gradient_points: int) -> list[str]:
    """The items of a `LandscapeWorker` for one network: the center, each row of the square and of the coarser one."""
    rows = [(CENTRE, 1), (LOSSES, points), (VARIANCES, gradient_points)]
    return [f"{part} {number} {architecture}" for part, numbers in rows for number in range(numbers)]


class LandscapeWorker:
    """Measures the loss around trained cells, in an actor or in this process: an item of `items_of` at a time.

    The `values` are JSON, with null for those that are not finite: for a row, a loss or a variance of the gradient per
    point; for the center the loss, the variance, and the largest eigenvalue of the Hessian.

    Args:
        weights: architecture -> the URI of its trained network, see `network_state`.
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
        self._last: tuple[str, LossPlane] | None = None

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
        """The plane through the network's weights; the last one is kept, as items of a network follow each other."""
        if self._last is None or self._last[0] != architecture:
            network = trained_cell(self.weights[architecture]).to(self.device)
            seed = named_seed(self.seed, architecture)
            self._last = architecture, LossPlane(network, self.images, self.labels, seed=seed)
        return self._last[1]
