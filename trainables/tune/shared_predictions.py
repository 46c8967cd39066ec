"""The worker that predicts with a supernet's weights, inside an actor or in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import ray

from archray.errors import InvalidArchitecture
from archray.trainables.supernets.evaluation import predict_architecture
from archray.trainables.tune.supernet_scorer import Arrays, SupernetScorer


class SharedPredictions:
    """Holds a supernet with trained weights and the validation data; predicts as any architecture on all of it.

    Args: as `SupernetScorer`, which scores with the same weights, data and batches.

    Raises: InvalidInput if the weights are of another supernet.
    """

    def __init__(self, settings: dict[str, Any], weights: Arrays | ray.ObjectRef, device: str = "auto") -> None:
        self._scorer = SupernetScorer(settings, weights, device)

    @property
    def labels(self) -> np.ndarray:
        """Of the validation images: (images,) int64."""
        labels: np.ndarray = self._scorer.validation.labels.cpu().numpy()
        return labels

    def __call__(self, architecture: str) -> np.ndarray | str:
        """The probabilities on the validation images, (images, classes) float32, or why there are none."""
        scorer = self._scorer
        training = scorer.settings.training
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
