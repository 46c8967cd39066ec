"""Which Ray runs trials; importable without Ray."""

from __future__ import annotations

import os

from pydantic import Field

from archray.errors import InvalidInput
from archray.settings import Settings

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
