"""The worker that evaluates points of a loss plane one after another, inside an actor or in this process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from archray.trainables.data import DataSettings, load_images
from archray.trainables.devices import choose_device
from archray.trainables.landscape.loss_plane import LossPlane
from archray.trainables.landscape.plane_settings import PlaneSettings
from archray.trainables.nets import build
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import get_space


class PlaneScorer:
    """Holds network, weights, both directions and the images once, on its device.

    Args:
        space, architecture, network: what the network is; `network` the fields of `NetworkSettings`.
        weights: its state, as `Module.state_dict` gives it.
        data, plane: the fields of `DataSettings`, whose test images are taken, and of `PlaneSettings`.
        seed: of the directions. device: `auto` takes a GPU where one is visible.

    Raises: InvalidArchitecture; RuntimeError, torch's, for weights of another network.
    """

    def __init__(
        self,
        space: str,
        architecture: str,
        network: Mapping[str, Any],
        weights: Mapping[str, Tensor],
        data: Mapping[str, Any],
        plane: Mapping[str, Any],
        seed: int,
        device: str = "auto",
    ) -> None:
        self.settings = PlaneSettings.model_validate(plane)
        where, dataset = choose_device(device), load_images(DataSettings.model_validate(data))
        known = get_space(space)
        module = build(
            known,
            known.decode(architecture),
            network=NetworkSettings.model_validate(network),
            in_channels=dataset.in_channels,
            num_classes=dataset.num_classes,
            seed=0,  # of weights that are replaced
        )
        module.load_state_dict(dict(weights))
        test = dataset.test
        images, labels = test.images[: self.settings.images], test.labels[: self.settings.images]
        self.plane = LossPlane(module.to(where), images.to(where), labels.to(where), seed=seed)

    def __call__(self, key: str) -> dict[str, float | None]:
        """The row of one point, a key of `PlaneSettings`: loss, gradient_variance (NaN if not asked for), seconds."""
        start = time.perf_counter()
        alpha, beta = self.settings.point(key)
        variance = float("nan")
        if self.settings.variance:
            loss, variance = self.plane.loss_and_variance(alpha, beta)
        else:
            loss = self.plane.loss(alpha, beta)
        seconds = time.perf_counter() - start
        return {"loss": loss, "gradient_variance": variance, "failure": None, "seconds": seconds}
