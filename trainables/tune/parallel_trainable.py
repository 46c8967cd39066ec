"""The Tune trainable of a standalone network that several workers train together."""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import ray
import torch
from ray.exceptions import RayTaskError
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch import distributed as dist

from archray.errors import InvalidInput
from archray.trainables.devices import choose_device, limit_memory
from archray.trainables.training import Metrics, Team, Trainer
from archray.trainables.tune import standalone_trainable as standalone
from archray.trainables.tune.trial import read_settings

Progress = tuple[int, float]  # completed epochs, and the learning rate

STORES: Any = dist  # torch.distributed has no types for its stores
LOOPBACK = "127.0.0.1"
PATIENCE = timedelta(minutes=30)  # timeout of collectives for the slowest worker; Ray detects a dead worker at once


class TrainWorker:
    """Trains its part of each batch. Methods other than `meeting` are called on all workers at the same time.

    Args:
        settings: Settings of a `StandaloneTrainable`, as a dict.
        gpus: Ray's GPU share for this worker. Below 1, workers may share a GPU, which NCCL does not support; the
            backend is then gloo.
        threads: Number of torch threads.
    """

    def __init__(
        self, rank: int, size: int, settings: dict[str, Any], architecture: str, seed: int, gpus: float, threads: int
    ) -> None:
        torch.set_num_threads(threads)
        self._team, self._architecture, self._seed = Team(rank, size), architecture, seed
        self._settings = read_settings(standalone.StandaloneSettings, settings)
        self._device = choose_device(self._settings.device, gpus=gpus)
        limit_memory(self._device, gpus)
        self._backend = "nccl" if self._device.type == "cuda" and gpus >= 1 else "gloo"
        self._store: Any = None  # a `TCPStore`
        self._trainer: Trainer

    def meeting(self) -> str:
        """Returns the address for `join`: this worker's, on which it listens; a file if Ray is on loopback."""
        host = ray.util.get_node_ip_address()
        if host == LOOPBACK:  # torch's server would listen on all interfaces
            return (Path(tempfile.mkdtemp(prefix="archray-workers-")) / "meeting").as_uri()
        # torch binds a free port here, so that no other program can take it before `join`.
        self._store = self._tcp_store(host, 0)
        return f"tcp://{host}:{self._store.port}"

    def join(self, meeting: str) -> None:
        address, store = urlsplit(meeting), self._store
        if address.scheme == "file":
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, "lo")
            store = STORES.FileStore(address.path, self._team.size)
        elif store is None:
            store = self._tcp_store(address.hostname, address.port)
        dist.init_process_group(
            self._backend, store=store, rank=self._team.rank, world_size=self._team.size, timeout=PATIENCE
        )

    def _tcp_store(self, host: str | None, port: int | None) -> Any:
        options: dict[str, Any] = {"is_master": self._team.rank == 0, "timeout": PATIENCE, "wait_for_workers": False}
        return STORES.TCPStore(host, port, self._team.size, **options)

    def build(self) -> dict[str, Any]:
        """Builds the trainer. Returns: the attributes of a `WorkerGroup`."""
        self._trainer, parameters, multiply_adds = standalone.build_trainer(
            self._settings, self._architecture, seed=self._seed, device=self._device, team=self._team
        )
        shape = {name: getattr(self._trainer.dataset, name) for name in ("in_channels", "num_classes")}
        sizes = {"parameters": parameters, "multiply_adds": multiply_adds}
        return {**sizes, "dataset": SimpleNamespace(**shape), "progress": self._progress()}

    def epoch(self) -> tuple[Any, Progress]:
        """Trains an epoch. Returns: the metrics of `train_epoch`, and the progress."""
        return standalone.train_epoch(self._trainer, self._settings.evaluate_test), self._progress()

    def state(self) -> dict[str, Any] | None:
        """Returns the trainer's state on the CPU from the first worker, None from the others, which are equal."""
        return _on_cpu(self._trainer.state_dict()) if self._team.rank == 0 else None

    def load(self, state: dict[str, Any]) -> Progress:
        self._trainer.load_state_dict(state)
        return self._progress()

    def _progress(self) -> Progress:
        return self._trainer.epochs_done, self._trainer.lr


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(part) for key, part in value.items()}
    return [_on_cpu(part) for part in value] if isinstance(value, list) else value


