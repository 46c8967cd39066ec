"""Reduced memory of finished trials and idle actors.

Tune keeps every trial in memory until the driver ends. With this module, a finished trial keeps only its results and
the state for a resume. The values of a `ResultGrid` do not change.
"""

import ctypes
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import ray
from ray.tune.experiment import Trial

from archray.cluster.ray_compat import (
    ACTOR_CACHE,
    QUEUE_UPDATE,
    REUSED_ACTOR,
    TRIAL_STATES,
    actor_cache,
    cached_actors,
    forget_log_lines,
    has_actor,
    has_actors,
    idle_actors_of,
    release_default_result,
    remove_actor,
    replaced,
    share_checkpoint_config,
)

TUNES_NUMBERS = {"done", "iterations_since_restore", "pid", "time_since_restore", "time_this_iter_s", "timestamp"}
RESOURCES: dict[Any, Any] = {}  # resources of ended trials, one object for all equal ones
BETWEEN = "\0"  # separator between the two parts of a state; JSON does not contain it


def release(trial: Any, first: Any) -> None:
    """Releases memory that Tune would keep for an ended trial.

    The function releases the last ten values of every reported number, unless the trial failed; statistics of Tune's
    own numbers and of the configuration (`ResultGrid.get_best_result` uses the others); data about the actor from
    before the first result; and copies of equal values in all trials, in the last result and in checkpoint results.

    Args:
        first: a trial of the same Tune run.
    """
    progress = trial.run_metadata
    if trial.status != Trial.ERROR:  # a failed trial may be retrained, and Tune then appends to these values
        progress.metric_n_steps = {}
    progress.metric_analysis = {
        sys.intern(name): _interned(statistics)
        for name, statistics in progress.metric_analysis.items()
        if name not in TUNES_NUMBERS and not name.startswith("config/")
    }
    if trial.config.get("settings") is not None and _are_equal(trial.config["settings"], first.config.get("settings")):
        trial.config["settings"] = first.config["settings"]
    if progress.last_result.keys() - {"trial_id"}:
        release_default_result(trial)
        progress.last_result = _interned(progress.last_result, {"config": trial.config})
    checkpoints = progress.checkpoint_manager
    for result in {*checkpoints.best_checkpoint_results, checkpoints.latest_checkpoint_result} - {None}:
        result.metrics = _interned(result.metrics, progress.last_result)
    share_checkpoint_config(checkpoints, first.run_metadata.checkpoint_manager.checkpoint_config)
    _share(trial, first, "trial_name_creator", "trial_dirname_creator", "stopping_criterion")
    _share(trial.storage, first.storage, "storage_filesystem", "sync_config")
    trial.storage.syncer = first.storage.syncer
    resources = trial.placement_group_factory
    trial.placement_group_factory = RESOURCES.setdefault(resources, resources)


def keep_checkpoints(trial: Any, results: Sequence[Any]) -> None:
    """Makes these checkpoint results the only ones of a trial. The last one becomes the latest."""
    before = trial.run_metadata.checkpoint_manager
    trial.run_metadata.checkpoint_manager = manager = type(before)(before.checkpoint_config)
    for result in results:
        manager.register_checkpoint(result)
    trial.run_metadata.invalidate_cache()


def _interned(entries: Mapping[str, Any], like: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Returns an equal dict with interned strings that shares equal values with `like`."""
    interned = {}
    for name, value in entries.items():
        if name in like and _are_equal(value, like[name]):
            value = like[name]
        interned[sys.intern(name)] = sys.intern(value) if type(value) is str else value
    return interned


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # arrays compare by element
        return False


def _share(owner: Any, first: Any, *names: str) -> None:
    """Replaces attributes that equal the attributes of `first` by these objects."""
    for name in names:
        if _are_equal(getattr(owner, name), getattr(first, name)):
            setattr(owner, name, getattr(first, name))


class PackedState(list[bytes]):
    """A trial's compressed state in the two parts that Tune saves. It iterates over the parts, as JSON needs.

    Args:
        alike: state of another trial, as a dictionary for the compression.
    """

    __slots__ = ("alike",)

    def __init__(self, parts: Sequence[str], alike: bytes) -> None:
        packing = zlib.compressobj(zdict=alike)
        super().__init__([packing.compress(BETWEEN.join(parts).encode()) + packing.flush()])
        self.alike = alike

    def __iter__(self) -> Iterator[Any]:
        whole = zlib.decompressobj(zdict=self.alike).decompress(self[0])
        return iter(whole.decode().split(BETWEEN))


@contextmanager
def packed_states() -> Iterator[None]:
    """Compresses the states of ended trials, which Tune writes with its own state.

    This includes trials whose process died, since Tune does not save their end.
    """
    with replaced(TRIAL_STATES, _packing):
        yield


def _packing(plain_states: Callable[..., Any]) -> Callable[..., Any]:
    alike = b""

    def states(controller: Any) -> dict[str, Any]:
        nonlocal alike
        kept: dict[str, Any] = plain_states(controller)
        for trial in controller.get_trials():
            if not trial.is_finished() or isinstance(kept.get(trial.trial_id), PackedState):
                continue
            state = trial.get_json_state()
            alike = alike or BETWEEN.join(state).encode()
            kept[trial.trial_id] = PackedState(state, alike)
            trial.invalidate_json_state()
            trial.run_metadata.invalidate_cache()
        forget_log_lines("tune_func_encode:")  # a line for each object that is not JSON
        return kept

    return states


def return_memory() -> None:
    """Returns free memory of the C library to the system, after reading and writing states."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


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
