"""What a trial trains, as Ray metrics: gauges that a node's metrics port and the dashboard show."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import ray
from ray.util.metrics import Gauge

SHOWN = {
    "train_loss": "Mean training loss of the epoch, in nats.",
    "validation_loss": "Validation loss after the epoch, in nats.",
    "validation_accuracy": "Validation accuracy after the epoch, a fraction.",
}


def report_epoch(trial: str | None, result: Mapping[str, Any]) -> None:
    """Sets `archray_train_loss`, `archray_validation_loss` and `archray_validation_accuracy` for one trial.

    Does nothing outside Ray or outside a trial; a value that is not finite, or not there, is not shown.
    """
    if trial is None or not ray.is_initialized():
        return
    for name in SHOWN:
        if math.isfinite(result.get(name, math.nan)):
            _gauge(name).set(result[name], tags={"trial": trial})


@cache
def _gauge(name: str) -> Gauge:
    return Gauge(f"archray_{name}", description=SHOWN[name], tag_keys=("trial",))
