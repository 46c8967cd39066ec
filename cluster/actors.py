"""One function mapped over many items by stateful actors: chunks, results as they come, dead actors replaced.

This is where cheap work that needs state (a batch on a GPU, a supernet's weights) is spread over a cluster without
a Tune trial per item. Ray Data's actor pool (`map_batches` with a class) lacks for it an outcome per item (an exception
ends the whole job, or, under `max_errored_blocks`, drops its block), an end for an item that kills its worker
(the actor is restarted and the block sent again for ever: `max_restarts` and `max_task_retries` are -1), blocks as long
as a stretch of time rather than a number of rows, and a stop between blocks that keeps those in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import ray

from archray.cluster.actor_pool import ActorPool, Outcome
from archray.errors import InvalidInput


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
