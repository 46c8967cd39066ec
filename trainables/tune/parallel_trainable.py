"""The Tune trainable of a standalone network that several workers train together."""

import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
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
from archray.trainables.tune.standalone_trainable import (
    StandaloneSettings,
    StandaloneTrainable,
    build_trainer,
    train_epoch,
)
from archray.trainables.tune.trial import read_settings

LOOPBACK = "127.0.0.1"
PATIENCE = timedelta(minutes=30)  # of a collective for the slowest worker; one that died is noticed by Ray, at once


class TrainWorker:
    """Trains its part of each batch. Methods other than `meeting` are called on all workers at the same time.

    Args:
        settings: of a `StandaloneTrainable`, as a dict.
        gpus: Ray's share for this worker. Below a whole card workers may lie on one, which NCCL refuses: gloo then.
        threads: of torch.
    """

    def __init__(
        self, rank: int, size: int, settings: dict[str, Any], architecture: str, seed: int, gpus: float, threads: int
    ) -> None:
        torch.set_num_threads(threads)
        self._team, self._architecture, self._seed = Team(rank, size), architecture, seed
        self._settings = read_settings(StandaloneSettings, settings)
        self._device = choose_device(self._settings.device, gpus=gpus)
        limit_memory(self._device, gpus)
        self._backend = "nccl" if self._device.type == "cuda" and gpus >= 1 else "gloo"
        self._trainer: Trainer

    def meeting(self) -> str:
        """Where the workers meet, for `join`: this one's address with a free port; where Ray is on loopback a file."""
        host = ray.util.get_node_ip_address()
        if host == LOOPBACK:  # torch's own server would listen on all interfaces
            return (Path(tempfile.mkdtemp(prefix="archray-workers-")) / "meeting").as_uri()
        with socket.socket() as probe:
            probe.bind((host, 0))
            return f"tcp://{host}:{probe.getsockname()[1]}"

    def join(self, meeting: str) -> None:
        if meeting.startswith("file:"):
            for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
                os.environ.setdefault(name, "lo")
        dist.init_process_group(
            self._backend, init_method=meeting, rank=self._team.rank, world_size=self._team.size, timeout=PATIENCE
        )

    def build(self) -> dict[str, Any]:
        """Builds the trainer. Returns: what a result and a checkpoint tell of it."""
        self._trainer, parameters, multiply_adds = build_trainer(
            self._settings, self._architecture, seed=self._seed, device=self._device, team=self._team
        )
        dataset = self._trainer.dataset
        facts = {"parameters": parameters, "multiply_adds": multiply_adds}
        return facts | {"in_channels": dataset.in_channels, "num_classes": dataset.num_classes} | self._progress()

    def epoch(self) -> dict[str, Any]:
        """Trains an epoch. Returns: `metrics`, of the training, validation and test images, and how far it is."""
        metrics = train_epoch(self._trainer, self._settings.evaluate_test)
        return {"metrics": metrics} | self._progress()

    def state(self) -> dict[str, Any] | None:
        """The trainer's state, on the CPU; of the first worker, as those of the others are the same."""
        return _on_cpu(self._trainer.state_dict()) if self._team.rank == 0 else None

    def load(self, state: dict[str, Any]) -> dict[str, Any]:
        self._trainer.load_state_dict(state)
        return self._progress()

    def _progress(self) -> dict[str, Any]:
        trainer = self._trainer
        return {"epochs_done": trainer.epochs_done, "lr": trainer.lr}


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(part) for key, part in value.items()}
    return [_on_cpu(part) for part in value] if isinstance(value, list) else value


