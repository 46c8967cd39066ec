"""The workers of one training: actors in the bundles of their trial's placement group, together used as a trainer.

Not Ray Train's `TorchTrainer`, which makes a placement group of its own: Tune does not count what it takes among the
resources of the trial, and the group outlives a trial that is stopped (Ray's issue 54305; seen in 2.60, a minute after
the Tuner had ended). These bundles are the trial's, and Tune removes them with it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ray
from ray.exceptions import RayTaskError
from ray.util.placement_group import get_current_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from archray.errors import InvalidInput
from archray.trainables.epoch_trainer import Metrics
from archray.trainables.tune.train_worker import TrainWorker


class WorkerGroup:
    """Workers that have joined and built their trainers; of `Trainer` what a trial asks of it.

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
        """`parameters`, `multiply_adds`, `in_channels`, `num_classes`, `epochs_done`, `lr`, `finished`."""
        return self._facts

    @property
    def epochs_done(self) -> int:
        return int(self._facts["epochs_done"])

    @property
    def lr(self) -> float:
        return float(self._facts["lr"])

    @property
    def finished(self) -> bool:
        return bool(self._facts["finished"])

    def epoch(self) -> tuple[Metrics, Metrics, Metrics]:
        """Trains an epoch; its metrics on training, validation and test images."""
        told = self._all("epoch")[0]
        train, validation, test = (Metrics(*metrics) for metrics in told["metrics"])
        self._facts |= {key: told[key] for key in ("epochs_done", "lr", "finished")}
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
