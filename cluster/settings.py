"""Settings of the cluster and of a trial's resources, and the number of trials that fit on the cluster."""

import difflib
import math
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from archray.errors import InvalidInput
from archray.plurals import count
from archray.settings import Settings

LOCAL = "local"  # Ray's value for "start a new cluster"


class ClusterSettings(Settings):
    """The cluster on which trials run.

    Attributes:
        address: Address of a Ray cluster: `"auto"` joins the cluster of this machine, `"ip:port"` another cluster, and
            `"local"` always starts a new Ray. None: the cluster in RAY_ADDRESS, else a new Ray.
        num_cpus, num_gpus: Number of CPUs and GPUs of a Ray that archray starts; None: all that Ray detects.
        dashboard: Serve the dashboard of a Ray that archray starts, on 127.0.0.1.
        warm_workers: Fork the workers of a Ray that archray starts from a process that has already imported torch. A
            worker then starts in one second instead of five. Linux only.
        worker_output: Print the output of workers. Errors of trials are always reported.

    Example:
        ```python
        with connect(ClusterSettings(num_cpus=4, dashboard=False)):
            ...  # Ray runs here
        ```
    """

    address: str | None = None
    num_cpus: int | None = Field(default=None, ge=1)
    num_gpus: int | None = Field(default=None, ge=0)
    dashboard: bool = True
    warm_workers: bool = True
    worker_output: bool = False


def forks_workers(settings: ClusterSettings) -> bool:
    """Returns whether archray starts a new Ray and forks its workers. Raises: as `check_address`."""
    return check_address(settings) is None and settings.warm_workers and sys.platform == "linux"


def check_address(settings: ClusterSettings) -> str | None:
    """Returns the address to join; None to start a new Ray.

    Raises: InvalidInput for a `ray://` address, and for num_cpus or num_gpus with a running Ray.
    """
    address = settings.address or os.environ.get("RAY_ADDRESS") or LOCAL
    if address == LOCAL:
        return None
    if address.startswith("ray://"):
        host = address.removeprefix("ray://").split(":")[0]
        raise InvalidInput(
            f"Expected the address ip:port of a Ray cluster, got the Ray Client address {address}. With Ray Client, a "
            "search would use a copy of the searcher and could not be resumed. Send the command to the cluster: "
            f"archray submit --address http://{host}:8265 -- search ..."
        )
    if settings.num_cpus is not None or settings.num_gpus is not None:
        raise InvalidInput(
            f"Expected num_cpus and num_gpus only for a Ray that archray starts, got them with the running Ray at "
            f"{address}. Leave them out, or set address='local'."
        )
    return address


TOLERANCE = 1e-6  # 1 / 0.1 is not 10 in floating point
STEPS = 10_000  # Ray's unit is 1/10,000 of a GPU: a third of a GPU is 0.3333
IDLE = 0.05  # share of a GPU; a smaller idle part, as with shares of 0.3333 or 0.32, is not reported
AUTO = "auto"  # derive `trials_per_gpu` from the memory of one trial
RAY_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")  # not allowed in `custom`


