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

LOCAL = "local"  # Ray's word for "start a new cluster"


class ClusterSettings(Settings):
    """Where trials run.

    Attributes:
        address: None starts a Ray on this machine, or joins the one that RAY_ADDRESS names; `"auto"` joins the cluster
            of this machine, `"ip:port"` another one, `"local"` always starts one.
        num_cpus, num_gpus: CPUs and GPUs of a Ray that archray starts; None counts them.
        dashboard: whether a Ray that archray starts serves its dashboard, on loopback.
        warm_workers: whether workers of a Ray that archray starts are forked from a process that has imported torch: a
            worker starts in one second instead of five. On Linux only.
        worker_output: whether the output of workers appears here. Errors of trials are reported either way.
    """

    address: str | None = None
    num_cpus: int | None = Field(default=None, ge=1)
    num_gpus: int | None = Field(default=None, ge=0)
    dashboard: bool = True
    warm_workers: bool = True
    worker_output: bool = False


def check_address(settings: ClusterSettings) -> str | None:
    """The address to join, None to start a Ray. Raises: InvalidInput for `ray://`, and for sizes of a joined Ray."""
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


TOLERANCE = 1e-6  # 1 / 0.1 is not 10 in floating point
STEPS = 10_000  # Ray counts a GPU in ten-thousandths: a third of a GPU is 0.3333
IDLE = 0.05  # of a GPU; a smaller idle part, at shares such as 0.3333 or 0.32, is not reported
AUTO = "auto"  # `trials_per_gpu` follows from the memory of one trial
RAY_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")  # which `custom` does not name


class ResourceSettings(Settings):
    """Resources of a trial, or of an actor of pool scoring.

    Attributes:
        cpus_per_trial: CPUs; Ray sets OMP_NUM_THREADS to it (1 for less than 1), so torch uses as many threads.
        gpus_per_trial: GPUs; below 1 a share of one GPU. None: one GPU if the cluster has any, else none.
        trials_per_gpu: trials that share a GPU, instead of gpus_per_trial; auto measures the memory of one trial at
            the start of each stage. Without GPUs auto means none.
        train_workers: workers of each standalone training run that ends a search (final, baseline), which divide its
            batches; each takes cpus_per_trial and gpus_per_trial.
        custom: further resources of a trial, by the names of the nodes' resources, accelerator_type:A100 for example.
        max_concurrent: trials at the same time; None: as many as fit on the cluster.
        actors: actors for pool scoring; None: as many as fit on the cluster.
        autoscales: whether the cluster starts nodes for waiting trials. A trial may then need more than any present
            node has, and max_concurrent and a number of GPUs are required.
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
                    f"a trial at {value:g} of a GPU has the GPU to itself, and no other can use the {1 - value:g} "
                    "that is left; give it 1, or 0.5 for two trials on a GPU"
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
                f"trials_per_gpu={self.trials_per_gpu} and gpus_per_trial={self.gpus_per_trial:g} both say how a GPU "
                "is shared; give one of them"
            )
        return self

    @model_validator(mode="after")
    def _explicit_if_autoscaling(self) -> "ResourceSettings":
        shared = self.gpus_per_trial is not None or isinstance(self.trials_per_gpu, int)
        if self.autoscales and (self.max_concurrent is None or not shared):
            raise InvalidInput(
                "autoscaling needs explicit resources; give max_concurrent, and gpus_per_trial or a number of "
                "trials_per_gpu"
            )
        return self

    def gpus(self) -> float:
        """GPUs per trial on the connected cluster; a whole GPU until `auto` is measured."""
        if self.gpus_per_trial is not None:
            return self.gpus_per_trial
        if isinstance(self.trials_per_gpu, int):
            return card_share(self.trials_per_gpu)
        return 1.0 if any(gpus for _, gpus in node_resources()) else 0.0


def trials_per_card(share: float) -> int:
    """How many trials at `share` of a GPU, in (0, 1], fit on it."""
    return math.floor(1 / share + TOLERANCE)


def card_share(trials: int) -> float:
    """The largest share of a GPU, in Ray's steps, at which `trials` fit on it."""
    return math.floor(STEPS / trials) / STEPS


