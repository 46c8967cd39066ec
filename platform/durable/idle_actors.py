"""Idle actors of a Tune run: as many as trials run at a time, and only live ones receive a trial."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray

from archray.cluster.ray_compat import (
    ACTOR_CACHE,
    QUEUE_UPDATE,
    REUSED_ACTOR,
    actor_cache,
    cached_actors,
    has_actor,
    has_actors,
    idle_actors_of,
    remove_actor,
    replaced,
)

PATIENCE = 10.0  # seconds without an answer until an idle actor is removed
ANSWER_SECONDS = 0.5  # wait for an idle actor, once each; a busy machine answers late, and a new actor takes seconds
IDLE_SECONDS = 30.0  # time until an idle actor returns its GPUs; a new actor takes about five seconds to start


Probes = dict[Any, tuple[ray.ObjectRef, float]]  # calls that idle actors have not answered yet, and their times


class IdleActors:
    """Tune's cache of idle actors, which keeps up to `most` of them, and actors with GPUs for `IDLE_SECONDS`."""

    def __init__(self, cache: Any, most: int) -> None:
        self._cache, self._most = cache, most
        self._idle_since: dict[Any, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def cache_object(self, key: Any, obj: Any) -> bool:
        more = self._most if self._cache.num_cached_objects < self._most else 0
        self._cache.increase_max(key, more)  # Tune's cache expects so many more trials
        try:
            kept = bool(self._cache.cache_object(key, obj))
        finally:
            self._cache.decrease_max(key, more)
        if kept:
            self._idle_since[obj] = time.monotonic()
        return kept

    def pop_cached_object(self, key: Any) -> Any:
        return self._forget(self._cache.pop_cached_object(key))

    def flush_cached_objects(self, force_all: bool = False) -> Iterator[Any]:
        if force_all or self._cache.num_cached_objects > self._most:
            yield from map(self._forget, self._cache.flush_cached_objects(force_all))
        for key, actors in cached_actors(self._cache).items():
            if key.required_resources.get("GPU", 0):
                while actors and time.monotonic() - self._idle_since[actors[0]] >= IDLE_SECONDS:
                    yield self.pop_cached_object(key)

    def _forget(self, actor: Any) -> Any:
        self._idle_since.pop(actor, None)
        return actor


@contextmanager
def idle_actors(most: int | None) -> Iterator[None]:
    """Makes Tune runs in the block keep up to `most` idle actors (None: Tune's number) and reuse only live actors.

    Actors with GPUs are released if no trial needs them for `IDLE_SECONDS`, so that other programs can use the GPUs
    while the searcher waits.
    """

    probes: Probes = {}

    def live_only(plain: Callable[..., Any]) -> Callable[..., Any]:
        def reuse(controller: Any, trial: Any) -> bool:
            if has_actor(controller, trial):
                return True
            return _has_live(controller, trial.placement_group_factory, probes) and bool(plain(controller, trial))

        return reuse

    def stepping(plain: Callable[..., Any]) -> Callable[..., Any]:
        # Without a running trial, Tune waits for the searcher and handles no events, such as the end of idle actors.
        def update(controller: Any, blocking: bool = False, **options: Any) -> bool:
            return bool(plain(controller, blocking=blocking and not has_actors(controller), **options))

        return update

    def larger(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments, **options: IdleActors(plain(*arguments, **options), most or 0)

    with replaced(REUSED_ACTOR, live_only), replaced(QUEUE_UPDATE, stepping), replaced(ACTOR_CACHE, larger):
        yield


def _has_live(controller: Any, kind: Any, probes: Probes) -> bool:
    """Moves the first idle actor that answers to the front of its kind. Removes actors that are dead or too late.

    Tune asks again in its next steps. Until then it starts another actor for the trial, and drops it if it can reuse
    an actor first.

    Returns: whether an actor answered.
    """
    actors = idle_actors_of(controller, kind)
    if actors is None:
        return True
    deadline, idle = time.monotonic() + ANSWER_SECONDS, actor_cache(controller)
    for tracked, actor in actors:
        live = False if actor is None else _is_live(probes, tracked, actor, deadline)
        if live is None:
            continue
        same_kind = cached_actors(idle)[kind]
        same_kind.insert(0, same_kind.pop(same_kind.index(tracked)))
        if live:
            return True
        idle.pop_cached_object(kind)
        remove_actor(controller, tracked)
    return False


def _is_live(probes: Probes, tracked: Any, actor: Any, deadline: float) -> bool | None:
    """Returns whether an actor answers by the deadline; None if it may still answer within `PATIENCE`."""
    probe, sent = probes.pop(tracked, (None, 0.0))
    if probe is None or ray.wait([probe], timeout=0)[0]:  # a late answer is old, and the actor may be dead by now
        probe, sent = actor.__ray_ready__.remote(), time.monotonic()
        if ray.wait([probe], timeout=max(0.0, deadline - sent))[0]:
            try:
                ray.get(probe)
            except ray.exceptions.RayError:
                return False
            return True
    probes[tracked] = probe, sent
    return None if time.monotonic() - sent < PATIENCE else False


def return_memory() -> None:
    """Returns free memory of the C library to the system, after reading and writing states."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)
