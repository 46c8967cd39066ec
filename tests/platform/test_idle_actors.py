"""The idle actors that a Tune run keeps. An actor whose process has died is never reused."""

from __future__ import annotations

import os
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError

from archray.cluster.ray_compat import ACTOR_CACHE, REUSED_ACTOR
from archray.platform.engine.tune_memory import IdleActors, idle_actors


def test_as_many_idle_actors_are_kept_as_run_in_parallel() -> None:
    cache = IdleActors(ACTOR_CACHE.find()(), 2)
    assert [cache.cache_object("cpu", number) for number in range(3)] == [True, True, False]
    assert list(cache.flush_cached_objects()) == []
    assert [cache.pop_cached_object("cpu"), cache.pop_cached_object("cpu")] == [0, 1]
    assert not cache.has_cached_object("cpu")
    assert cache.cache_object("cpu", 4) and list(cache.flush_cached_objects(force_all=True)) == [4]


@ray.remote(num_cpus=0)
class Process:
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

    def _remove_actor(self, tracked_actor: int) -> None:
        self.removed.append(tracked_actor)


class Trial:
    placement_group_factory = "cpu"


@pytest.mark.slow
def test_a_dead_actor_gets_no_trial(ray_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two of three real actors are killed. Tune's choice takes the first one that is left."""
    actors = [Process.remote() for _ in range(3)]
    ray.get([actor.number.remote() for actor in actors])
    for actor in actors[:2]:
        end(actor)
    cache = IdleActors(ACTOR_CACHE.find()(), 3)
    for number in range(3):
        cache.cache_object("cpu", Tracked(number))
    controller = Controller(actors, cache)
    taken: list[int] = []

    def take(controller: Controller, trial: Trial) -> bool:
        taken.append(controller._actor_cache.pop_cached_object("cpu"))
        return True

    monkeypatch.setattr(REUSED_ACTOR.owner(), REUSED_ACTOR.attribute, take)
    plain = ACTOR_CACHE.find()
    with idle_actors(3):
        assert isinstance(ACTOR_CACHE.find()(may_keep_one=True), IdleActors)
        assert REUSED_ACTOR.find()(controller, Trial())
    assert (controller.removed, taken) == ([0, 1], [2])
    assert ACTOR_CACHE.find() is plain and REUSED_ACTOR.find() is take
    ray.kill(actors[2])