class ResourceSettings(Settings):
    """Resources of a trial, or of an actor for pool scoring.

    Attributes:
        cpus_per_trial: CPUs per trial. Ray sets OMP_NUM_THREADS to this number (at least 1), so torch uses as many
            threads.
        gpus_per_trial: GPUs per trial; a number below 1 is a share of one GPU. None: one GPU if the cluster has GPUs,
            else none.
        trials_per_gpu: Number of trials that share a GPU, instead of gpus_per_trial. auto measures the memory of one
            trial at the start of each stage; without GPUs it means none.
        train_workers: Workers per standalone training run at the end of a search (final, baseline). They divide its
            batches; each needs cpus_per_trial and gpus_per_trial.
        custom: Custom resources per trial, by the names of the nodes' resources, for example accelerator_type:A100.
        max_concurrent: Maximum number of concurrent trials; None: as many as fit on the cluster.
        actors: Number of actors for pool scoring; None: as many as fit on the cluster.
        autoscales: Declare that the cluster starts nodes for waiting trials. A trial may then need more than any
            present node has; max_concurrent and a number of GPUs are required.
        keep_checkpoints: Keep the checkpoints of ended trials. Otherwise archray deletes the checkpoints that no stage
            reads.

    Example:
        ```python
        resources = ResourceSettings(cpus_per_trial=2, gpus_per_trial=0.5, max_concurrent=8)
        ```
    """

    cpus_per_trial: float = Field(default=1, gt=0)
    gpus_per_trial: float | None = Field(default=None, ge=0)
    trials_per_gpu: int | Literal["auto"] | None = None
    train_workers: int = Field(default=1, ge=1)
    custom: dict[str, float] = Field(default={})
    max_concurrent: int | None = Field(default=None, ge=1)
    actors: int | None = Field(default=None, ge=1)
    autoscales: bool = False
    keep_checkpoints: bool = False

    @field_validator("cpus_per_trial", "gpus_per_trial")
    @classmethod
    def _whole_above_one(cls, value: float | None) -> float | None:
        if value is not None and value > 1 and value != int(value):
            raise InvalidInput(f"expected a share of 1 or less, or a whole number, got {value}; Ray accepts no other")
        return value

    @field_validator("gpus_per_trial")
    @classmethod
    def _usable_share(cls, value: float | None) -> float | None:
        if value is not None and 0 < value < 1:
            if value * STEPS < 1 - TOLERANCE:
                raise InvalidInput(f"expected at least {1 / STEPS:g} of a GPU (Ray's smallest unit), got {value}")
            if trials_of_share(value) == 1:
                raise InvalidInput(
                    f"expected 1, or a share of 0.5 or less, got {value:g}. Only one such trial fits on a GPU, and "
                    f"{1 - value:g} of it stays idle. Use 1 for one trial on a GPU, or 0.5 for two."
                )
        return value

    @field_validator("trials_per_gpu", mode="before")
    @classmethod
    def _auto_or_number(cls, value: Any) -> Any:
        if value is None or value == AUTO:
            return value
        number = int(value) if isinstance(value, str) and value.isdecimal() else value
        if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= STEPS:
            raise InvalidInput(f"expected auto or a whole number of trials from 1 to {STEPS}, got {value!r}")
        return number

    @field_validator("custom")
    @classmethod
    def _not_a_ray_resource(cls, value: dict[str, float]) -> dict[str, float]:
        for name, amount in value.items():
            close = difflib.get_close_matches(name.lower(), ("cpu", "cpus", "gpu", "gpus"), n=1, cutoff=0.75)
            if close:
                raise InvalidInput(f"expected a custom resource, got {name!r}. Use {close[0][:3]}s_per_trial.")
            if not amount > 0:
                raise InvalidInput(f"expected a positive amount of {name!r}, got {amount:g}. Leave it out.")
        return value

    @model_validator(mode="after")
    def _one_share_of_gpus(self) -> "ResourceSettings":
        if self.trials_per_gpu is not None and self.gpus_per_trial is not None:
            raise InvalidInput(
                f"expected trials_per_gpu or gpus_per_trial, got both (trials_per_gpu={self.trials_per_gpu}, "
                f"gpus_per_trial={self.gpus_per_trial:g}). Set one of them."
            )
        return self

    @model_validator(mode="after")
    def _explicit_if_autoscaling(self) -> "ResourceSettings":
        shared = self.gpus_per_trial is not None or isinstance(self.trials_per_gpu, int)
        if self.autoscales and (self.max_concurrent is None or not shared):
            raise InvalidInput(
                "autoscaling needs explicit resources. Set max_concurrent, and gpus_per_trial or a number of "
                "trials_per_gpu."
            )
        return self

    def gpus(self) -> float:
        """Returns the GPUs per trial on the connected cluster; a whole GPU until `auto` is measured."""
        if self.gpus_per_trial is not None:
            return self.gpus_per_trial
        if isinstance(self.trials_per_gpu, int):
            return share_of_trials(self.trials_per_gpu)
        return 1.0 if any(gpus for _, gpus in node_resources()) else 0.0

    def fit(self, node: Mapping[str, float]) -> bool:
        """Returns whether a node with these resources, as in `ray.nodes()`, can hold a trial."""
        amounts = (node.get("CPU", 0.0), node.get("GPU", 0.0))
        has_custom = all(node.get(name, 0.0) >= amount - TOLERANCE for name, amount in self.custom.items())
        return has_custom and capacity(self.cpus_per_trial, self.gpus(), [amounts]) > 0


def trials_of_share(share: float) -> int:
    """Returns how many trials with a `share` of a GPU, in (0, 1], fit on one GPU."""
    return math.floor(1 / share + TOLERANCE)


def share_of_trials(trials: int) -> float:
    """Returns the largest share of a GPU, in Ray's units, with which `trials` fit on one GPU."""
    return math.floor(STEPS / trials) / STEPS


