"""One function mapped over many items by stateful actors: chunks, results as they come, dead actors replaced."""

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray import ObjectRef, cloudpickle
from ray.exceptions import ActorUnschedulableError, RayError, RuntimeEnvSetupError

from archray.cluster.map_actor import MapActor, Reply, describe_error
from archray.errors import InvalidInput, TrialCrashed

# Chunks

ATTEMPTS = 2  # an item that failed so often is left out; a chunk that killed so many actors is split
CHUNK_SECONDS = 5.0  # how long a chunk should take when its size is ours to choose: what a killed driver loses


@dataclass
class Chunk:
    """Items (by index) that travel together. `alone`: nothing else may wait in its actor, so that blame is sure."""

    indices: list[int]
    deaths: int = 0
    alone: bool = False


class ChunkQueue:
    """What is to be done: items that have not been sent yet, and chunks that go again.

    Args:
        items: how many there are. num_actors: who work on them; may change.
        chunk_size: items per chunk; None: as many as take CHUNK_SECONDS, one until it is known how long an item takes.
    """

    def __init__(self, items: int, num_actors: int, chunk_size: int | None) -> None:
        self._items, self.num_actors, self._chunk_size = items, num_actors, chunk_size
        self._next = 0  # items from here on have not been sent yet
        self._again: deque[Chunk] = deque()
        self._failures: Counter[int] = Counter()  # by item
        self._seconds_per_item: float | None = None

    def __len__(self) -> int:
        """How many more actors could find work: items not sent, and chunks to be done again."""
        return self._items - self._next + len(self._again)

    def clear(self) -> None:
        self._next = self._items
        self._again.clear()

    def take(self, *, beside_another: bool) -> Chunk | None:
        """The next chunk for an actor, in which another one runs already or not; None if there is none for it."""
        for chunk in self._again:
            if not (chunk.alone and beside_another):
                self._again.remove(chunk)
                return chunk
        if self._next >= self._items:
            return None
        start, self._next = self._next, min(self._next + self._size(), self._items)
        return Chunk(list(range(start, self._next)))

    def _size(self) -> int:
        if self._chunk_size is not None:
            return self._chunk_size
        if self._seconds_per_item is None:
            return 1
        even = math.ceil((self._items - self._next) / (2 * self.num_actors))  # smaller towards the end
        return max(1, min(even, int(CHUNK_SECONDS / max(self._seconds_per_item, 1e-6))))

    def took(self, seconds: float, items: int) -> None:
        """Learns how long an item takes."""
        self._seconds_per_item = seconds / items

    def put_first(self, chunks: Iterable[Chunk]) -> None:
        """Has chunks that nothing is held against done again, before all else and in their order."""
        self._again.extendleft(reversed(list(chunks)))

    def put_last(self, chunk: Chunk) -> None:
        self._again.append(chunk)

    def suspect(self, chunk: Chunk) -> None:
        """Has a chunk of several items that killed an actor done again, alone; the second time item by item."""
        chunk.deaths, chunk.alone = chunk.deaths + 1, True
        if chunk.deaths < ATTEMPTS:
            self._again.append(chunk)
        else:
            self._again.extend(Chunk([index], alone=True) for index in chunk.indices)

    def failed(self, index: int) -> bool:
        """Counts a failure of one item; whether it goes again, alone, or is to be left out."""
        self._failures[index] += 1
        if self._failures[index] >= ATTEMPTS:
            return False
        self._again.append(Chunk([index], alone=True))
        return True


# Driver

logger = logging.getLogger(__name__)

IN_FLIGHT = 2  # chunks per actor: one runs while the next waits beside it, so that no actor waits for the driver
STARTS = 3  # actors in a row that died while they started before the map gives up
HOPELESS = 5  # items left out, with none done, before the map gives up: then the worker is wrong, not the items
RECOUNT = 5.0  # seconds between two looks at how many actors the cluster holds
TICK = 1.0  # seconds between two looks at `stop` when nothing comes back
START_SECONDS = 30.0  # that an actor that is no longer needed may take to start, before it is killed anyway
WARN_AFTER = 30.0  # seconds without any actor before a line says what the map is waiting for


