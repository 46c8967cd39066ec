"""The idle actors that a Tune run keeps, reuses and releases."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune
from ray.exceptions import RayActorError

from archray.cluster.ray_compat import ACTOR_CACHE, REUSED_ACTOR
from archray.platform.durable import idle_actors as module
from archray.platform.durable.idle_actors import IdleActors, idle_actors


def test_as_many_idle_actors_are_kept_as_run_in_parallel() -> None:
    cache = IdleActors(ACTOR_CACHE.find()(), 2)
    assert [cache.cache_object(CPU, number) for number in range(3)] == [True, True, False]
    assert list(cache.flush_cached_objects()) == []
    assert [cache.pop_cached_object(CPU), cache.pop_cached_object(CPU)] == [0, 1]
    assert not cache.has_cached_object(CPU)
    assert cache.cache_object(CPU, 4) and list(cache.flush_cached_objects(force_all=True)) == [4]


@pytest.mark.parametrize("most", [0, 2], ids=["Tune's number", "two"])
def test_idle_actors_return_their_gpus_after_a_time(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = IdleActors(ACTOR_CACHE.find()(may_keep_one=True), most)
    assert cache.cache_object(GPU, 1)
    assert list(cache.flush_cached_objects()) == []
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)
    assert list(cache.flush_cached_objects()) == [1]
    assert cache.num_cached_objects == 0 and not cache.has_cached_object(GPU)
    assert cache.cache_object(CPU, 2)
    assert list(cache.flush_cached_objects()) == []


CPU, GPU = tune.PlacementGroupFactory([{"CPU": 1}]), tune.PlacementGroupFactory([{"CPU": 1, "GPU": 0.25}])


@ray.remote(num_cpus=0)
class Process:
    def wait(self, file: str) -> None:
        while not os.path.exists(file):
            time.sleep(0.05)

    def number(self) -> int:
        return os.getpid()


def end(actor: Any) -> None:
    """`ray.kill` only requests the end: a call may still be answered after it, but not after this method."""
    ray.kill(actor)
    while True:
        try:
            ray.get(actor.number.remote(), timeout=60)
        except RayActorError:
            return


class Manager:
    """A stand-in for a controller's records of its actors. Each entry of `tracked` accepts a stop callback."""

    def __init__(self, actors: list[Any]) -> None:
        self._live_actors_to_ray_actors_resources = {tracked: (actor, None) for tracked, actor in enumerate(actors)}


class Tracked(int):
    def set_on_stop(self, then: Any) -> None:
        assert then is None

    set_on_error = set_on_stop


class Controller:
    def __init__(self, actors: list[Any], cache: IdleActors) -> None:
        self._actor_manager, self._actor_cache, self.removed = Manager(actors), cache, list[int]()
        self._resetting_trials: set[Any] = set()

    def _remove_actor(self, tracked_actor: int) -> None:
        self.removed.append(tracked_actor)


class Trial:
    placement_group_factory = CPU


