"""What a node's metrics port says of a run."""

from __future__ import annotations

import math
import time
import urllib.request
from collections.abc import Callable, Mapping

import ray
from prometheus_client.parser import text_string_to_metric_families

from archray.cluster.metrics import LABEL_KEYS, RunLabels

OF_RAY = {"Component", "NodeAddress", "Version", "WorkerId", "SessionName", "JobId", "NodeId", "NodeName", "le"}
SERVED_AFTER = 300.0  # seconds at most, on a busy machine: a process sends its metrics every ten


def served(labels: RunLabels) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What the node's port says of a run: by name, the labels beside the run's own and Ray's, and the value."""
    [node] = ray.nodes()
    text = urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics").read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    told: dict[str, list[tuple[dict[str, str], float]]] = {}
    for sample in samples:
        if labels.tags().items() <= sample.labels.items():
            of_others = {*LABEL_KEYS, *OF_RAY, *(key for key in sample.labels if key.startswith("otel_scope_"))}
            more = {key: value for key, value in sample.labels.items() if key not in of_others}
            told.setdefault(sample.name, []).append((more, sample.value))
    return told


Told = Mapping[str, list[tuple[dict[str, str], float]]]


def wait_for(labels: RunLabels, done: Callable[[Told], bool] = lambda told: True) -> Told:
    """What the port says of a run once it says anything, and `done` is true of it."""
    deadline = time.monotonic() + SERVED_AFTER
    told = served(labels)
    while not (told and done(told)) and time.monotonic() < deadline:
        time.sleep(0.5)
        told = served(labels)
    return told


def value(told: Told, name: str, **labels: str) -> float:
    """The value of one series; NaN where there is none."""
    numbers = [number for more, number in told.get(name, []) if more == labels]
    assert len(numbers) <= 1, numbers
    return numbers[0] if numbers else math.nan
