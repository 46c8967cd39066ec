"""The worker that scores architectures one after another on one batch, inside an actor or in this process."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from archray.trainables.data import DataSettings, load_images, proxy_batch
from archray.trainables.devices import choose_device
from archray.trainables.nets import build, count_parameters
from archray.trainables.proxies.settings import ProxySettings
from archray.trainables.proxies.shared_pass import score
from archray.trainables.spaces import get_space


class PoolScorer:
    """Holds one batch on its device and scores any number of architectures on it.

    data, proxy: fields of `DataSettings`, of whose training images the batch is drawn, and of `ProxySettings`.
    device: `auto` takes a GPU where one is visible.
    """

    def __init__(self, space: str, data: dict[str, Any], proxy: dict[str, Any], device: str = "auto") -> None:
        self.space = get_space(space)
        self.settings = ProxySettings.model_validate(proxy)
        self.device = choose_device(device)
        images, labels, self.num_classes = self.batch(DataSettings.model_validate(data))
        self.images, self.labels = images.to(self.device), labels.to(self.device)
        self.in_channels = images.shape[1]

    def batch(self, data: DataSettings) -> tuple[Tensor, Tensor, int]:
        """The images that every architecture is scored on, their labels, and how many classes there are."""
        dataset = load_images(data)
        chosen = proxy_batch(dataset, self.settings.batch_size, self.settings.seed, self.settings.augment)
        return *chosen, dataset.num_classes

    def __call__(self, architecture: str) -> dict[str, float | str | None]:
        """One row of a pool: the canonical string, a value per metric, why some are NaN, seconds, parameters.

        Raises: InvalidArchitecture if the space does not know the string. Anything wrong with the network itself is
        a failure in the row.
        """
        start = time.perf_counter()
        choices = self.space.canonical(self.space.decode(architecture))
        row: dict[str, float | str | None] = {"architecture": self.space.encode(choices)}
        network = build(
            self.space,
            choices,
            network=self.settings.network,
            in_channels=self.in_channels,
            num_classes=self.num_classes,
            seed=self.settings.seed,
            for_scoring=True,
        ).to(self.device)
        scores = score(network, self.images, self.labels, self.settings.metrics, self.settings)
        row |= {name: result.value for name, result in scores.items()}
        # One reason may stand behind several metrics: it is said once.
        reasons: dict[str, list[str]] = {}
        for name, result in scores.items():
            if result.failure:
                reasons.setdefault(result.failure, []).append(name)
        row["failure"] = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items()) or None
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        row["seconds"] = time.perf_counter() - start
        row["parameters"] = count_parameters(network)
        return row
