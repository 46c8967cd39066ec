"""actor_map returns one outcome per item even if actors fail. Nothing here is mocked."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import archray_test_cluster as workers
import numpy as np
import pytest
import ray
from ray._private import state as ray_state  # noqa: TID251  # Ray's public list of actors needs its dashboard

from archray.cluster.actor_pool import Outcome, WorkerFailed, actor_map
from archray.errors import InvalidInput

pytestmark = pytest.mark.usefixtures("ray_session")


def run(items: list[Any], worker: Any = workers.Squarer, **options: Any) -> list[Outcome]:
    """Returns all outcomes in the order of the items, after a check that each item has exactly one."""
    settings = {"worker_kwargs": {}, "chunk_size": 3, "num_actors": 2, **options}
    outcomes = sorted((o for chunk in actor_map(worker, items, **settings) for o in chunk), key=lambda o: o.index)
    assert [outcome.index for outcome in outcomes] == list(range(len(items)))
    assert [outcome.item for outcome in outcomes] == items
    return outcomes


def values(outcomes: list[Outcome]) -> list[Any]:
    return [outcome.value for outcome in outcomes]


def left_out(outcomes: list[Outcome]) -> dict[int, str]:
    return {outcome.index: outcome.error.splitlines()[0] for outcome in outcomes if outcome.error is not None}


def calls(log: Path) -> list[tuple[str, str]]:
    """Returns (item, process) of every call, in order."""
    return [(item, pid) for item, pid in (line.split() for line in log.read_text().splitlines())]


@pytest.mark.parametrize(
    ("chunk_size", "num_actors"),
    [
        pytest.param(1, 1, marks=pytest.mark.slow),
        (3, 2),
        pytest.param(100, 2, marks=pytest.mark.slow),
        (None, 2),
    ],
    ids=["single", "chunks", "one-chunk", "measured"],
)
def test_results_do_not_depend_on_chunks_and_actors(chunk_size: int | None, num_actors: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    outcomes = run(list(range(11)), chunk_size=chunk_size, num_actors=num_actors, worker_kwargs={"log": str(log)})
    assert values(outcomes) == [n * n for n in range(11)]
    assert sorted(int(item) for item, _ in calls(log)) == list(range(11))  # each item once


def test_no_items_need_no_actor() -> None:
    assert run([]) == []


def test_an_item_that_raises_is_tried_on_two_actors_and_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    outcomes = run([1, "raise", 2, 3, 4], worker_kwargs={"log": str(log)})
    assert values(outcomes) == [1, None, 4, 9, 16]
    assert left_out(outcomes) == {1: "ValueError: requested an error"}
    assert "in __call__" in (outcomes[1].error or "")  # the traceback follows
    attempts = [pid for item, pid in calls(log) if item == "raise"]
    assert len(attempts) == len(set(attempts)) == 2
    for pid in attempts:  # an actor that failed is never used again
        assert [item for item, other in calls(log) if other == pid][-1] == "raise"
    # No item is processed twice
    assert sorted(item for item, _ in calls(log) if item != "raise") == ["1", "2", "3", "4"]


@pytest.mark.slow
def test_an_item_that_raises_once_succeeds_on_retry(tmp_path: Path) -> None:
    outcomes = run([1, "raise-once", 2], worker_kwargs={"mark": str(tmp_path)})
    assert values(outcomes) == [1, "raise-once", 4]
    assert left_out(outcomes) == {}


def test_the_chunk_of_a_dead_actor_is_repeated(tmp_path: Path) -> None:
    outcomes = run([1, 2, "exit-once", 3, 4, 5, 6], worker_kwargs={"mark": str(tmp_path)})
    assert values(outcomes) == [1, 4, "exit-once", 9, 16, 25, 36]
    assert left_out(outcomes) == {}


@pytest.mark.slow
def test_an_item_that_kills_its_actor_is_left_out_and_the_others_succeed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    outcomes = run([1, 2, "exit", 3, 4, 5, 6, 7], chunk_size=4, worker_kwargs={"log": str(log)})
    assert values(outcomes) == [1, 4, None, 9, 16, 25, 36, 49]
    assert set(left_out(outcomes)) == {2}
    assert "process was lost" in left_out(outcomes)[2]
    killed = [pid for item, pid in calls(log) if item == "exit"]
    assert len(killed) == len(set(killed)) == 4  # in its chunk twice, alone twice


@pytest.mark.slow
@pytest.mark.ci
def test_two_killers_among_single_items() -> None:
    outcomes = run([1, "exit", "exit", 2, 3], chunk_size=1)
    assert values(outcomes) == [1, None, None, 4, 9]
    assert set(left_out(outcomes)) == {1, 2}


def test_a_constructor_that_raises_stops_the_map_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(WorkerFailed, match=r"Unconstructible cannot be constructed.*RuntimeError: no such device"):
        run([1, 2, 3], workers.Unconstructible, worker_kwargs={"log": str(log)})
    assert len(log.read_text().splitlines()) <= 2  # one per actor, and no restart


@pytest.mark.slow
def test_a_constructor_that_kills_its_process_stops_the_map() -> None:
    class DiesAtBirth:
        def __init__(self) -> None:
            os._exit(1)

    with pytest.raises(WorkerFailed, match="DiesAtBirth cannot be constructed"):
        run([1, 2, 3], DiesAtBirth, num_actors=1)


def test_a_worker_that_workers_cannot_import_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_the_driver_has_this.py").write_text("class Worker:\n    def __call__(self, item): return item\n")
    monkeypatch.syspath_prepend(tmp_path)
    from only_the_driver_has_this import Worker

    with pytest.raises(WorkerFailed, match="No module named 'only_the_driver_has_this'"):
        run([1], Worker)


@pytest.mark.slow
def test_a_worker_that_always_fails_stops_the_map() -> None:
    with pytest.raises(WorkerFailed, match="failed on every item so far, last with: ValueError: requested an error"):
        run(["raise"] * 9, chunk_size=1)


def test_values_that_cannot_be_pickled_are_left_out() -> None:
    class Unpicklable:
        def __call__(self, item: int) -> Any:
            return (part for part in ()) if item % 2 else item

    outcomes = run([0, 1, 2], Unpicklable, chunk_size=1, num_actors=1)
    assert values(outcomes) == [0, None, 2]
    assert "generator" in (outcomes[1].error or "")


@pytest.mark.slow
def test_an_array_in_the_object_store_is_shared() -> None:
    class SharedArray:
        def __init__(self, array: ray.ObjectRef) -> None:
            self.array = ray.get(array)

        def __call__(self, item: int) -> int:
            return int(self.array.sum()) + item

    array = ray.put(np.ones(1_000_000))
    assert values(run([1, 2], SharedArray, worker_kwargs={"array": array})) == [1_000_001, 1_000_002]


def test_actors_stop_when_the_generator_is_closed_early(tmp_path: Path) -> None:
    log = tmp_path / "log"
    outcomes = actor_map(
        workers.Squarer,
        list(range(1000)),
        worker_kwargs={"log": str(log), "seconds": 0.02},
        chunk_size=1,
        num_actors=2,
    )
    next(outcomes)
    outcomes.close()
    for pid in {int(pid) for _, pid in calls(log)}:
        wait_for_end(pid)
    assert len(calls(log)) < 1000
    assert values(run([2], num_actors=2)) == [4]  # their CPUs are free again


@pytest.mark.parametrize("options", [{"chunk_size": 1, "num_actors": 2}, {"chunk_size": 2, "num_actors": 1}])
def test_a_stop_returns_the_results_in_flight(options: dict[str, int], tmp_path: Path) -> None:
    log = tmp_path / "log"
    came: list[Outcome] = []
    stop = {"stop": lambda: len(came) >= 3}
    for chunk in actor_map(workers.Squarer, list(range(40)), worker_kwargs={"log": str(log)}, **stop, **options):
        came += chunk
    assert 3 <= len(came) < 40
    assert sorted(outcome.index for outcome in came) == list(range(len(came))), "no later item was started"
    assert sorted(str(outcome.item) for outcome in came) == sorted(item for item, _ in calls(log)), "nothing is lost"


def test_a_stop_does_not_wait_for_actors_that_cannot_start() -> None:
    calls_of_stop: list[None] = []

    def stop() -> bool:
        calls_of_stop.append(None)
        return len(calls_of_stop) > 2

    options: dict[str, Any] = {"worker_kwargs": {}, "chunk_size": 1, "num_actors": 1, "num_cpus": 64}
    assert list(actor_map(workers.Squarer, [1, 2], stop=stop, **options)) == []


def test_results_are_returned_as_they_finish(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options: dict[str, Any] = {"chunk_size": 1, "num_actors": 1, "worker_kwargs": {"log": str(log), "seconds": 0.05}}
    outcomes = actor_map(workers.Squarer, list(range(50)), **options)
    assert [outcome.value for outcome in next(outcomes)] == [0]
    assert len(calls(log)) < 50
    outcomes.close()


@pytest.mark.slow
def test_more_actors_than_the_cluster_can_run_block_nothing() -> None:
    assert values(run(list(range(8)), num_actors=8, chunk_size=1)) == [n * n for n in range(8)]


@pytest.mark.slow
def test_an_actor_is_killed_only_after_its_start() -> None:
    """If an actor is killed during its creation, its worker may keep its CPU as long as the driver lives (Ray 2.60)."""
    before = set(ray_state.actors())
    assert values(run([1, 2, 3], num_actors=3, chunk_size=1)) == [1, 4, 9]  # one waits for a CPU
    assert values(run([2], num_actors=1, num_cpus=2)) == [4]  # after it: all CPUs are free
    ended = [actor for name, actor in ray_state.actors().items() if name not in before]
    assert len(ended) == 4 and all(actor["StartTime"] > 0 for actor in ended)


@pytest.mark.slow
@pytest.mark.parametrize(("num_cpus", "threads"), [pytest.param(0.5, 1, marks=pytest.mark.slow), (2, 2)])
def test_an_actor_has_as_many_threads_as_cpus(num_cpus: float, threads: int) -> None:
    if "OMP_NUM_THREADS" in os.environ:
        pytest.skip("OMP_NUM_THREADS is set, and Ray does not change it")

    class Threads:
        def __call__(self, item: int) -> tuple[str | None, int]:
            import torch

            return os.environ.get("OMP_NUM_THREADS"), torch.get_num_threads()

    environment = {"py_executable": sys.executable}  # a worker that has not imported torch before
    [outcome] = run([0], Threads, num_cpus=num_cpus, num_actors=1, runtime_env=environment)
    assert outcome.value == (str(threads), threads)


SHUTDOWN = """
import threading, time
import ray
from archray.cluster.actor_pool import _kill_once_started

