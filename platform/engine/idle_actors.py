"""Actors that have no trial at the moment: as many as run side by side are kept, and none whose process is gone.

Tune (2.60) keeps one and ends the others. A searcher that waits for results before it suggests leaves actors without a
trial again and again; the next trial then waits for a process, its imports and its data. If trials take less than that,
the one actor that was kept is free again before the new one has started, takes the trial, and trials run one by one.

And it gives a trial to an actor whose node has left meanwhile. Such a trial fails twice at once: with a failure before,
that is once too often.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError
from ray.tune.execution import tune_controller
from ray.tune.execution.tune_controller import TuneController
from ray.tune.utils.object_cache import _ObjectCache

from archray.cluster.ray_compat import replaced

PATIENCE = 10.0  # seconds for an actor that has nothing to do to say that it is there


class IdleActors(_ObjectCache):
    """Tune's cache of actors without a trial, which keeps up to `most` while trials may come."""

    def __init__(self, most: int) -> None:
        super().__init__(may_keep_one=True)
        self._most = most

    def cache_object(self, key: Any, obj: Any) -> bool:
        if self._num_cached_objects >= self._most:
            return super().cache_object(key, obj)
        self._cached_objects[key].append(obj)
        self._num_cached_objects += 1
        return True

    def flush_cached_objects(self, force_all: bool = False) -> Generator[Any, None, None]:
        if force_all or self._num_cached_objects > self._most:
            yield from super().flush_cached_objects(force_all)


@contextmanager
def idle_actors(most: int | None) -> Iterator[None]:
    """Has the Tune runs inside the block keep so many, None: as Tune does; and reuse no actor that is gone."""

    def of_the_living(plain: Callable[..., Any]) -> Callable[..., Any]:
        def reuse(controller: Any, trial: Any) -> bool:
            _let_go_of_the_dead(controller, trial.placement_group_factory)
            return bool(plain(controller, trial))

        return reuse

    def cache(plain: Callable[..., Any]) -> Callable[..., Any]:
        return plain if most is None else lambda may_keep_one=True: IdleActors(most)

    with (
        replaced(TuneController, "_maybe_reuse_cached_actor", of_the_living),
        replaced(tune_controller, "_ObjectCache", cache),
    ):
        yield


def _let_go_of_the_dead(controller: Any, key: Any) -> None:
    """Ends the idle actors of a kind that do not answer, until the next one does."""
    cache, started = controller._actor_cache, controller._actor_manager._live_actors_to_ray_actors_resources
    while cache.has_cached_object(key):
        tracked = cache._cached_objects[key][0]
        if tracked in started and _answers(started[tracked][0]):
            return
        cache.pop_cached_object(key)
        tracked.set_on_stop(None)
        tracked.set_on_error(None)
        controller._remove_actor(tracked_actor=tracked)


def _answers(actor: Any) -> bool:
    try:
        ray.get(actor.__ray_ready__.remote(), timeout=PATIENCE)
    except (RayError, TimeoutError):
        return False
    return True
