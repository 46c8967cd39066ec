"""A Ray that listens on 127.0.0.1 alone: its servers, workers, agents and metrics, not only its dashboard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ray._private import ray_constants

LOOPBACK = "127.0.0.1"


@contextmanager
def loopback_only() -> Iterator[None]:
    """What `ray.init` starts or joins inside the block has the address 127.0.0.1, and listens nowhere else.

    `ray.init(_node_ip_address="127.0.0.1")` says the same, but Ray puts the address of the machine in its place and
    then listens on all interfaces (2.55 to 2.60); what keeps it from that is the switch that it has for macOS and
    Windows, where it takes loopback for the machine's address. The processes that Ray starts inherit it: a job that is
    submitted to such a Ray finds it.
    """
    variable = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    switch, inherited = ray_constants.ENABLE_RAY_CLUSTER, os.environ.get(variable)
    ray_constants.ENABLE_RAY_CLUSTER, os.environ[variable] = False, "0"
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = switch
        if inherited is None:
            del os.environ[variable]
        else:
            os.environ[variable] = inherited
