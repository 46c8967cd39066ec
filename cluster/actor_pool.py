"""Map a function over many items with stateful actors: chunks, results as they arrive, replacement of dead actors."""

import logging
import math
import os
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from ray import ObjectRef, cloudpickle, exceptions
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn

from archray.cluster.node_checks import check_new_nodes
from archray.errors import InvalidInput, TrialCrashed

ATTEMPTS = 2  # failures until an item is left out; actors that a chunk may kill until it is split
CHUNK_SECONDS = 5.0  # duration of a chunk of automatic size, the work that a killed driver loses


@dataclass
class Chunk:
    """Items (by index) that are sent together.

    Attributes:
        indices: the indices of the items.
        deaths: number of actors that died while they worked on the chunk.
        alone: send the chunk only to an actor without another chunk, so that the cause of a death is certain.
    """

    indices: list[int]
    deaths: int = 0
    alone: bool = False


class ChunkQueue:
    """A queue of the remaining work: items that have not been sent yet, and chunks to repeat.

    Args:
        items: the number of items.
        num_actors: the number of actors, which may change.
        chunk_size: items per chunk; None: as many as take CHUNK_SECONDS, and one until the time of an item is measured.
    """

    def __init__(self, items: int, num_actors: int, chunk_size: int | None) -> None:
        self._items, self.num_actors, self._chunk_size = items, num_actors, chunk_size
        self._next = 0  # the first item that has not been sent
        self._again: deque[Chunk] = deque()
        self._failures: Counter[int] = Counter()  # by item
        self._seconds_per_item: float | None = None

    def __len__(self) -> int:
        """Returns the number of actors that could get work: the items not sent, and the chunks to repeat."""
        return self._items - self._next + len(self._again)

    def clear(self) -> None:
        self._next = self._items
        self._again.clear()

    def take(self, *, beside_another: bool) -> Chunk | None:
        """Returns the next chunk for an actor; None if there is none.

        beside_another: whether the actor already has a chunk.
        """
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
        even = math.ceil((self._items - self._next) / (2 * self.num_actors))  # smaller chunks at the end
        return max(1, min(even, int(CHUNK_SECONDS / max(self._seconds_per_item, 1e-6))))

    def took(self, seconds: float, items: int) -> None:
        self._seconds_per_item = seconds / items

    def put_first(self, chunks: Iterable[Chunk]) -> None:
        """Repeats chunks that did not fail themselves, before all others and in their order."""
        self._again.extendleft(reversed(list(chunks)))

    def put_last(self, chunk: Chunk) -> None:
        self._again.append(chunk)

    def suspect(self, chunk: Chunk) -> None:
        """Repeats a chunk of several items that killed an actor, first alone, then item by item."""
        chunk.deaths, chunk.alone = chunk.deaths + 1, True
        if chunk.deaths < ATTEMPTS:
            self._again.append(chunk)
        else:
            self._again.extend(Chunk([index], alone=True) for index in chunk.indices)

    def failed(self, index: int) -> bool:
        """Counts a failure of one item. Returns True if the item is repeated alone, False if it is left out."""
        self._failures[index] += 1
        if self._failures[index] >= ATTEMPTS:
            return False
        self._again.append(Chunk([index], alone=True))
        return True


@dataclass
class Reply:
    """An actor's answer to a chunk: the values of its first items, and the error that stopped it, if any."""

    values: list[Any]
    error: str | None
    seconds: float