class WorkerFailed(TrialCrashed):
    """The worker of a map cannot be constructed, or fails on every item.

    Args:
        failure: what failed. error: of `describe_error`; its first line is in the message, the rest is a note.
    """

    def __init__(self, failure: str, error: str) -> None:
        reason, _, details = error.partition("\n")
        super().__init__(f"{failure}: {reason}")
        self.add_note(details)


@dataclass(frozen=True)
class Outcome:
    """What became of one item: its value, or the error with which it failed twice and was left out.

    `index` is the item's place in the sequence given. The first line of `error` is the reason, the rest, if any,
    the traceback.
    """

    index: int
    item: Any
    value: Any
    error: str | None


@dataclass(eq=False)
class _Actor:
    handle: Any
    node: str | None = None  # the node's id, known once the actor is ready
    in_flight: dict[ObjectRef, Chunk] = field(default_factory=dict)  # in the order of submission

    @property
    def open(self) -> bool:
        """Whether another chunk may be sent."""
        return (
            self.node is not None
            and len(self.in_flight) < IN_FLIGHT
            and not any(chunk.alone for chunk in self.in_flight.values())
        )


def _kill_once_started(actors: dict[ObjectRef, Any]) -> None:
    """Kills each actor once it has started, or after `START_SECONDS`: one without resources does not start.

    Ray 2.60 ignores a kill that arrives between the lease of a worker and the creation of its actor: the worker then
    holds its CPUs and GPUs for as long as the driver lives.

    Args:
        actors: the reference of an actor's first call -> its handle.
    """
    left, deadline = dict(actors), time.monotonic() + START_SECONDS
    with suppress(Exception):  # Ray was shut down, or is lost
        while left:
            ready, _ = ray.wait(list(left), num_returns=1, timeout=max(deadline - time.monotonic(), 0.0))
            for ref in ready or list(left):
                ray.kill(left.pop(ref), no_restart=True)