def unused_share(share: float) -> str | None:
    """A message for a share in (0, 1) that leaves a part of each GPU idle; None for a part below IDLE."""
    trials = trials_per_card(share)
    idle = 1 - trials * share
    if idle < IDLE:
        return None
    return f"{count(trials, 'trial')} on a GPU leave {idle:g} of it idle; {card_share(trials):g} each would use it all"


def node_resources() -> list[tuple[float, float]]:
    """CPUs and GPUs of every node alive in the connected cluster."""
    return [(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in _nodes()]


def _nodes() -> list[Mapping[str, float]]:
    import ray  # 1 s, which settings do without

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def capacity(cpus_per_trial: float, gpus_per_trial: float, nodes: Sequence[tuple[float, float]]) -> int:
    """How many trials fit on nodes of (CPUs, GPUs) at once.

    A trial is on one node, and a share of a GPU on one GPU: at 0.15 each, 48 trials fit on 8 GPUs, not 53.
    """
    trials = 0
    for cpus, gpus in nodes:
        fits = math.floor(cpus / cpus_per_trial + TOLERANCE)
        if 0 < gpus_per_trial < 1:
            fits = min(fits, int(gpus) * trials_per_card(gpus_per_trial))
        elif gpus_per_trial:
            fits = min(fits, math.floor(gpus / gpus_per_trial))
        trials += fits
    return trials


def _check_custom(custom: Mapping[str, float]) -> None:
    """Raises: InvalidInput for a resource that no node has, with the nearest name, or not enough."""
    most: dict[str, float] = {}
    for resources in _nodes():
        for name, amount in resources.items():
            if name not in RAY_RESOURCES and not name.startswith("node:"):
                most[name] = max(most.get(name, 0.0), amount)
    for name, amount in custom.items():
        if name not in most:
            close = difflib.get_close_matches(name, most, n=1)
            names = f"they have {', '.join(sorted(most))}" if most else "they have none except CPUs and GPUs"
            hint = f"did you mean {close[0]!r}?" if close else names
            raise InvalidInput(f"no node of the cluster has the resource {name!r} (resources.custom); {hint}")
        if amount > most[name] + TOLERANCE:
            raise InvalidInput(f"a trial needs {amount:g} of {name!r}, and the most that a node has is {most[name]:g}")


def _slots(settings: ResourceSettings, workers: int = 1) -> int:
    """How many trials of `workers` each fit on the connected cluster. Raises: InvalidInput, with the nodes, if none."""
    if settings.autoscales and settings.max_concurrent is not None:
        return settings.max_concurrent
    _check_custom(settings.custom)
    nodes, cpus, gpus = node_resources(), settings.cpus_per_trial, settings.gpus()
    slots = capacity(cpus, gpus, nodes)
    if slots >= workers:
        return slots // workers
    worker, *resources = [f"{count(cpus, 'CPU')} and {count(gpus, 'GPU')}" for cpus, gpus in ((cpus, gpus), *nodes)]
    if slots:
        raise InvalidInput(
            f"a training run needs {count(workers, 'worker')} of {worker} each, and {slots} fit on the cluster; its "
            f"nodes: {'; '.join(resources)}. Lower train_workers, cpus_per_trial or gpus_per_trial"
        )
    most_cpus, most_gpus = (max((node[place] for node in nodes), default=0.0) for place in (0, 1))
    lower = ["cpus_per_trial"] * (cpus > most_cpus) + ["gpus_per_trial"] * (gpus > most_gpus)
    raise InvalidInput(
        f"a trial needs {worker}, more than any node has; the cluster's nodes: {'; '.join(resources)}. "
        f"Lower {' and '.join(lower) or 'cpus_per_trial or gpus_per_trial'}"
    )


def concurrency(settings: ResourceSettings, limit: int | None = None, workers: int = 1) -> int:
    """How many trials run at the same time.

    The user's number stays as it is, even if some trials must wait for resources: a searcher's decisions depend on it.
    Otherwise as many as fit on the cluster, at most `limit`. Raises: InvalidInput if none fits.

    workers: of a trial, each with the resources of the settings.
    """
    slots = _slots(settings, workers)
    return settings.max_concurrent or (slots if limit is None else min(slots, limit))


def actor_count(settings: ResourceSettings) -> int:
    """How many actors score a pool. Raises: InvalidInput if none fits on a node."""
    slots = _slots(settings)
    return settings.actors or slots