class MapActor:
    """An actor that constructs the worker and calls it for each item; it stops at the first exception.

    Args:
        title: the actor's name in Ray's dashboard.
    """

    def __init__(self, title: str) -> None:
        self._title = title

    def __repr__(self) -> str:
        return self._title

    def setup(self, worker: bytes, kwargs: dict[str, Any]) -> tuple[str, str | None]:
        """Constructs the worker; returns the node's id, and the error if the construction fails."""
        node = ray.get_runtime_context().get_node_id()
        # Ray sets the variable to the CPUs of this actor, but libraries may have read it at an earlier import.
        threadpool_limits(int(os.environ.get("OMP_NUM_THREADS", 1)))
        try:
            self._worker = cloudpickle.loads(worker)(**kwargs)
        except Exception as error:
            return node, describe_error(error)
        return node, None

    def run(self, items: list[Any]) -> Reply:
        start = time.perf_counter()
        values: list[Any] = []
        failure = None
        for item in items:
            try:
                values.append(self._worker(item))
            except Exception as error:
                failure = describe_error(error)
                break
        return Reply(values, failure, time.perf_counter() - start)


def describe_error(error: BaseException) -> str:
    """Returns a description of an error: the reason in the first line, then Ray's message or the traceback."""
    if isinstance(error, exceptions.OutOfMemoryError):  # its text is a page of advice about Ray's settings
        return f"the machine ran out of memory, and Ray killed the worker's process (OutOfMemoryError)\n{error}"
    if isinstance(error, exceptions.RayError):
        return f"the worker's process was lost ({type(error).__name__})\n{error}"
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return f"{reason}\n{''.join(traceback.format_exception(error))}"


logger = logging.getLogger(__name__)

IN_FLIGHT = 2  # chunks per actor: one runs while the next waits, so that no actor waits for the driver
STARTS = 3  # consecutive actors that may die at their start until the map gives up
HOPELESS = 5  # items left out, with none done, until the map gives up: then the worker is the cause, not the items
RECOUNT = 5.0  # seconds between two counts of the actors that fit on the cluster
TICK = 1.0  # seconds between two calls of `stop` while no result arrives
START_SECONDS = 30.0  # limit for the start of an actor that is no longer needed; then it is killed
POLL = 0.2  # seconds between two checks for the start of such an actor
WARN_AFTER = 30.0  # seconds without any actor until a warning names the missing resources


class WorkerFailed(TrialCrashed):
    """The worker of a map cannot be constructed, or fails on every item.

    Args:
        failure: the problem.
        error: a text of `describe_error`; its first line is part of the message, the rest is a note.
    """

    def __init__(self, failure: str, error: str) -> None:
        reason, _, details = error.partition("\n")
        super().__init__(f"{failure}: {reason}")
        self.add_note(details)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one item: its value, or the error of an item that failed twice and was left out.

    Attributes:
        index: the item's index in the sequence.
        item: the item.
        value: its value; None after an error.
        error: the reason in the first line, then the traceback; None without an error.
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
        """Whether the actor accepts another chunk."""
        return (
            self.node is not None
            and len(self.in_flight) < IN_FLIGHT
            and not any(chunk.alone for chunk in self.in_flight.values())
        )


# Actors of ended maps that have not started yet, by the reference of their first call. If a thread freed a reference
# while `ray.shutdown()` runs, Ray would end the whole process. So this dictionary keeps the references.
_LATE: dict[ObjectRef, Any] = {}


def _kill_once_started(actors: dict[ObjectRef, Any]) -> None:
    """Kills each actor once it has started, or after `START_SECONDS` if it has no resources to start.

    Ray 2.60 ignores a kill that arrives between the lease of a worker and the creation of its actor. The worker then
    holds its CPUs and GPUs until the driver ends.

    Args:
        actors: a dictionary from the reference of an actor's first call to its handle.
    """
    _LATE.update(actors)
    left, deadline = set(actors), time.monotonic() + START_SECONDS
    with suppress(Exception):  # Ray was shut down, or is lost
        while left and ray.is_initialized():
            # Without a timeout: this thread must not wait inside Ray when another thread shuts Ray down.
            ready, _ = ray.wait(list(left), num_returns=len(left), timeout=0)
            for ref in ready if time.monotonic() < deadline else list(left):
                if ray.is_initialized():  # after a shutdown, Ray would connect to another cluster, or start one
                    ray.kill(_LATE[ref], no_restart=True)
                    left.remove(ref)
                    del _LATE[ref]
            time.sleep(POLL)


