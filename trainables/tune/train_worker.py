"""One worker of a training that several do together: its process group, and the trainer inside an actor."""

from __future__ import annotations

import os
import socket
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import ray
import torch
from torch import distributed as dist

from archray.trainables.data_parallel import Team
from archray.trainables.devices import choose_device, limit_memory
from archray.trainables.training import Trainer
from archray.trainables.tune.standalone_trainable import StandaloneSettings, build_trainer, train_epoch
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
        return {"epochs_done": trainer.epochs_done, "lr": trainer.lr, "finished": trainer.finished}


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(each) for key, each in value.items()}
    return [_on_cpu(each) for each in value] if isinstance(value, list) else value
