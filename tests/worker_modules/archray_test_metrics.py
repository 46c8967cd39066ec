"""The metrics of a run on the port of a node."""

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


def metrics_of(labels: RunLabels) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Returns the metrics of a run by name: the labels in addition to those of the run and Ray, and the value."""
    [node] = ray.nodes()
    text = urllib.request.urlopen(f"http://127.0.0.1:{node['MetricsExportPort']}/metrics").read().decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    metrics: dict[str, list[tuple[dict[str, str], float]]] = {}
    for sample in samples:
        if labels.tags().items() <= sample.labels.items():
            of_others = {*LABEL_KEYS, *OF_RAY, *(key for key in sample.labels if key.startswith("otel_scope_"))}
            more = {key: value for key, value in sample.labels.items() if key not in of_others}
            metrics.setdefault(sample.name, []).append((more, sample.value))
    return metrics


Metrics = Mapping[str, list[tuple[dict[str, str], float]]]


def wait_for(labels: RunLabels, done: Callable[[Metrics], bool] = lambda metrics: True) -> Metrics:
    """Returns the metrics of a run as soon as there are any and `done` is true for them."""
    deadline = time.monotonic() + SERVED_AFTER
    metrics = metrics_of(labels)
    while not (metrics and done(metrics)) and time.monotonic() < deadline:
        time.sleep(0.5)
        metrics = metrics_of(labels)
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float:
    """Returns the value of one series; NaN if it does not exist."""
    numbers = [number for more, number in metrics.get(name, []) if more == labels]
    assert len(numbers) <= 1, numbers
    return numbers[0] if numbers else math.nan
