"""Classifiers of standalone solves: a feature map with its linear model, which can be loaded and predict."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.trainables.checkpoint import read_state
from archray.trainables.feature_maps import fourier_features as fourier
from archray.trainables.feature_maps.features import FeatureMap, blocks, rows_in_block
from archray.trainables.feature_maps.hashed_ngrams import BinWeights, Corpus, featurize, weighted
from archray.trainables.feature_maps.linear import decisions
from archray.trainables.feature_maps.ridge import LinearModel

PROBE = 8  # numbers of a basis in a checkpoint, which identify it


class Classifier(ABC):
    """Base class: a function from points to decision values; the class of a point has the largest value."""

    @abstractmethod
    def __call__(self, points: Any) -> Tensor:
        """Returns decision values (m, K) of m points."""

    def predict(self, points: Any) -> Tensor:
        """Returns classes (m,) int64."""
        return self(points).argmax(1)

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Returns all that `load_classifier` needs: tensors and plain data."""


class FourierClassifier(Classifier):
    """Classifies images: (m, C, H, W) normalized as in the data set, or flat (m, p)."""

    def __init__(
        self, feature_map: FeatureMap, bases: fourier.FourierBases, statistics: fourier.Statistics, model: LinearModel
    ) -> None:
        self._map, self._bases, self._statistics, self._model = feature_map, bases, statistics, model

    def __call__(self, points: Tensor) -> Tensor:
        inputs = points.flatten(1).to(self._bases.device)
        only = np.zeros(len(inputs), dtype=np.int64)
        features = fourier.FourierFeatures(inputs, [self._map], only, self._bases, self._statistics)
        rows = blocks(len(inputs), rows_in_block(self._bases.dimension))
        return torch.cat([self._model.decisions(features.block(part)) for part in rows])

    @torch.no_grad()
    def network(self) -> fourier.FourierNetwork:
        """Returns the classifier as a torch module on the CPU, in evaluation mode, with its basis as a buffer."""
        basis, offset = self._bases.draw(self._bases.key(str(self._map["kernel"]), 0))
        preprocess, statistics = self._map["preprocess"], self._statistics
        inputs, dimension = basis.shape
        network = fourier.FourierNetwork(
            inputs, dimension, len(self._model.intercept), unit_length=preprocess == "normalize"
        )
        if preprocess in ("minmax", "standard"):
            network.shift.copy_(statistics.low if preprocess == "minmax" else statistics.mean)
            network.width.copy_(statistics.width if preprocess == "minmax" else statistics.deviation)
        network.scale.fill_(fourier.row_scale(self._map))
        network.basis.copy_(basis)
        network.offset.copy_(offset)
        network.weights.copy_(self._model.weights)
        network.intercept.copy_(self._model.intercept)
        return network.eval().requires_grad_(False)

    def state(self) -> dict[str, Any]:
        """The basis is redrawn from its seed; a few of its numbers verify that it is the same."""
        return {
            "kind": "images",
            "map": dict(self._map),
            "dimension": self._bases.dimension,
            "inputs": self._bases.inputs,
            "seed": self._bases.seed,
            "bases": self._bases.bases,
            "probe": self._probe(),
            "statistics": {name: tensor.cpu() for name, tensor in vars(self._statistics).items()},
            "weights": self._model.weights.cpu(),
            "intercept": self._model.intercept.cpu(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "FourierClassifier":
        """Rebuilds a classifier. Raises: InvalidInput if this version of torch draws another basis from the seed."""
        bases = fourier.FourierBases(state["inputs"], state["dimension"], state["seed"], state["bases"])
        model = LinearModel(state["weights"], state["intercept"])
        classifier = cls(state["map"], bases, fourier.Statistics(**state["statistics"]), model)
        if not torch.allclose(classifier._probe(), state["probe"], rtol=1e-5):
            raise InvalidInput(
                "expected the random basis of this classifier's seed, got another one from torch "
                f"{torch.__version__}; load the classifier with the torch version that solved it"
            )
        return classifier

    def _probe(self) -> Tensor:
        basis, offset = self._bases.draw(self._bases.key(str(self._map["kernel"]), 0))
        return torch.cat([basis.flatten()[-PROBE:], offset[-PROBE:]]).cpu()


class NGramClassifier(Classifier):
    """Classifies texts: a sequence of strings."""

    def __init__(self, feature_map: FeatureMap, seed: int, bin_weights: BinWeights, model: LinearModel) -> None:
        self._map, self._seed, self._bin_weights, self._model = feature_map, seed, bin_weights, model

    def __call__(self, points: Sequence[str]) -> Tensor:
        rows, only = np.arange(len(points)), np.zeros(len(points), dtype=np.int64)
        counts = featurize(Corpus(points), rows, [self._map], only, len(self._model.weights), [self._seed])
        return decisions(weighted(counts, [self._map], only, self._bin_weights), self._model)

    def state(self) -> dict[str, Any]:
        positive = self._bin_weights.positive
        return {
            "kind": "text",
            "map": dict(self._map),
            "seed": self._seed,
            "total": torch.from_numpy(self._bin_weights.total),
            "positive": None if positive is None else torch.from_numpy(positive),
            "weights": self._model.weights,
            "intercept": self._model.intercept,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> "NGramClassifier":
        positive = None if state["positive"] is None else state["positive"].numpy()
        model = LinearModel(state["weights"], state["intercept"])
        return cls(state["map"], state["seed"], BinWeights(state["total"].numpy(), positive), model)


def load_classifier(folder: str | Path) -> Classifier:
    """Loads the classifier in a `FeatureMapTrainable`'s checkpoint of a standalone solve, on the CPU.

    Raises: InvalidInput for the checkpoint of a shared or a failed solve, which contains no classifier.
    """
    state = read_state(folder)
    if state.get("classifier") is None:
        failure = (state.get("result") or {}).get("failure")
        reason = (
            f"as its solve failed: {failure}" if failure else "as its solve was for several maps, or has not finished"
        )
        raise InvalidInput(f"expected a classifier in the checkpoint {folder}, got none, {reason}")
    kind = FourierClassifier if state["classifier"]["kind"] == "images" else NGramClassifier
    return kind.from_state(state["classifier"])
