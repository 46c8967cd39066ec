"""Fixtures for all tests: one local Ray for the session, and the published tables of benchmarks."""

from __future__ import annotations

import atexit
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hypothesis
import pytest

TESTS = Path(__file__).resolve().parent
REPOSITORY = TESTS.parent
WORKER_MODULES = TESTS / "worker_modules"
OBJECT_STORE_BYTES = 300 * 2**20  # Ray's default, 30 % of the memory, is more than these tests need

# `make test` runs one process per core, and arrays here are small: a BLAS with a thread per core mostly waits
# (searchers/test_hnas.py: 85 s of CPU, 23 with one thread). NumPy reads the variable when it loads, and Ray's workers
# inherit it. OMP_NUM_THREADS is not set here: Ray sets it for each worker unless it is set, and a test checks that.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# If the machine's memory is short, Ray kills its workers, even if other programs use the memory. Tests run next to
# other programs and need little memory.
os.environ.setdefault("RAY_memory_monitor_refresh_ms", "0")

# `make test-avx2` loads a malloc that checks the heap in the processes that run tests. Ray must not inherit it: this
# malloc does not support forks, and a process that a raylet forks while another thread allocates would wait forever.
if "PYTEST_XDIST_WORKER" in os.environ and "libc_malloc_debug" in os.environ.get("LD_PRELOAD", ""):
    del os.environ["LD_PRELOAD"]

# The key with which archray recognizes the runs of this user: those of this test process and its child processes.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="archray-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# The duration of a Hypothesis example depends on the machine; by default an example of over 200 ms fails. CI runs the
# same examples each time; elsewhere new examples may find new bugs.
hypothesis.settings.register_profile("untimed", deadline=None, max_examples=50, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    """Limits scikit-learn's loops to one thread, if a collected test has loaded them."""
    if "threadpoolctl" in sys.modules:
        sys.modules["threadpoolctl"].threadpool_limits(1)


WITH_RAY = re.compile(r"\b(ray_session|finished_run|undisturbed)\b")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Schedules by file, and runs all files that need Ray in one of two processes, so that only one starts a Ray.

    Slow tests mostly wait for processes, so each process runs a Ray.
    """
    from xdist.scheduler import LoadFileScheduling

    together = config.getoption("numprocesses") == 2 and config.getoption("markexpr").startswith("not slow")

    @cache
    def scope(file: str) -> str:
        return "Ray" if together and WITH_RAY.search((REPOSITORY / file).read_text()) else file

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope(super()._split_scope(nodeid))

    return ByFile(config, log)


# Packages of each optional dependency in pyproject.toml that a test may name in its marker `extra`.
EXTRAS = {
    "adversarial": ("art", "multiprocess"),
    "bohb": ("hpbandster", "ConfigSpace"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "guides": ("tensorboard", "mlflow", "wandb", "lightning", "timm"),
    "huggingface": ("datasets",),
    "nats-bench": ("nats_bench",),
    "timm": ("timm",),
    "tune-searchers": ("optuna", "hyperopt"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test whose extra is not installed, and seeds the global random generators.

    Without the seeds, a network that a test builds without a seed would differ in every run. torch uses one thread:
    small networks only wait for a second one, and a previous trial may have changed the number. Python's handler of
    SIGINT is restored: Tune leaves another handler, and children of a background job of a shell ignore the signal.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for extra in (name for marker in item.iter_markers("extra") for name in marker.args):
        if any(find_spec(package) is None for package in EXTRAS[extra]):
            pytest.skip(f"needs pip install '.[{extra}]'")
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout that contains these tests."""
    return REPOSITORY


@pytest.fixture(scope="session")
def checkout_copy(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository as a commit of all changes: without caches and files that git ignores."""
    if not (repository / ".git").exists():
        pytest.skip("not a git checkout: its files are unknown")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True).stdout
    folder = tmp_path_factory.mktemp("copy")
    for name in filter(None, listed.split("\0")):
        if (repository / name).is_file():  # a deleted file is listed until the deletion is committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(repository / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A local Ray with two CPUs for the whole session, on loopback and without a dashboard.

    Its workers can import the files in `tests/worker_modules/`; they cannot find a class that is defined in a test
    file. They are forked from a process that has imported torch and other packages (cluster/warm_workers.py). If a Ray
    is running already, the tests use it and leave it running.
    """
    import ray  # not at the top: most tests need no Ray

    from archray.cluster.loopback import loopback_only
    from archray.cluster.warm_workers import MODULES, warm_python

    if ray.is_initialized():
        yield
        return
    with warm_python([*MODULES, "sklearn.datasets", "sklearn.linear_model"]) as python:
        with loopback_only():
            ray.init(
                address="local",
                num_cpus=2,
                num_gpus=0,
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={
                    "py_modules": [str(file) for file in sorted(WORKER_MODULES.glob("*.py"))],
                    "py_executable": python,
                },
            )
        yield
        ray.shutdown()


@pytest.fixture(scope="session")
def benchmark_data() -> Path:
    """The folder with `nasbench201.csv.gz` and the other published tables, which are not in the repository."""
    named = os.environ.get("ARCHRAY_BENCHMARK_DATA")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not (folder / "nasbench201.csv.gz").is_file():
        pytest.skip(f"{folder} has no nasbench201.csv.gz. Name its folder in ARCHRAY_BENCHMARK_DATA")
    return folder
