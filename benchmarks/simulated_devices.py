"""Latencies of NAS-Bench-201's cells on simulated devices, to choose the settings of a search and to test them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

OPERATIONS = ["none", "skip_connect", "avg_pool_3x3", "nor_conv_1x1", "nor_conv_3x3"]
EDGES = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]  # in the order of the cell's string
BASE = np.array([0.0, 0.15, 0.6, 1.0, 3.0])  # typical costs of the operations; a device's costs vary about them
FLAT = np.array([0.0, 1.0, 1.0, 1.0, 1.0])  # no relation to multiply-adds: a 3x3 convolution may be the cheapest


def simulated_latency(architectures: Sequence[str], number: int) -> np.ndarray:
    """Returns the latency of each cell on device `number`, (n,).

    A device draws the cost of each operation, log-normally: an even number about costs that grow with multiply-adds, an
    odd number about equal costs, as on a device that runs convolutions better than pooling or skips. It also draws
    whether skips are free, whether dead operations are removed, whether the position of an operation matters, the share
    of branches that run in parallel, whether the cost grows more or less than proportionally, a fixed overhead, and
    whether measurements are noisy, coarse or exact.
    """
    rng = np.random.default_rng([77, number])
    words = [[edge.split("~")[0] for edge in name.replace("+", "").split("|") if edge] for name in architectures]
    operations = np.array([[OPERATIONS.index(word) for word in row] for row in words])  # (n, 6)
    base = (FLAT if number % 2 else BASE) * np.exp(rng.normal(0, 0.8, len(BASE)))
    if rng.random() < 0.3:
        base[1] = 0.0
    live = alive(operations) if rng.random() < 0.6 else np.ones(operations.shape, dtype=bool)
    edges = base[operations] * live
    if rng.random() < 0.3:
        edges = edges * np.exp(rng.normal(0, 0.2, len(EDGES)))
    ends = np.zeros((len(edges), 4))  # end time of each node, with parallel branches
    for place, (start, end) in enumerate(EDGES):
        ends[:, end] = np.maximum(ends[:, end], ends[:, start] + edges[:, place])
    parallel = rng.choice([0, 0, 0.5, 1.0])
    power = rng.choice([1, 0.6, 1.3, 2.5] if number % 2 else [1, 1, 0.6, 1.3])
    cost = ((1 - parallel) * edges.sum(axis=1) + parallel * ends[:, 3]) ** power
    median = np.median(cost)
    overhead = rng.choice([0, 0.1, 0.5, 1.5]) * median
    cost = cost + overhead * (live.any(axis=1) if rng.random() < 0.5 else 1)
    kind = rng.random()
    if kind < 0.35:
        return cost * np.exp(rng.normal(0, rng.choice([0.02, 0.05, 0.12]), len(cost)))
    return np.round(cost / median * 10) * median / 10 if kind < 0.55 else cost


def alive(operations: np.ndarray) -> np.ndarray:
    """Returns whether each operation is on a path from the cell's input to its output, (n, 6)."""
    live = operations != OPERATIONS.index("none")
    forward, backward = np.zeros((len(live), 4), dtype=bool), np.zeros((len(live), 4), dtype=bool)
    forward[:, 0] = backward[:, 3] = True
    for place, (start, end) in enumerate(EDGES):
        forward[:, end] |= forward[:, start] & live[:, place]
    for place, (start, end) in reversed(list(enumerate(EDGES))):
        backward[:, start] |= backward[:, end] & live[:, place]
    return np.stack([live[:, p] & forward[:, i] & backward[:, j] for p, (i, j) in enumerate(EDGES)], axis=1)