class _ActorPool:
    """The actors of one `actor_map`.

    Args:
        options: Ray's options for each actor. For the other arguments see `actor_map`.
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
        self._made = 0  # number of actors so far, dead actors included
        self._idle_since = time.monotonic()
        self._done = 0
        self._left_out = 0

    def outcomes(self) -> Generator[list[Outcome], None, None]:
        """Yields lists of outcomes as they arrive; ends the actors when it ends or is closed. Raises: WorkerFailed."""
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
                    elif ref in self._running:  # else its actor ended in the meantime
                        if outcomes := self._returned(ref):
                            yield outcomes
        finally:
            starting, self._starting = self._starting, {}
            for actor in set(self._actors).difference(starting.values()):
                self._dismiss(actor)
            if starting:
                handles = {ref: actor.handle for ref, actor in starting.items()}
                threading.Thread(target=_kill_once_started, args=(handles,), daemon=True).start()

    def _start_actors(self) -> None:
        if time.monotonic() - self._counted > RECOUNT:  # nodes may have joined or left
            with suppress(InvalidInput):  # no actor fits on a node now, but one may later
                self._num_actors = self._queue.num_actors = self._count()
            self._counted = time.monotonic()
        while len(self._actors) < min(self._num_actors, len(self._queue) + len(self._running)):
            self._made += 1
            actor = _Actor(self._remote.options(**self._options).remote(f"{self._title} {self._made}"))
            self._actors.append(actor)
            self._starting[actor.handle.setup.remote(*self._setup)] = actor

    def _started(self, ref: ObjectRef) -> None:
        actor = self._starting.pop(ref)
        check_new_nodes()
        try:
            node, error = ray.get(ref)
            final = not self._ever_ready
        except exceptions.RayError as lost:
            final = isinstance(lost, exceptions.ActorUnschedulableError | exceptions.RuntimeEnvSetupError)
            error = describe_error(lost)
        if error is None:
            actor.node, self._ever_ready, self._failed_starts = node, True, 0
            return
        self._dismiss(actor)
        self._failed_starts += 1
        if final or self._failed_starts >= STARTS:
            raise WorkerFailed(f"The worker {self._name} cannot be constructed in an actor", error)

    def _dismiss(self, actor: _Actor) -> None:
        """Ends an actor, and drops its chunks in flight."""
        self._actors.remove(actor)
        for ref in actor.in_flight:
            del self._running[ref]
        if ray.is_initialized():
            ray.kill(actor.handle, no_restart=True)

    def _send_chunks(self) -> None:
        for depth in range(IN_FLIGHT):
            if depth and len(self._queue) <= len(self._actors):
                return  # the last chunks go to the first free actors
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
                "No actor for %s has started yet. Each needs %s CPU and %s GPU. Free resources of the cluster: %s",
                self._name, self._options["num_cpus"], self._options["num_gpus"], ray.available_resources(),
            )  # fmt: skip
        return ray.wait(refs, num_returns=len(refs), timeout=0)[0] if ready else []

    def _returned(self, ref: ObjectRef) -> list[Outcome]:
        actor = self._running[ref]
        try:
            reply = ray.get(ref)
        except exceptions.RayError as error:
            return self._lost(actor, describe_error(error))
        del self._running[ref]
        return self._received(actor, actor.in_flight.pop(ref), reply)

    def _received(self, actor: _Actor, chunk: Chunk, reply: Reply) -> list[Outcome]:
        done = len(reply.values)
        outcomes = [self._value(index, value) for index, value in zip(chunk.indices, reply.values, strict=False)]
        if done:
            self._queue.took(reply.seconds, done)
        if reply.error is not None:
            if actor in self._actors:  # after an exception, later items may fail on the same device
                self._dismiss(actor)
                self._queue.put_first(actor.in_flight.values())
            if done + 1 < len(chunk.indices):
                self._queue.put_first([Chunk(chunk.indices[done + 1 :])])
            outcomes += self._failed(chunk.indices[done], reply.error)
        return outcomes

    def _lost(self, actor: _Actor, error: str) -> list[Outcome]:
        """Handles the death of an actor. The first chunk without a reply is the suspect; later ones had not started."""
        in_flight = dict(actor.in_flight)
        self._dismiss(actor)
        outcomes: list[Outcome] = []
        suspect: Chunk | None = None
        for ref, chunk in in_flight.items():
            try:
                reply = ray.get(ref, timeout=0)
            except exceptions.RayError:  # GetTimeoutError too
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
        if self._queue.failed(index):  # the item is repeated
            return []
        self._left_out += 1
        if self._left_out >= HOPELESS and not self._done:
            raise WorkerFailed(f"The worker {self._name} failed on every item so far, last with", error)
        return [Outcome(index, self._items[index], None, error)]


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
    """Calls `worker(**worker_kwargs)(item)` for every item; yields lists of outcomes as they arrive, in any order.

    It distributes cheap work that needs state (a batch on a GPU, a supernet's weights) without a Tune trial per item.
    The actor pool of Ray Data does not return an outcome per item, give up an item that kills its worker, form blocks
    by time instead of rows, or stop between blocks.

    Every item has exactly one outcome. Each actor constructs the worker once and calls it item by item. A worker should
    return the problem of an item as a value. After an exception, or the death of the process, the actor is not used
    again.

    - An item that raises is tried once more on another actor. If it raises again, it is reported with its error and
      left out.
    - The chunk of an actor that died is repeated once. If it kills a second actor, it is split into single items. An
      item that kills two actors by itself is reported. The loss of a node does not count.
    - Actors end when the generator ends or is closed.

    Args:
        worker: an importable class or function; classes of a script's `__main__` also work.
        items: the items.
        worker_kwargs: arguments of the worker. They may contain object references, for arrays that all actors share.
        num_actors: maximum number of actors; actors without resources wait and delay nothing. A function is called
            every few seconds, so that a new node gets work. If it raises InvalidInput, the number does not change.
        chunk_size: items per chunk; None: as many as take about CHUNK_SECONDS.
        num_cpus: CPUs per actor. Ray sets OMP_NUM_THREADS to this number (at least 1) unless the variable is set.
        num_gpus: GPUs, or the share of a GPU, per actor.
        runtime_env: Ray's runtime environment for the actors, added to the job's.
        title: the purpose of the map, for the actors' names in Ray's dashboard: `title: Worker 3`.
        stop: called between chunks; once it returns True, no further chunk is sent.

    Raises: InvalidInput for sizes below 1 or without Ray. While iterating, WorkerFailed if the worker cannot be
    constructed, or if every item fails.

    Example:
        ```python
        class Square:
            def __call__(self, item):
                return item**2


        with connect(ClusterSettings(num_cpus=2)):
            for outcomes in actor_map(Square, [1, 2, 3], worker_kwargs={}, num_actors=2):
                print([(outcome.item, outcome.value) for outcome in outcomes])
        ```
    """
    if not ray.is_initialized():
        raise InvalidInput(
            "Expected Ray to be initialized. Call actor_map inside `with archray.cluster.connect.connect(...)`."
        )
    count = num_actors if callable(num_actors) else lambda: num_actors
    if count() < 1 or (chunk_size is not None and chunk_size < 1):
        raise InvalidInput(f"Expected num_actors and chunk_size of 1 or more, got {count()} and {chunk_size}")
    options: dict[str, Any] = {"num_cpus": num_cpus, "num_gpus": num_gpus, "max_restarts": 0, "max_task_retries": 0}
    if runtime_env:
        options["runtime_env"] = dict(runtime_env)
    return _ActorPool(worker, items, dict(worker_kwargs), count, chunk_size, options, title, stop).outcomes()
