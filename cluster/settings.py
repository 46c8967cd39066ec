"""Settings of the cluster and of a trial's resources, and how many trials the cluster holds."""

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from archray.errors import InvalidInput
from archray.plurals import count
from archray.settings import Settings

# Cluster

LOCAL = "local"  # Ray's word for "start a cluster of your own"


class ClusterSettings(Settings):
    """Where trials run.

    Attributes:
        address: None starts a Ray of our own on this machine, or joins the one that RAY_ADDRESS names; `"auto"`
            joins the cluster of this machine, `"ip:port"` another one, `"local"` always starts one.
        num_cpus: CPUs of the Ray that we start; None counts them.
        num_gpus: GPUs of the Ray that we start; None counts them.
        dashboard: whether the Ray that we start serves its dashboard, on loopback.
        warm_workers: whether workers of the Ray that we start are forked from a process that has imported torch: each
            is up in a second instead of five. On Linux only.
        worker_output: whether what workers print appears here. Errors of trials are reported either way.
    """

    address: str | None = None
    num_cpus: int | None = Field(default=None, ge=1)
    num_gpus: int | None = Field(default=None, ge=0)
    dashboard: bool = True
    warm_workers: bool = True
    worker_output: bool = False


def check_address(settings: ClusterSettings) -> str | None:
    """The address to join, None to start a Ray. Needs no Ray: called before anything starts.

    Raises: InvalidInput for `ray://`, and for sizes given along with an address to join.
    """
    address = settings.address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address == LOCAL:
        return None
    if address.startswith("ray://"):
        host = address.removeprefix("ray://").split(":")[0]
        raise InvalidInput(
            f"{address} is a Ray Client address; over it a search would run on a copy of the searcher and could not "
            "be resumed. Send the command to the cluster instead: "
            f"archray submit --address http://{host}:8265 -- search ..."
        )
    if settings.num_cpus is not None or settings.num_gpus is not None:
        raise InvalidInput(
            f"num_cpus and num_gpus size a Ray that archray starts, but {address} names one that runs; "
            "leave them out, or give address='local'"
        )
    return address


# Resources of a trial

TOLERANCE = 1e-6  # 1 / 0.1 is not 10 in floating point
STEPS = 10_000  # Ray counts a GPU in ten-thousandths: a third of a card is 0.3333
IDLE = 0.05  # of a card; less than this stays idle at shares such as 0.3333 or 0.32, and is not worth a word
AUTO = "auto"  # of `trials_per_gpu`: as many as the memory of one trial says
RAY_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")  # which `custom` does not name