class WorkerGroup:
    """Actors that have joined and built their trainers; of `Trainer` what a trial needs.

    Not Ray Train's `TorchTrainer`, which makes a placement group of its own: Tune does not count what it takes among
    the resources of the trial, and the group outlives a trial that is stopped (Ray's issue 54305; seen in 2.60, a
    minute after the Tuner had ended). These bundles are the trial's, and Tune removes them with it.

    Args:
        bundles: of the placement group that this process runs in, the resources of each worker.
        settings: of a `StandaloneTrainable`, as a dict. threads: of each worker; None: its CPUs.

    What a worker raises is raised here as it is, and the others are then of no use: `close`.
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
                "several workers train inside a trial of Tune's that has a bundle for each; give the Tuner "
                "tune.with_resources(trainable, tune.PlacementGroupFactory([{}, {'CPU': 1}, {'CPU': 1}]))"
            )
        self._workers: list[Any] = []
        for rank, bundle in enumerate(bundles):
            others = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU", "memory")}
            cpus, gpus = bundle.get("CPU", 0.0), bundle.get("GPU", 0.0)
            needs: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "resources": others}
            place = PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=rank)
            worker: Any = ray.remote(TrainWorker).options(**needs, scheduling_strategy=place, max_restarts=0)
            of_torch = threads or max(1, int(cpus))
            self._workers.append(
                worker.remote(rank, len(bundles), settings, architecture, seed, gpus=gpus, threads=of_torch)
            )
        self._meeting = ""
        try:
            self._meeting = ray.get(self._workers[0].meeting.remote())
            self._all("join", self._meeting)
            self._facts: dict[str, Any] = self._all("build")[0]
        except BaseException:
            self.close()
            raise

    @property
    def facts(self) -> Mapping[str, Any]:
        """`parameters`, `multiply_adds`, `in_channels`, `num_classes`, `epochs_done`, `lr`."""
        return self._facts

    @property
    def epochs_done(self) -> int:
        return int(self._facts["epochs_done"])

    @property
    def lr(self) -> float:
        return float(self._facts["lr"])

    def epoch(self) -> tuple[Metrics, Metrics, Metrics]:
        """Trains an epoch; its metrics on training, validation and test images."""
        outcome = self._all("epoch")[0]
        train, validation, test = (Metrics(*metrics) for metrics in outcome.pop("metrics"))
        self._facts |= outcome
        return train, validation, test

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self._all("state")[0]
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._facts |= self._all("load", ray.put(dict(state)))[0]

    def close(self) -> None:
        """Ends the workers. The memory and the cards are free when Ray has seen them go."""
        for worker in self._workers:
            ray.kill(worker)
        self._workers = []
        if self._meeting.startswith("file:"):  # on this machine: it is a Ray on loopback
            shutil.rmtree(Path(urlsplit(self._meeting).path).parent, ignore_errors=True)

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """What a method of all workers returns, by rank. Raises: what the first to fail raised."""
        calls = [getattr(worker, method).remote(*arguments) for worker in self._workers]
        waiting = list(calls)
        while waiting:  # one that failed is waited for by the others, in vain
            done, waiting = ray.wait(waiting)
            try:
                ray.get(done)
            except RayTaskError as error:
                raise error.cause from None
        results: list[Any] = ray.get(calls)
        return results


class ParallelTrainable(StandaloneTrainable):
    """As `StandaloneTrainable`, by a worker for each bundle that the trial has after its first, empty one.

    The trial itself only leads: workers are actors in its bundles, results and checkpoints are those of one worker,
    and are read and restored by any number of them. A worker that is lost fails the trial, which Tune tries again from
    its last checkpoint with workers of its own.
    """

    _group: WorkerGroup | None = None

    def _take(self, resources: Mapping[str, float] | None) -> None:
        self._device = torch.device("cpu")  # here is nothing but the state on its way to a checkpoint

    def _build(self) -> None:
        allotment = self.trial_resources
        if allotment is None or not allotment.head_bundle_is_empty:
            raise InvalidInput(
                "expected a trial whose first bundle is empty, with one for each worker after it: "
                "tune.PlacementGroupFactory([{}, {'CPU': 1}, {'CPU': 1}])"
            )
        self._group = WorkerGroup(
            allotment.bundles,
            self._settings.model_dump(mode="json"),
            self._architecture,
            seed=self._seed,
            threads=self._settings.training.threads,
        )
        self._parameters, self._multiply_adds = (self._group.facts[key] for key in ("parameters", "multiply_adds"))
        self._trainer = cast(Trainer, self._group)  # of which it has all that is asked for beside what is below

    def _epoch(self) -> dict[str, Any]:
        assert self._group is not None  # a step comes after `_build`
        return self._values(*self._group.epoch())

    def _state(self) -> dict[str, Any]:
        group = self._group
        return {
            "architecture": self._architecture,
            "in_channels": group.facts["in_channels"] if group else None,
            "num_classes": group.facts["num_classes"] if group else None,
            "trainer": group.state_dict() if group else None,
        }

    def _release(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None
        super()._release()