def unused_share(share: float) -> str | None:
    """Returns a warning if a share in (0, 1) leaves a part of each GPU idle; None if the part is below IDLE."""
    trials = trials_of_share(share)
    idle = 1 - trials * share
    if idle < IDLE:
        return None
    return (
        f"{count(trials, 'trial')} per GPU leave {idle:g} of each GPU idle. Set gpus_per_trial to "
        f"{share_of_trials(trials):g} to use the whole GPU."
    )


def node_resources() -> list[tuple[float, float]]:
    """Returns the CPUs and GPUs of every live node of the connected cluster."""
    return [(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in _nodes()]


def memory_per_gpu() -> float:
    """Returns the main memory per GPU, in bytes, on the node with the least: the memory that Ray gives to workers."""
    return min((node.get("memory", 0.0) / node["GPU"] for node in _nodes() if node.get("GPU")), default=math.inf)


def _nodes() -> list[Mapping[str, float]]:
    import ray  # imported here: it takes 1 s, and settings do not need it

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def capacity(cpus_per_trial: float, gpus_per_trial: float, nodes: Sequence[tuple[float, float]]) -> int:
    """Returns how many trials fit at the same time on nodes with (CPUs, GPUs).

    A trial runs on one node, and a share of a GPU is on one GPU: with 0.15 per trial, 48 trials fit on 8 GPUs, not 53.
    """
    trials = 0
    for cpus, gpus in nodes:
        fits = math.floor(cpus / cpus_per_trial + TOLERANCE)
        if 0 < gpus_per_trial < 1:
            fits = min(fits, int(gpus) * trials_of_share(gpus_per_trial))
        elif gpus_per_trial:
            fits = min(fits, math.floor(gpus / gpus_per_trial))
        trials += fits
    return trials


def _check_custom(custom: Mapping[str, float]) -> None:
    """Raises: InvalidInput for a resource that no node has, with the nearest name, or that no node has enough of."""
    most: dict[str, float] = {}
    for resources in _nodes():
        for name, amount in resources.items():
            if name not in RAY_RESOURCES and not name.startswith("node:"):
                most[name] = max(most.get(name, 0.0), amount)
    for name, amount in custom.items():
        if name not in most:
            close = difflib.get_close_matches(name, most, n=1)
            names = f"The nodes have {', '.join(sorted(most))}." if most else "The nodes have only CPUs and GPUs."
            hint = f"Did you mean {close[0]!r}?" if close else names
            raise InvalidInput(f"No node of the cluster has the resource {name!r} (resources.custom). {hint}")
        if amount > most[name] + TOLERANCE:
            raise InvalidInput(
                f"Expected at most {most[name]:g} of {name!r} per trial, the largest amount of a node, got {amount:g}"
            )


def _slots(settings: ResourceSettings, workers: int = 1) -> int:
    """Returns how many trials of `workers` each fit on the connected cluster. Raises: InvalidInput if none fits."""
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
            f"A training run needs {count(workers, 'worker')} of {worker} each, but only {slots} fit on the cluster. "
            f"Its nodes: {'; '.join(resources)}. Lower train_workers, cpus_per_trial or gpus_per_trial."
        )
    most_cpus, most_gpus = (max((node[place] for node in nodes), default=0.0) for place in (0, 1))
    lower = ["cpus_per_trial"] * (cpus > most_cpus) + ["gpus_per_trial"] * (gpus > most_gpus)
    raise InvalidInput(
        f"A trial needs {worker}, more than any node has. Nodes of the cluster: {'; '.join(resources)}. "
        f"Lower {' and '.join(lower) or 'cpus_per_trial or gpus_per_trial'}."
    )


def concurrency(settings: ResourceSettings, limit: int | None = None, workers: int = 1) -> int:
    """Returns the number of concurrent trials.

    The user's max_concurrent is used unchanged, even if some trials must wait for resources, since a searcher's
    decisions depend on it. Without it, as many trials as fit on the cluster run, at most `limit`.

    Args:
        settings: the resources of a trial, or of each of its workers.
        limit: maximum number of trials.
        workers: number of workers of a trial.

    Raises: InvalidInput if no trial fits.
    """
    slots = _slots(settings, workers)
    return settings.max_concurrent or (slots if limit is None else min(slots, limit))


def actor_count(settings: ResourceSettings) -> int:
    """Returns the number of actors that score a pool. Raises: InvalidInput if no actor fits on a node."""
    slots = _slots(settings)
    return settings.actors or slots
