"""Workers that score architectures by metrics or with shared weights, in an actor or in this process."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import ray
import torch
from torch import Tensor

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.checkpoint import load_weights, read_state
from archray.trainables.data import DataSettings, load_images, proxy_batch
from archray.trainables.devices import choose_device, out_of_memory
from archray.trainables.nets import build, count_parameters
from archray.trainables.proxies.settings import ProxySettings
from archray.trainables.proxies.shared_pass import score
from archray.trainables.spaces import Architecture, get_space
from archray.trainables.supernets.elastic import SlicedSupernet, build_sliced, score_slices
from archray.trainables.supernets.evaluation import predict_architecture, score_architectures
from archray.trainables.training import NO_METRICS, Metrics
from archray.trainables.tune.settings import SlicedSettings, SupernetSettings, TrialSettings
from archray.trainables.tune.trial import read_settings

SCORES = ("shared_loss", "shared_accuracy")  # of an architecture on the validation data
Arrays = Mapping[str, np.ndarray | Tensor]  # a supernet's parameters and buffers by name


class ScoredBatch(NamedTuple):
    """The images (b, C, H, W) on which every architecture is scored, their labels (b,), and the number of classes."""

    images: Tensor
    labels: Tensor
    num_classes: int


def batch_of(data: DataSettings, proxy: ProxySettings) -> ScoredBatch:
    """Draws the batch from the training images, on the CPU. Raises: as `load_images` and `proxy_batch`."""
    dataset = load_images(data)
    return ScoredBatch(*proxy_batch(dataset, proxy.batch_size, proxy.seed, proxy.augment), dataset.num_classes)


class PoolScorer:
    """Stores one batch on its device and scores any number of architectures on it.

    Args:
        data: The batch; or fields of `DataSettings`, for `batch_of`. With a batch the process opens no data set.
        proxy: Fields of `ProxySettings`.
        device: Torch device; `auto` takes a GPU if one is visible.
    """

    def __init__(
        self, space: str, data: ScoredBatch | dict[str, Any], proxy: dict[str, Any], device: str = "auto"
    ) -> None:
        self.space = get_space(space)
        self.settings = ProxySettings.model_validate(proxy)
        self.device = choose_device(device)
        batch = batch_of(DataSettings.model_validate(data), self.settings) if isinstance(data, dict) else data
        self.images, self.labels = batch.images.to(self.device), batch.labels.to(self.device)
        self.in_channels, self.num_classes = self.images.shape[1], batch.num_classes

    def __call__(self, architecture: str) -> dict[str, float | str | None]:
        """Returns one row of a pool: canonical string, a value per metric, reasons of NaN, seconds, parameters, device.

        Raises: InvalidArchitecture if the space rejects the string. A failure of the network itself is in the row.
        """
        start = time.perf_counter()
        choices = self.space.canonical(self.space.decode(architecture))
        row: dict[str, float | str | None] = {"architecture": self.space.encode(choices)}
        options: Any = {"network": self.settings.network, "seed": self.settings.seed, "for_scoring": True}
        options |= {"in_channels": self.in_channels, "num_classes": self.num_classes}
        network = build(self.space, choices, **options).to(self.device)
        scores = score(network, self.images, self.labels, self.settings.metrics, self.settings)
        row |= {name: result.value for name, result in scores.items()}
        reasons: dict[str, list[str]] = {}  # several metrics may have the same reason
        for name, result in scores.items():
            if result.failure:
                reasons.setdefault(result.failure, []).append(name)
        row["failure"] = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items()) or None
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        row["seconds"] = time.perf_counter() - start
        row["parameters"] = count_parameters(network)
        row["device"] = "CPU" if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)
        return row


class SupernetScorer:
    """Stores a supernet with trained weights and the validation data. Scores any number of architectures on all of it.

    The weights come from Ray's object store: the driver reads them from storage once, and the actors of one node
    share one copy of the arrays.

    Args:
        settings: Fields of `SupernetSettings`, as in training.
        weights: Weights of the supernet (`arrays_of`), or a reference to them in the object store.
        device: Torch device; `auto` takes a GPU if one is visible.

    Raises: InvalidInput if the weights belong to another supernet.
    """

    settings_type: ClassVar[type[TrialSettings]] = SupernetSettings
    settings: Any  # a `settings_type`

    def __init__(self, settings: Mapping[str, Any], weights: Arrays | ray.ObjectRef, device: str = "auto") -> None:
        self.settings = read_settings(self.settings_type, settings)
        self.device = choose_device(device)
        dataset = load_images(self.settings.data, device=self.device)
        self.validation = dataset.validation
        self.supernet = self._build(dataset.in_channels, dataset.num_classes)
        arrays: Arrays = ray.get(weights) if isinstance(weights, ray.ObjectRef) else weights
        # Arrays in the object store are read-only, and torch needs writable tensors.
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        load_weights(self.supernet, tensors, "the weights")
        self.supernet.to(self.device)

    def __call__(self, architectures: Sequence[str]) -> list[dict[str, float | str | None]]:
        """Returns a row each: `architecture`, `shared_loss`, `shared_accuracy`, `failure`; in one pass over the data.

        An architecture that the space rejects, or whose loss is infinite or NaN, has NaN and the reason in `failure`.
        If memory runs out, all architectures of the pass have.
        """
        decoded: dict[str, Architecture] = {}
        reasons: dict[str, str] = {}
        for architecture in architectures:
            try:
                decoded[architecture] = self.supernet.space.decode(architecture)
            except InvalidArchitecture as error:
                reasons[architecture] = str(error)
        scores: dict[str, Metrics] = {}
        try:
            scores = dict(zip(decoded, self._scores(list(decoded.values())), strict=True))
        except (torch.OutOfMemoryError, RuntimeError) as error:
            shortage = out_of_memory(error)
            if shortage is None:
                raise
            reasons |= dict.fromkeys(decoded, shortage)
        for architecture, metrics in scores.items():
            if not math.isfinite(metrics.loss):
                scores[architecture] = NO_METRICS
                reasons[architecture] = f"the validation loss is {metrics.loss}"
        rows: list[dict[str, float | str | None]] = []
        for architecture in architectures:
            values = dict(zip(SCORES, scores.get(architecture, NO_METRICS), strict=True))
            rows.append({"architecture": architecture, **values, "failure": reasons.get(architecture)})
        return rows

    def _build(self, in_channels: int, num_classes: int) -> Any:
        settings = self.settings
        return settings.build(settings.space, in_channels=in_channels, num_classes=num_classes, seed=settings.seed)

    def _scores(self, architectures: Sequence[Architecture]) -> list[Metrics]:
        training = self.settings.training
        return score_architectures(
            self.supernet, architectures, self.validation, training.evaluation_batch, amp=training.amp
        )


class SlicedScorer(SupernetScorer):
    """A `SupernetScorer` for a sliced supernet, with the fields of `SlicedSettings`."""

    settings_type = SlicedSettings

    def _build(self, in_channels: int, num_classes: int) -> SlicedSupernet:
        settings = self.settings
        return build_sliced(settings.space, settings.network, in_channels, num_classes, settings.seed)

    def _scores(self, architectures: Sequence[Architecture]) -> list[Metrics]:
        training = self.settings.training
        return score_slices(self.supernet, architectures, self.validation, training.evaluation_batch, amp=training.amp)


class SharedPredictions:
    """Predicts with an architecture's shared weights on all validation data. Args, Raises: as `SupernetScorer`."""

    def __init__(self, settings: dict[str, Any], weights: Arrays | ray.ObjectRef, device: str = "auto") -> None:
        self._scorer = SupernetScorer(settings, weights, device)

    def __call__(self, architecture: str) -> np.ndarray | str:
        """Returns the probabilities on the validation images, (images, classes) float32, or the reason of a failure."""
        scorer, training = self._scorer, self._scorer.settings.training
        try:
            predictions = predict_architecture(
                scorer.supernet, architecture, scorer.validation, training.evaluation_batch, amp=training.amp
            )
        except InvalidArchitecture as error:
            return str(error)
        if not bool(predictions.isfinite().all()):
            return "the predictions are not finite"
        probabilities: np.ndarray = predictions.cpu().numpy()
        return probabilities


def arrays_of(state: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Converts a supernet's state to arrays, which the object store shares; it would copy tensors for every reader."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in state.items()}


def trained_weights(checkpoint: str | Path) -> dict[str, np.ndarray]:
    """Reads the weights in a checkpoint of a `SupernetTrainable`.

    Raises: FileNotFoundError if the folder contains no state; InvalidInput if the trial failed, without weights.
    """
    trainer = read_state(checkpoint)["trainer"]
    if trainer is None:
        raise InvalidInput(
            f"expected weights in the checkpoint {checkpoint}, got none, as its trial failed. Use another"
        )
    return arrays_of(trainer["supernet"])
