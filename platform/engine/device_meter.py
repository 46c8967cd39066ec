"""Networks timed on a device of the cluster: an actor on a node that the user names by Ray's resources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from archray.errors import ArchrayError, InvalidInput
from archray.trainables.costs.meter import LatencyMeter, Pair


class DeviceMeter:
    """A `LatencyMeter` in an actor that holds all that its node has of the resources that name it.

    So no other actor of that name runs on it: networks are timed one at a time, of this run and of others. It takes no
    CPU of Ray's, since a device may have declared none; trials keep away from a node that has declared none.

    Args:
        resources: `{"raspberry": 1}`; the least that the node must have. arguments: of the `LatencyMeter`.

    Raises: InvalidInput without Ray, or if no node has them.
    """

    def __init__(self, resources: Mapping[str, float], arguments: Sequence[Any]) -> None:
        held = whole_resources(resources)
        meter = ray.remote(LatencyMeter).options(num_cpus=0, resources=held, max_restarts=2, max_task_retries=2)
        self._actor: Any = meter.remote(*arguments)

    def whole(self, architecture: str) -> Pair:
        median, iqr = self._asked(self._actor.whole.remote(architecture))
        return float(median), float(iqr)

    def operations(self, architecture: str, known: list[str]) -> tuple[list[str], dict[str, Pair]]:
        keys, new = self._asked(self._actor.operations.remote(architecture, known))
        return keys, new

    def _asked(self, answer: Any) -> Any:
        try:
            return ray.get(answer)
        except RayError as error:
            raise ArchrayError(f"the device timed nothing: {error}") from error


def whole_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """All that one node has of the resources that are named: the first by its id, of those that have enough.

    Raises: InvalidInput without Ray, for a resource of Ray's own, or if no node has them.
    """
    if not resources or any(name in ("CPU", "GPU", "memory") or amount <= 0 for name, amount in resources.items()):
        raise InvalidInput(
            f'expected resources that name a device, {{"raspberry": 1}}, got {json.dumps(dict(resources))}; start its '
            "Ray with --resources"
        )
    if not ray.is_initialized():
        raise InvalidInput("a latency on a device needs Ray, and a search on a table runs without; leave --cost-on out")
    nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeID"])
    for node in nodes:
        has = node["Resources"]
        if all(has.get(name, 0.0) >= amount for name, amount in resources.items()):
            return {name: float(has[name]) for name in resources}
    known = sorted({name for node in nodes for name in node["Resources"] if ":" not in name})
    raise InvalidInput(
        f"no node has the resources {json.dumps(dict(resources))}; the cluster has {', '.join(known)}: start Ray on "
        f"the device with --resources '{json.dumps(dict(resources))}'"
    )