class ResourceSettings(Settings):
    """What a trial, or an actor of pool scoring, takes.

    Attributes:
        cpus_per_trial: CPUs; Ray sets OMP_NUM_THREADS to it (1 for less than 1), so torch uses as many threads.
        gpus_per_trial: GPUs; below 1 a share of one card. None: one card where the cluster has any, else none.
        trials_per_gpu: trials that share a card, instead of gpus_per_trial; auto measures the memory of one trial at
            the beginning of each stage. Without GPUs auto means none.
        train_workers: workers of each standalone training that ends a search (final, baseline), which divide its
            batches; each takes cpus_per_trial and gpus_per_trial.
        custom: further resources of a trial, by the names that the nodes give them, accelerator_type:A100 for example.
        max_concurrent: trials at the same time; None: what the cluster holds.
        actors: actors for pool scoring; None: what the cluster holds.
        autoscales: whether the cluster starts nodes for what waits, from none perhaps: a trial may ask for more than
            any node has by now, and how many run, and on how many GPUs each, must be said.
    """

    cpus_per_trial: float = Field(default=1, gt=0)
    gpus_per_trial: float | None = Field(default=None, ge=0)
    trials_per_gpu: int | Literal["auto"] | None = None
    train_workers: int = Field(default=1, ge=1)
    custom: dict[str, float] = Field(default={})
    max_concurrent: int | None = Field(default=None, ge=1)
    actors: int | None = Field(default=None, ge=1)
    autoscales: bool = False

    @field_validator("cpus_per_trial", "gpus_per_trial")
    @classmethod
    def _whole_above_one(cls, value: float | None) -> float | None:
        if value is not None and value > 1 and value != int(value):
            raise InvalidInput(f"expected a share up to 1 or a whole number (Ray places no other), got {value}")
        return value

    @field_validator("gpus_per_trial")
    @classmethod
    def _usable_share(cls, value: float | None) -> float | None:
        if value is not None and 0 < value < 1:
            if value * STEPS < 1 - TOLERANCE:
                raise InvalidInput(f"expected at least {1 / STEPS:g} of a GPU (Ray counts no less), got {value}")
            if trials_per_card(value) == 1:
                raise InvalidInput(
                    f"a trial at {value:g} of a GPU has its card to itself, and no other can use the {1 - value:g} "
                    "that is left; give it 1, or 0.5 for two trials on a card"
                )
        return value

    @field_validator("trials_per_gpu", mode="before")
    @classmethod
    def _auto_or_number(cls, value: Any) -> Any:
        if value is None or value == AUTO:
            return value
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= STEPS:
            raise InvalidInput("expected auto or a whole number of trials from 1")
        return number

    @field_validator("custom")
    @classmethod
    def _not_a_ray_resource(cls, value: dict[str, float]) -> dict[str, float]:
        for name, amount in value.items():
            close = difflib.get_close_matches(name.lower(), ("cpu", "cpus", "gpu", "gpus"), n=1, cutoff=0.75)
            if close:
                raise InvalidInput(f"there is no custom resource {name!r}: use {close[0][:3]}s_per_trial")
            if not amount > 0:
                raise InvalidInput(f"expected more than 0 of {name!r}, got {amount:g}; leave it out")
        return value

    @model_validator(mode="after")
    def _one_share_of_gpus(self) -> "ResourceSettings":
        if self.trials_per_gpu is not None and self.gpus_per_trial is not None:
            raise InvalidInput(
                f"trials_per_gpu={self.trials_per_gpu} and gpus_per_trial={self.gpus_per_trial:g} both say how a card "
                "is shared; give one of them"
            )
        return self

    @model_validator(mode="after")
    def _explicit_if_autoscaling(self) -> "ResourceSettings":
        shared = self.gpus_per_trial is not None or isinstance(self.trials_per_gpu, int)
        if self.autoscales and (self.max_concurrent is None or not shared):
            raise InvalidInput(
                "with autoscales the nodes that are there say nothing of those to come; give max_concurrent, and "
                "gpus_per_trial or a number of trials_per_gpu"
            )
        return self

    def gpus(self) -> float:
        """GPUs per trial on the cluster that is connected; a whole card as long as `auto` is not measured."""
        if self.gpus_per_trial is not None:
            return self.gpus_per_trial
        if isinstance(self.trials_per_gpu, int):
            return card_share(self.trials_per_gpu)
        return 1.0 if any(gpus for _, gpus in node_resources()) else 0.0


def trials_per_card(share: float) -> int:
    """How many trials at `share` of a card, in (0, 1], it holds."""
    return math.floor(1 / share + TOLERANCE)


def card_share(trials: int) -> float:
    """The largest share of a card that Ray can count of which it holds `trials`."""
    return math.floor(STEPS / trials) / STEPS


def unused_share(share: float) -> str | None:
    """What to tell of a share in (0, 1) that leaves some of each card idle; None if it is hardly any."""
    trials = trials_per_card(share)
    idle = 1 - trials * share
    if idle < IDLE:
        return None
    return f"{count(trials, 'trial')} on a card leave {idle:g} of it idle; {card_share(trials):g} each would use it all"


def node_resources() -> list[tuple[float, float]]:
    """CPUs and GPUs of every node alive in the cluster that is connected."""
    return [(held.get("CPU", 0.0), held.get("GPU", 0.0)) for held in _nodes()]


