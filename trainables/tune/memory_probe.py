"""The worker that measures how much of a card's memory one trial takes. It was never run on a real GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from archray.trainables.devices import OUT_OF_MEMORY, free_memory
from archray.trainables.tune.trial import TrialTrainable

BATCHES = 8  # of an epoch of the measured training: what kernels ask for on top they have asked for by then
EVALUATED = 1024  # images at least: two passes of an evaluation


class MemoryProbe:
    """Builds and trains a little of trials, one after another, inside an actor that has a card to itself."""

    def measure(
        self, trainable: type[TrialTrainable], settings: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """What the largest of the trials takes.

        Args:
            settings: of the trials, as in their Tune config. configs: their other keys.

        Returns: `card`, its bytes, None where torch sees no CUDA device; `taken`, bytes that torch held at most, as if
        the data set and the trial's batches lay there together, None of trials that did not train; `failures`, why.
        """
        if not torch.cuda.is_available():
            return {"card": None, "taken": None, "failures": []}
        card = torch.cuda.get_device_properties(0).total_memory
        peaks, failures = [], []
        resting = self._peak(trainable, {"settings": dict(settings), **configs[0]}, steps=0)[0]
        for config in configs:
            peak, failure = self._peak(trainable, {"settings": short_epochs(settings), **config}, steps=1)
            if failure is None:
                peaks.append(resting + peak)
            elif failure.startswith(OUT_OF_MEMORY):
                peaks.append(card)
            else:
                failures.append(failure)
        return {"card": card, "taken": max(peaks, default=None), "failures": failures}

    def _peak(self, trainable: type[TrialTrainable], config: dict[str, Any], *, steps: int) -> tuple[int, str | None]:
        """The bytes that torch reserved at most, and why the trial failed."""
        free_memory()
        torch.cuda.reset_peak_memory_stats()
        trial = trainable(config)
        try:
            trial.begin()
            failure = next((reason for _ in range(steps) if (reason := trial.step()["failure"])), None)
            return torch.cuda.max_memory_reserved(), failure
        finally:
            trial.cleanup()
            free_memory()


def short_epochs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of trials with a few batches of data; as they are where they name no batches."""
    training = settings.get("training", settings)
    if "batch_size" not in training or "data" not in settings:
        return dict(settings)
    points = max(BATCHES * training["batch_size"], EVALUATED)
    limit = settings["data"].get("limit")
    return {**settings, "data": {**settings["data"], "limit": points if limit is None else min(points, limit)}}
