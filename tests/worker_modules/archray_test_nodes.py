"""A search on several raylets on this machine, one of which leaves or joins during the search.

    python archray_test_nodes.py METHOD OUT leaves|joins

Writes OUT.json: the places of each trial (nodes, GPUs), and the nodes that left and joined.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from archray_test_faults import SIDE_BY_SIDE, STAGE, options_of
from ray import tune
from ray.cluster_utils import Cluster
from ray.exceptions import RayError

import archray
from archray.cluster.warm_workers import warm_python
from archray.platform.durable.session import log_id

NODE = {"num_cpus": SIDE_BY_SIDE / 2, "num_gpus": 2}  # of each GPU, half for a trial


class Watch(tune.Callback):
    """Records where the trials of a stage run, and runs `event` during them.

    The event runs once, as soon as the maximum number of trials has started and one runs at `node`. If `saves`, this
    trial also has a checkpoint. Otherwise a trial is one step, which could end before, so the first trial there is
    paused.
    """

    def __init__(self, stage: str, node: str, event: Callable[[], None], *, side_by_side: int, saves: bool) -> None:
        self.stage, self.node, self.event = stage, node, event
        self.side_by_side, self.saves = side_by_side, saves
        self.places: dict[str, list[Any]] = {}
        self.saved: set[str] = set()
        self.stopped: int | None = None  # a process
        self.happened = False

    def __getstate__(self) -> dict[str, Any]:  # Tune pickles callbacks, and a cluster cannot be pickled
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if Path(trial.remote_experiment_path).parents[1].name == self.stage:
            place, process = _place(trial)
            self.places.setdefault(log_id(trial), []).append(place)
            if not self.saves and self.stopped is None and self._is_there(trial):
                os.kill(process, signal.SIGSTOP)
                self.stopped = process

    def on_trial_save(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.saved.add(log_id(trial))

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        if self.happened or len(self.places) < self.side_by_side:
            return
        there = {log_id(trial) for trial in trials if trial.status == "RUNNING" and self._is_there(trial)}
        if there & self.saved if self.saves else self.stopped is not None:
            self.happened = True
            self.event()
        if self.happened and self.stopped is not None:
            with suppress(ProcessLookupError):  # it outlives its raylet by a second, in which it could end its step
                os.kill(self.stopped, signal.SIGKILL)

    def _is_there(self, trial: Any) -> bool:
        place = self.places.get(log_id(trial), [None])[-1]
        return place is not None and place[0] == self.node


def _place(trial: Any) -> tuple[list[Any] | None, int]:
    """Returns the node and the GPU of a trial's process, and its id; None and 0 if they no longer exist."""

    def place(_: Any) -> tuple[list[Any], int]:
        return [ray.get_runtime_context().get_node_id(), *ray.get_gpu_ids()], os.getpid()

    try:
        return ray.get(trial.temporary_state.ray_actor.__ray_call__.remote(place))
    except (AttributeError, RayError):
        return None, 0


def main(method: str, out: str, event: str) -> None:
    head = {"num_cpus": 0, "num_gpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(**NODE) for _ in range(2 if event == "leaves" else 1)]
    cluster.wait_for_nodes()
    changed: list[str] = []

    def leaves() -> None:
        changed.append(nodes[1].node_id)
        cluster.remove_node(nodes[1], allow_graceful=False)

    def joins() -> None:
        changed.append(cluster.add_node(**NODE).node_id)

    watch = Watch(
        STAGE[method],
        nodes[-1].node_id,
        {"leaves": leaves, "joins": joins}[event],
        side_by_side=int(NODE["num_cpus"]) * len(nodes),
        saves=method != "halving",  # a trial of this method is one step
    )
    with warm_python() as python:
        environment = {"py_executable": python, "env_vars": {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}}
        ray.init(address=cluster.address, log_to_driver=False, runtime_env=environment)
        archray.search(method, **options_of(method), resources__gpus_per_trial=0.5, out=out, callbacks=[watch])
        ray.shutdown()
    cluster.shutdown()
    Path(f"{out}.json").write_text(json.dumps({"places": watch.places, "changed": changed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
