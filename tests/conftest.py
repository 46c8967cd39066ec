"""Fixtures for all rooms: one local Ray for the session, and the benchmarks' published tables."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
REPOSITORY = TESTS.parent
WORKER_MODULES = TESTS / "worker_modules"
OBJECT_STORE_BYTES = 300 * 2**20  # Ray's default, 30 % of the memory, is more than these tests ever put there


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout that these tests lie in."""
    return REPOSITORY


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A local Ray with two CPUs for the whole session, on loopback and without a dashboard.

    Its workers can import what lies in `tests/worker_modules/`: a class defined in a test file cannot be found
    by a worker. A Ray that was running before is used and left running.
    """
    import ray  # not above: most tests need no Ray

    if ray.is_initialized():
        yield
        return
    ray.init(
        address="local",
        num_cpus=2,
        num_gpus=0,
        object_store_memory=OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"py_modules": [str(file) for file in sorted(WORKER_MODULES.glob("*.py"))]},
        _node_ip_address="127.0.0.1",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The folder with `nasbench201.csv.gz` and the other published tables, which the repository does not hold."""
    named = os.environ.get("ARCHRAY_BENCHMARK_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not (folder / "nasbench201.csv.gz").is_file():
        pytest.skip(f"{folder} has no nasbench201.csv.gz; name its folder in ARCHRAY_BENCHMARK_DATA")
    return folder