class WorkerGroup:
    """Actors that have joined and built their trainers, with those attributes of a `Trainer` that a trial needs.

    Ray Train's `TorchTrainer` creates a separate placement group, which Tune does not count as resources of the trial,
    and which outlives a trial that is stopped (Ray issue 54305; observed in 2.60). The bundles here are the trial's,
    and Tune removes them with it.

    Args:
        bundles: Bundles of the placement group of this process, the resources of each worker.
        settings: Settings of a `StandaloneTrainable`, as a dict.
        threads: Number of threads per worker (default: its CPUs).

    Attributes:
        parameters, multiply_adds: Size of the network.
        dataset: Its `in_channels` and `num_classes`.
        epochs_done, lr: State of the trainers.

    An exception in a worker is raised here unchanged. The other workers are then useless: call `close`.

    Raises: InvalidInput outside of a placement group.
    """

    def __init__(
        self,
        bundles: Sequence[Mapping[str, float]],
        settings: dict[str, Any],
        architecture: str,
        *,
        seed: int,
        threads: int | None,
    ) -> None:
        placement = get_current_placement_group()
        if placement is None:
            raise InvalidInput(
                "expected a Tune trial with a bundle for each worker, got a process without a placement group. Give "
                "the Tuner tune.with_resources(trainable, tune.PlacementGroupFactory([{}, {'CPU': 1}, "
                "{'CPU': 1}]))"
            )
        self._workers: list[Any] = []
        for rank, bundle in enumerate(bundles):
            others = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU", "memory")}
            cpus, gpus = bundle.get("CPU", 0.0), bundle.get("GPU", 0.0)
            needs: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "resources": others}
            place = PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=rank)
            worker: Any = ray.remote(TrainWorker).options(**needs, scheduling_strategy=place, max_restarts=0)
            options = {"gpus": gpus, "threads": threads or max(1, int(cpus))}
            self._workers.append(worker.remote(rank, len(bundles), settings, architecture, seed, **options))
        self._meeting = ""
        try:
            self._meeting = ray.get(self._workers[0].meeting.remote())
            self._all("join", self._meeting)
            trainer = self._all("build")[0]
        except BaseException:
            self.close()
            raise

        self.parameters, self.multiply_adds = trainer["parameters"], trainer["multiply_adds"]
        self.dataset = trainer["dataset"]
        self.epochs_done, self.lr = trainer["progress"]

    def epoch(self) -> tuple[Metrics, Metrics, Metrics]:
        """Trains an epoch. Returns its metrics on training, validation and test images."""
        metrics: tuple[Metrics, Metrics, Metrics]
        metrics, (self.epochs_done, self.lr) = self._all("epoch")[0]
        return metrics

    def state_dict(self) -> Any:
        return self._all("state")[0]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.epochs_done, self.lr = self._all("load", ray.put(dict(state)))[0]

    def close(self) -> None:
        """Stops the workers. Memory and GPUs are free as soon as Ray has processed it."""
        for worker in self._workers:
            ray.kill(worker)
        self._workers = []
        if self._meeting.startswith("file:"):  # on this machine, as Ray is on loopback
            shutil.rmtree(Path(urlsplit(self._meeting).path).parent, ignore_errors=True)

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """Calls a method of all workers. Returns the results by rank. Raises: the exception of the first to fail."""
        calls = [getattr(worker, method).remote(*arguments) for worker in self._workers]
        waiting = list(calls)
        while waiting:  # the others would wait forever for a worker that failed
            done, waiting = ray.wait(waiting)
            try:
                ray.get(done)
            except RayTaskError as error:
                raise error.cause from None
        results: list[Any] = ray.get(calls)
        return results


class ParallelTrainable(standalone.StandaloneTrainable):
    """A `StandaloneTrainable` with one worker per bundle of the trial after its first, empty one.

    The trial only coordinates: workers are actors in its bundles. Results and checkpoints are those of one worker, and
    any number of workers restores them. A lost worker fails the trial, which Tune retries from its last checkpoint
    with new workers.
    """

    _trainer: Any = None  # a `WorkerGroup`

    def _take(self, resources: Mapping[str, float] | None) -> None:
        self._device = torch.device("cpu")  # this process only moves the state to a checkpoint

    def _build(self) -> None:
        allotment = self.trial_resources
        if allotment is None or not allotment.head_bundle_is_empty:
            raise InvalidInput(
                "expected a trial with an empty first bundle and one bundle for each worker. Use "
                "tune.PlacementGroupFactory([{}, {'CPU': 1}, {'CPU': 1}])"
            )
        self._trainer = WorkerGroup(
            allotment.bundles,
            self._settings.model_dump(mode="json"),
            self._architecture,
            seed=self._seed,
            threads=self._settings.training.threads,
        )
        self._parameters, self._multiply_adds = self._trainer.parameters, self._trainer.multiply_adds

    def _epoch(self) -> dict[str, Any]:
        return self._values(*self._trainer.epoch())

    def _release(self) -> None:
        if self._trainer is not None:
            self._trainer.close()
        super()._release()