def _nodes() -> list[Mapping[str, float]]:
    import ray  # not above: the settings are read before a Ray is needed

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def capacity(cpus_per_trial: float, gpus_per_trial: float, nodes: Sequence[tuple[float, float]]) -> int:
    """How many trials fit on nodes of (CPUs, GPUs) at once.

    A trial lies on one node, and a share of a GPU on one card: 8 cards at 0.15 hold 48 trials, not 53.
    """
    fitting = 0
    for cpus, gpus in nodes:
        fits = math.floor(cpus / cpus_per_trial + TOLERANCE)
        if 0 < gpus_per_trial < 1:
            fits = min(fits, int(gpus) * trials_per_card(gpus_per_trial))
        elif gpus_per_trial:
            fits = min(fits, math.floor(gpus / gpus_per_trial))
        fitting += fits
    return fitting


def _check_custom(custom: Mapping[str, float]) -> None:
    """Raises: InvalidInput for a resource that no node has, with the nearest name, or has not enough of."""
    most: dict[str, float] = {}
    for held in _nodes():
        for name, amount in held.items():
            if name not in RAY_RESOURCES and not name.startswith("node:"):
                most[name] = max(most.get(name, 0.0), amount)
    for name, amount in custom.items():
        if name not in most:
            close = difflib.get_close_matches(name, most, n=1)
            names = f"they have {', '.join(sorted(most))}" if most else "they have none beside CPUs and GPUs"
            hint = f"did you mean {close[0]!r}?" if close else names
            raise InvalidInput(f"no node of the cluster has the resource {name!r} (resources.custom); {hint}")
        if amount > most[name] + TOLERANCE:
            raise InvalidInput(
                f"a trial asks for {amount:g} of {name!r}, and the most that a node has is {most[name]:g}"
            )


def _holds(settings: ResourceSettings, workers: int = 1) -> int:
    """How many trials of `workers` each the cluster that is connected holds.

    Raises: InvalidInput if none, with what its nodes have.
    """
    if settings.autoscales and settings.max_concurrent is not None:
        return settings.max_concurrent
    _check_custom(settings.custom)
    nodes, cpus, gpus = node_resources(), settings.cpus_per_trial, settings.gpus()
    slots = capacity(cpus, gpus, nodes)
    if slots >= workers:
        return slots // workers
    have = "; ".join(f"{count(cpus, 'CPU')} and {count(gpus, 'GPU')}" for cpus, gpus in nodes)
    worker = f"{count(cpus, 'CPU')} and {count(gpus, 'GPU')}"
    if slots:
        raise InvalidInput(
            f"a training asks for {count(workers, 'worker')} of {worker} each, and the cluster holds {slots}; its "
            f"nodes: {have}. Lower train_workers, cpus_per_trial or gpus_per_trial"
        )
    lower = [
        name
        for name, wanted, most in (
            ("cpus_per_trial", cpus, max((node[0] for node in nodes), default=0.0)),
            ("gpus_per_trial", gpus, max((node[1] for node in nodes), default=0.0)),
        )
        if wanted > most
    ]
    raise InvalidInput(
        f"a trial asks for {worker}, more than any node has; the cluster's nodes: {have}. "
        f"Lower {' and '.join(lower) or 'cpus_per_trial or gpus_per_trial'}"
    )


def concurrency(settings: ResourceSettings, limit: int | None = None, workers: int = 1) -> int:
    """How many trials run at the same time.

    What the user asked for is taken as it is, even if some of them will wait for resources: a searcher's decisions
    depend on this number. Otherwise what the cluster holds, at most `limit`. Raises: InvalidInput if it holds none.

    workers: of a trial, each of which takes what the settings say.
    """
    holds = _holds(settings, workers)
    return settings.max_concurrent or (holds if limit is None else min(holds, limit))


def actor_count(settings: ResourceSettings) -> int:
    """How many actors score a pool. Raises: InvalidInput if no node can hold one."""
    holds = _holds(settings)
    return settings.actors or holds
