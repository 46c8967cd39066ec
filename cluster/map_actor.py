"""The actor's side of `actor_map`."""

import os
import time
import traceback
from dataclasses import dataclass
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import OutOfMemoryError, RayError
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn


@dataclass
class Reply:
    """What an actor made of a chunk: the values of its first items and, if it met an error there, that error."""

    values: list[Any]
    error: str | None
    seconds: float


class MapActor:
    """The actor's side: constructs the worker and calls it per item; stops at the first exception.

    title: what Ray's dashboard shows of it.
    """

    def __init__(self, title: str) -> None:
        self._title = title

    def __repr__(self) -> str:
        return self._title

    def setup(self, worker: bytes, kwargs: dict[str, Any]) -> tuple[str, str | None]:
        """Returns the node's id and, if the worker cannot be constructed, why."""
        node = ray.get_runtime_context().get_node_id()
        # Ray's word for the CPUs of this actor; libraries read it when they are imported, which may be long ago.
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
    """The reason in the first line; then the traceback, where there is one of ours."""
    if isinstance(error, OutOfMemoryError):  # its own text is a page of advice on Ray's settings
        return f"the machine ran out of memory, and Ray ended the worker's process (OutOfMemoryError)\n{error}"
    if isinstance(error, RayError):
        return f"the worker's process was lost ({type(error).__name__})\n{error}"
    reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return f"{reason}\n{''.join(traceback.format_exception(error))}"