class ActorPool:
    """Actors that a function is mapped over many items by; `archray.cluster.actor_pool.actor_map` says how.

    Args:
        num_actors: asked again and again. options: of Ray's, for each actor. The others: see there.
    """

    def __init__(
        self,
        worker: Callable[..., Callable[[Any], Any]],
        items: Sequence[Any],
        worker_kwargs: dict[str, Any],
        num_actors: Callable[[], int],
        chunk_size: int | None,
        options: dict[str, Any],
        title: str,
        stop: Callable[[], bool],
    ) -> None:
        self._name = getattr(worker, "__name__", repr(worker))
        self._setup = (cloudpickle.dumps(worker), ray.put(worker_kwargs))
        self._title = f"{title}: {self._name}" if title else self._name
        self._items = items
        self._count = num_actors
        self._num_actors, self._counted = num_actors(), time.monotonic()
        self._queue = ChunkQueue(len(items), self._num_actors, chunk_size)
        self._options = options
        self._stop = stop
        self._remote = ray.remote(MapActor)
        self._actors: list[_Actor] = []
        self._starting: dict[ObjectRef, _Actor] = {}
        self._running: dict[ObjectRef, _Actor] = {}
        self._ever_ready = False
        self._failed_starts = 0
        self._made = 0  # actors, those that are gone too
        self._idle_since = time.monotonic()
        self._done = 0
        self._left_out = 0

    def outcomes(self) -> Generator[list[Outcome], None, None]:
        """Lists of outcomes as they come; the actors end when this ends or is closed. Raises: WorkerFailed."""
        try:
            while self._running or self._queue:
                if self._stop():
                    self._queue.clear()
                    if not self._running:
                        return
                self._start_actors()
                self._send_chunks()
                for ref in self._wait():
                    if ref in self._starting:
                        self._started(ref)
                    elif ref in self._running:  # else its actor went in the meantime, and took it along
                        outcomes = self._returned(ref)
                        if outcomes:
                            yield outcomes
        finally:
            starting, self._starting = self._starting, {}
            for actor in set(self._actors).difference(starting.values()):
                self._dismiss(actor)
            if starting:
                handles = {ref: actor.handle for ref, actor in starting.items()}
                threading.Thread(target=_kill_once_started, args=(handles,), daemon=True).start()

    # Actors

    def _start_actors(self) -> None:
        if time.monotonic() - self._counted > RECOUNT:  # nodes may have joined or left
            with suppress(InvalidInput):  # none can hold an actor now; the ones to come may
                self._num_actors = self._queue.num_actors = self._count()
            self._counted = time.monotonic()
        while len(self._actors) < min(self._num_actors, len(self._queue) + len(self._running)):
            self._made += 1
            actor = _Actor(self._remote.options(**self._options).remote(f"{self._title} {self._made}"))
            self._actors.append(actor)
            self._starting[actor.handle.setup.remote(*self._setup)] = actor

    def _started(self, ref: ObjectRef) -> None:
        actor = self._starting.pop(ref)
        try:
            node, error = ray.get(ref)
            final = not self._ever_ready
        except RayError as lost:
            error, final = describe_error(lost), isinstance(lost, ActorUnschedulableError | RuntimeEnvSetupError)
        if error is None:
            actor.node, self._ever_ready, self._failed_starts = node, True, 0
            return
        self._dismiss(actor)
        self._failed_starts += 1
        if final or self._failed_starts >= STARTS:
            raise WorkerFailed(f"the worker {self._name} cannot be constructed in an actor", error)

    def _dismiss(self, actor: _Actor) -> None:
        """Ends an actor; what was in flight there is forgotten."""
        self._actors.remove(actor)
        for ref in actor.in_flight:
            del self._running[ref]
        if ray.is_initialized():
            ray.kill(actor.handle, no_restart=True)

    # Chunks

    def _send_chunks(self) -> None:
        for depth in range(IN_FLIGHT):
            if depth and len(self._queue) <= len(self._actors):
                return  # the last chunks go to whoever is free first
            for actor in self._actors:
                if actor.open and len(actor.in_flight) == depth:
                    chunk = self._queue.take(beside_another=bool(actor.in_flight))
                    if chunk is not None:
                        ref = actor.handle.run.remote([self._items[index] for index in chunk.indices])
                        actor.in_flight[ref] = chunk
                        self._running[ref] = actor

    def _wait(self) -> list[ObjectRef]:
        refs = [*self._starting, *self._running]
        ready, _ = ray.wait(refs, num_returns=1, timeout=TICK)
        if ready or self._running:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > WARN_AFTER:
            self._idle_since = time.monotonic()
            logger.warning(
                "no actor for %s has started yet; each needs %s CPU and %s GPU, free in the cluster: %s",
                self._name, self._options["num_cpus"], self._options["num_gpus"], ray.available_resources(),
            )  # fmt: skip
        return ray.wait(refs, num_returns=len(refs), timeout=0)[0] if ready else []

    # What comes back

    def _returned(self, ref: ObjectRef) -> list[Outcome]:
        actor = self._running[ref]
        try:
            reply = ray.get(ref)
        except RayError as error:
            return self._lost(actor, describe_error(error))
        del self._running[ref]
        return self._received(actor, actor.in_flight.pop(ref), reply)

    def _received(self, actor: _Actor, chunk: Chunk, reply: Reply) -> list[Outcome]:
        done = len(reply.values)
        outcomes = [self._value(index, value) for index, value in zip(chunk.indices, reply.values, strict=False)]
        if done:
            self._queue.took(reply.seconds, done)
        if reply.error is not None:
            if actor in self._actors:  # an exception can leave the device in a state that fails all that follows
                self._dismiss(actor)
                self._queue.put_first(actor.in_flight.values())
            if done + 1 < len(chunk.indices):
                self._queue.put_first([Chunk(chunk.indices[done + 1 :])])
            outcomes += self._failed(chunk.indices[done], reply.error)
        return outcomes

    def _lost(self, actor: _Actor, error: str) -> list[Outcome]:
        """An actor died. The first chunk without a reply is the suspect; the ones behind it had not begun."""
        in_flight = dict(actor.in_flight)
        self._dismiss(actor)
        outcomes: list[Outcome] = []
        suspect: Chunk | None = None
        for ref, chunk in in_flight.items():
            try:
                reply = ray.get(ref, timeout=0)
            except RayError:  # GetTimeoutError too
                if suspect is None and not self._node_left(actor):
                    suspect = chunk
                else:
                    self._queue.put_last(chunk)
            else:
                outcomes += self._received(actor, chunk, reply)
        if suspect is None:
            return outcomes
        if len(suspect.indices) == 1:
            return outcomes + self._failed(suspect.indices[0], error)
        self._queue.suspect(suspect)
        return outcomes

    def _node_left(self, actor: _Actor) -> bool:
        return all(node["NodeID"] != actor.node or not node["Alive"] for node in ray.nodes())

    def _value(self, index: int, value: Any) -> Outcome:
        self._done += 1
        return Outcome(index, self._items[index], value, None)

    def _failed(self, index: int, error: str) -> list[Outcome]:
        """Counts a failure of one item: it goes again, alone, or is left out."""
        if self._queue.failed(index):
            return []
        self._left_out += 1
        if self._left_out >= HOPELESS and not self._done:
            raise WorkerFailed(f"the worker {self._name} failed on every item so far, last with", error)
        return [Outcome(index, self._items[index], None, error)]


