"""What one trial takes, and how many of them a cluster holds at the same time."""

from __future__ import annotations

import math

from pydantic import Field, field_validator

from archray.errors import InvalidInput
from archray.plurals import count
from archray.settings import Settings

TOLERANCE = 1e-6  # 1 / 0.1 is not 10 in floating point


class ResourceSettings(Settings):
    """What a trial, or an actor of pool scoring, takes.

    Attributes:
        cpus_per_trial: CPUs; Ray sets OMP_NUM_THREADS to it (1 for less than 1), so torch uses as many threads.
        gpus_per_trial: GPUs; below 1 a share of one card. None: one card where the cluster has any, else none.
        max_concurrent: trials at the same time; None: what the cluster holds.
        actors: actors for pool scoring; None: what the cluster holds.
    """

    cpus_per_trial: float = Field(default=1, gt=0)
    gpus_per_trial: float | None = Field(default=None, ge=0)
    max_concurrent: int | None = Field(default=None, ge=1)
    actors: int | None = Field(default=None, ge=1)

    @field_validator("cpus_per_trial", "gpus_per_trial")
    @classmethod
    def _whole_above_one(cls, value: float | None) -> float | None:
        if value is not None and value > 1 and value != int(value):
            raise InvalidInput(f"expected a share up to 1 or a whole number (Ray places no other), got {value}")
        return value

    def gpus(self) -> float:
        """GPUs per trial on the cluster that is connected."""
        if self.gpus_per_trial is not None:
            return self.gpus_per_trial
        return 1.0 if any(gpus for _, gpus in node_resources()) else 0.0


def node_resources() -> list[tuple[float, float]]:
    """CPUs and GPUs of every node alive in the cluster that is connected."""
    import ray  # not above: the settings are read before a Ray is needed

    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [(held.get("CPU", 0.0), held.get("GPU", 0.0)) for held in resources]


def capacity(cpus_per_trial: float, gpus_per_trial: float, nodes: list[tuple[float, float]]) -> int:
    """How many trials fit on nodes of (CPUs, GPUs) at once.

    A trial lies on one node, and a share of a GPU on one card: 8 cards at 0.15 hold 48 trials, not 53.
    """
    fitting = 0
    for cpus, gpus in nodes:
        fits = math.floor(cpus / cpus_per_trial + TOLERANCE)
        if 0 < gpus_per_trial < 1:
            fits = min(fits, int(gpus) * math.floor(1 / gpus_per_trial + TOLERANCE))
        elif gpus_per_trial:
            fits = min(fits, math.floor(gpus / gpus_per_trial))
        fitting += fits
    return fitting


def _holds(settings: ResourceSettings) -> int:
    """How many trials the cluster that is connected holds. Raises: InvalidInput if none, with what its nodes have."""
    nodes = node_resources()
    holds = capacity(settings.cpus_per_trial, settings.gpus(), nodes)
    if holds == 0:
        have = "; ".join(f"{count(cpus, 'CPU')} and {count(gpus, 'GPU')}" for cpus, gpus in nodes)
        raise InvalidInput(
            f"a trial asks for {count(settings.cpus_per_trial, 'CPU')} and {count(settings.gpus(), 'GPU')}, more than "
            f"any node has; the cluster's nodes: {have}. Lower cpus_per_trial or gpus_per_trial"
        )
    return holds


def concurrency(settings: ResourceSettings, limit: int | None = None) -> int:
    """How many trials run at the same time.

    What the user asked for is taken as it is, even if some of them will wait for resources: a searcher's decisions
    depend on this number. Otherwise what the cluster holds, at most `limit`. Raises: InvalidInput if it holds none.
    """
    holds = _holds(settings)
    return settings.max_concurrent or (holds if limit is None else min(holds, limit))


def actor_count(settings: ResourceSettings) -> int:
    """How many actors score a pool. Raises: InvalidInput if no node can hold one."""
    holds = _holds(settings)
    return settings.actors or holds