@pytest.mark.slow
def test_a_dead_actor_gets_no_trial(ray_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two of three real actors are killed. Tune's choice takes the first one that is left."""
    actors = [Process.remote() for _ in range(3)]
    ray.get([actor.number.remote() for actor in actors])
    for actor in actors[:2]:
        end(actor)
    cache = IdleActors(ACTOR_CACHE.find()(), 3)
    for number in range(3):
        cache.cache_object(CPU, Tracked(number))
    controller = Controller(actors, cache)
    taken: list[int] = []

    def take(controller: Controller, trial: Trial) -> bool:
        taken.append(controller._actor_cache.pop_cached_object(CPU))
        return True

    monkeypatch.setattr(REUSED_ACTOR.owner(), REUSED_ACTOR.attribute, take)
    plain = ACTOR_CACHE.find()
    with idle_actors(3):
        assert isinstance(ACTOR_CACHE.find()(may_keep_one=True), IdleActors)
        assert REUSED_ACTOR.find()(controller, Trial())
    assert (controller.removed, taken) == ([0, 1], [2])
    assert ACTOR_CACHE.find() is plain and REUSED_ACTOR.find() is take
    ray.kill(actors[2])


def test_an_actor_that_does_not_answer_delays_no_trial(
    ray_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two actors is busy, so that it answers as late as an actor on an unreachable node."""
    actors = [Process.remote() for _ in range(2)]
    ray.get([actor.number.remote() for actor in actors])
    busy = actors[0].wait.remote(str(tmp_path / "end"))
    cache = IdleActors(ACTOR_CACHE.find()(), 2)
    for number in range(2):
        cache.cache_object(CPU, Tracked(number))
    controller: Any = Controller(actors, cache)
    trial: Any = Trial()
    monkeypatch.setattr(module, "PATIENCE", 1e6)
    monkeypatch.setattr(REUSED_ACTOR.owner(), REUSED_ACTOR.attribute, lambda controller, trial: True)
    with idle_actors(2):
        while not REUSED_ACTOR.find()(controller, trial):  # Tune asks again in every step
            pass
        assert cache.pop_cached_object(CPU) == 1
        assert not REUSED_ACTOR.find()(controller, trial)
        assert controller.removed == []

        (tmp_path / "end").touch()
        ray.get(busy)
        while not REUSED_ACTOR.find()(controller, trial):
            pass
        assert cache.pop_cached_object(CPU) == 0

        cache.cache_object(CPU, Tracked(0))
        busy = actors[0].wait.remote(str(tmp_path / "never"))
        assert not REUSED_ACTOR.find()(controller, trial)
        controller._resetting_trials.add(trial)
        assert REUSED_ACTOR.find()(controller, trial), "it has an actor"
        controller._resetting_trials.clear()
        monkeypatch.setattr(module, "PATIENCE", 0.0)
        assert not REUSED_ACTOR.find()(controller, trial)
    assert controller.removed == [0] and not cache.has_cached_object(CPU)
    for actor in actors:
        ray.kill(actor)


WAITING = """
import time

import ray
from ray import tune
from ray.tune.search import Searcher

from archray.platform.durable import idle_actors


class Waiting(Searcher):
    trials = 0

    def suggest(self, trial_id):
        if self.trials == 0:
            self.trials, self.deadline = 1, time.monotonic() + 300
            return {"value": 1}
        free = ray.available_resources().get("GPU", 0)
        if free < 1 and time.monotonic() < self.deadline:
            return None
        self.trials += 1
        print("free:", free)
        return {"value": 2} if self.trials == 2 else Searcher.FINISHED

    def on_trial_complete(self, *arguments, **options): ...

    def save(self, path): ...

    def restore(self, path): ...


class Report(tune.Trainable):
    def step(self):
        return {"value": self.config["value"], "done": True}

    def reset_config(self, config):
        return True

    def save_checkpoint(self, folder): ...


ray.init(address="local", num_cpus=2, num_gpus=1, include_dashboard=False, log_to_driver=False,
         _node_ip_address="127.0.0.1")
idle_actors.IDLE_SECONDS = 2.0
trainable = tune.with_resources(Report, {"cpu": 1, "gpu": 0.25})
config = tune.TuneConfig(metric="value", mode="max", search_alg=Waiting(), num_samples=-1, reuse_actors=True)
with idle_actors.idle_actors(2):
    tuner = tune.Tuner(trainable, tune_config=config, run_config=tune.RunConfig(storage_path=FOLDER, verbose=0))
    results = tuner.fit()
print("values:", sorted(result.metrics["value"] for result in results))
"""


@pytest.mark.slow
def test_gpus_are_free_while_the_searcher_waits(tmp_path: Path) -> None:
    """The searcher suggests the second trial once the actor of the first has returned its simulated GPU."""
    script = WAITING.replace("FOLDER", repr(str(tmp_path)))
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert "free: 1.0\n" in run.stdout and "values: [1, 2]" in run.stdout
    assert "cluster not having enough resources" not in run.stdout + run.stderr