# Map


def actor_map(
    worker: Callable[..., Callable[[Any], Any]],
    items: Sequence[Any],
    *,
    worker_kwargs: Mapping[str, Any],
    num_actors: int | Callable[[], int],
    chunk_size: int | None = None,
    num_cpus: float = 1,
    num_gpus: float = 0,
    runtime_env: Mapping[str, Any] | None = None,
    title: str = "",
    stop: Callable[[], bool] = lambda: False,
) -> Generator[list[Outcome], None, None]:
    """Calls `worker(**worker_kwargs)(item)` for every item; yields lists of outcomes as they come, in any order.

    It spreads cheap work that needs state (a batch on a GPU, a supernet's weights) without a Tune trial per item. Ray
    Data's actor pool lacks an outcome per item, an end for an item that kills its worker, blocks by time rather than
    rows, and a stop between blocks.

    Every item has exactly one outcome. The worker is constructed once in each actor and called there, item by item.
    A worker should return what is wrong with an item as a value: an exception, like a death of the process, makes
    its actor suspect, and an actor that failed is never used again.

    - An item that raises is tried once more, on another actor, then reported with its error and left out.
    - The chunk of an actor that died is done again, once; when it kills a second actor it is split into single
      items, and an item that kills two actors by itself is reported. A node that leaves is held against nobody.
    - Actors end when the generator ends or is closed.

    Args:
        worker: an importable class or function; classes of a script's `__main__` work too.
        worker_kwargs: may hold object references, for arrays that all actors share.
        num_actors: actors at most; those that the cluster has no room for wait and hold up nothing. A function is asked
            every few seconds, so that a node that joins gets work; where it raises InvalidInput the number stays.
        chunk_size: items per chunk; None measures, and makes a chunk take about `chunks.CHUNK_SECONDS`.
        num_cpus: CPUs per actor. Ray sets OMP_NUM_THREADS to it (1 for less than 1) unless the variable is set.
        num_gpus: GPUs, or the share of one, per actor.
        runtime_env: Ray's runtime environment for the actors, on top of the job's.
        title: what the map is for; the actors are shown by it in Ray's dashboard, `title: Worker 3`.
        stop: asked between chunks; once it says True no further chunk is sent, and what is in flight is the last.

    Raises: InvalidInput for sizes below 1 or without Ray. While iterating, WorkerFailed if the worker cannot be
    constructed, at once, or if nothing but failures came.
    """
    if not ray.is_initialized():
        raise InvalidInput("actor_map needs Ray; call it inside `with archray.cluster.connect.connect(...)`")
    count = num_actors if callable(num_actors) else lambda: num_actors
    if count() < 1 or (chunk_size is not None and chunk_size < 1):
        raise InvalidInput(f"expected num_actors and chunk_size of 1 or more, got {count()} and {chunk_size}")
    options: dict[str, Any] = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_restarts": 0, "max_task_retries": 0}
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    return ActorPool(worker, items, dict(worker_kwargs), count, chunk_size, options, title, stop).outcomes()