class Actor:
    def setup(self):
        pass

ray.init(address="local", num_cpus=1, num_gpus=0, include_dashboard=False, _node_ip_address="127.0.0.1")
running, waiting = (ray.remote(num_cpus=1)(Actor).remote() for _ in range(2))
ray.get(running.setup.remote())
thread = threading.Thread(target=_kill_once_started, args=({waiting.setup.remote(): waiting},))
thread.start()
time.sleep(1)
ray.shutdown()
thread.join()
assert not ray.is_initialized(), "the thread started another Ray"
"""


@pytest.mark.slow
@pytest.mark.ci
def test_no_ray_starts_after_a_shutdown() -> None:
    """A call of Ray's API after `ray.shutdown()` would start Ray automatically."""
    subprocess.run([sys.executable, "-c", SHUTDOWN], check=True)


@pytest.mark.parametrize("wrong", [{"chunk_size": 0}, {"num_actors": 0}])
def test_sizes_below_one_raise_before_anything_runs(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="1 or more"):
        actor_map(workers.Squarer, [1], **{"worker_kwargs": {}, "chunk_size": 1, "num_actors": 1, **wrong})


def wait_for_end(pid: int) -> None:
    """Returns once the process has ended. pytest's time limit stops an endless wait."""
    status = Path(f"/proc/{pid}/status")
    with suppress(FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        while "zombie" not in status.read_text():
            os.sched_yield()
