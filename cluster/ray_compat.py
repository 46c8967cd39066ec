"""All private names of Ray that archray uses, and temporary, thread-safe changes of Ray.

Every name is optional: archray works without it, more slowly, with more memory, or with less precise messages. A
`PrivateName` has a purpose and is imported when it is used, so this module imports neither Ray, Ray Tune nor gRPC.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from importlib.metadata import version
from typing import Any

from archray.cluster import plain_ray
from archray.errors import TESTED_RAY

logger = logging.getLogger(__name__)


@cache
def _warn(ray_version: str) -> None:
    """Logs once per process that this version of Ray differs from the tested versions."""
    oldest, newest = TESTED_RAY
    logger.warning(
        "archray is tested with Ray %s to %s, this is Ray %s. It works without those of its changes to Ray that do not "
        "fit, see 'Versions of Ray' in docs/limits.md.",
        oldest,
        newest,
        ray_version,
    )


def warn_of_new_ray() -> None:
    """Logs one line per process if Ray is newer than the tested versions."""
    newest = [int(part) for part in TESTED_RAY[1].split(".")]
    if [int(part) for part in version("ray").split(".")[:2]] > newest:
        _warn(version("ray"))


@dataclass(frozen=True)
class PrivateName:
    """A private name of Ray, which may be missing.

    Attributes:
        module: module of Ray.
        name: `function`, `Class` or `Class.method`.
        purpose: why archray uses it.
    """

    module: str
    name: str
    purpose: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def attribute(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]

    def owner(self) -> Any:
        """Returns the module or class with the attribute. Raises: ImportError, AttributeError."""
        module = import_module(self.module)
        owner = self.name.rpartition(".")[0]
        return getattr(module, owner) if owner else module

    def find(self) -> Any:
        """Returns the object; None for a missing name, and if `plain_ray`."""
        if plain_ray():
            return None
        try:
            return getattr(self.owner(), self.attribute)
        except (ImportError, AttributeError) as error:
            self.changed(f"none ({error})")
            return None

    def changed(self, got: str) -> None:
        """Reports that Ray has changed: one line per process, and the details at the level DEBUG."""
        logger.debug("Expected %s of Ray to %s, got %s", self, self.purpose, got)
        _warn(version("ray"))

    @contextmanager
    def attributes(self) -> Iterator[None]:
        """Reports an AttributeError or TypeError in the block, which uses the object or its attributes."""
        try:
            yield
        except (AttributeError, TypeError) as error:
            self.changed(f"another object ({error})")


def process_wide(manager: Callable[[], AbstractContextManager[None]]) -> Callable[[], _GeneratorContextManager[None]]:
    """Decorates a context manager for a change of the whole process, such as an environment variable.

    If blocks overlap in several threads, the first block makes the change and the last block undoes it.
    """
    lock = threading.Lock()
    users = 0
    change: AbstractContextManager[None]

    @contextmanager
    @wraps(manager)
    def shared() -> Iterator[None]:
        nonlocal users, change
        with lock:
            if users == 0:
                change = manager()
                change.__enter__()
            users += 1
        try:
            yield
        finally:
            with lock:
                users -= 1
                if users == 0:
                    change.__exit__(None, None, None)

    return shared


class _Hook:
    """A hook in place of a function of Ray. Each thread inside a block has its own replacements.

    Attributes:
        original: Ray's function.
        saved: the attribute that holds it, such as a `classmethod`.
        users: the number of blocks in all threads.
    """

    def __init__(self, original: Callable[..., Any], saved: Any) -> None:
        self.original = original
        self.saved = saved
        self.users = 0
        self._local = threading.local()

    @property
    def replacements(self) -> list[Callable[..., Any]]:
        """The replacements of this thread; the last one is active."""
        if not hasattr(self._local, "replacements"):
            self._local.replacements = []
        return self._local.replacements

    @property
    def here(self) -> Callable[..., Any]:
        """The function that this thread calls."""
        return self.replacements[-1] if self.replacements else self.original

    def function(self) -> Callable[..., Any]:
        """Returns a plain function, which is bound like the original if it is a method of a class."""

        @wraps(self.original, updated=())
        def call(*arguments: Any, **options: Any) -> Any:
            return self.here(*arguments, **options)

        return call


_LOCK = threading.Lock()
_HOOKS: dict[PrivateName, _Hook] = {}


@contextmanager
def replaced(name: PrivateName, replacement: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Replaces a function of Ray for calls by this thread inside the block; does nothing if Ray lacks it.

    Other threads call Ray's function, or their own replacement. The last block restores Ray's function. For a missing
    name the block changes nothing.

    Args:
        name: a function, a method, or a class that is called.
        replacement: returns the new function for a given current function.
    """
    original = name.find()
    if original is None:
        yield
        return
    owner = name.owner()
    with _LOCK:
        hook = _HOOKS.get(name)
        if hook is None:
            hook = _HOOKS[name] = _Hook(original, vars(owner)[name.attribute])
            setattr(owner, name.attribute, hook.function())
        hook.users += 1
    hook.replacements.append(replacement(hook.here))
    try:
        yield
    finally:
        hook.replacements.pop()
        with _LOCK:
            hook.users -= 1
            if hook.users == 0:
                setattr(owner, name.attribute, hook.saved)
                del _HOOKS[name]


# Ray's switch for macOS and Windows. Ray reads it from CLUSTER_VARIABLE at import, often before archray. Without
# it, Ray ignores `ray.init(_node_ip_address="127.0.0.1")` and listens on all interfaces.
CLUSTER_SWITCH = PrivateName("ray._private.ray_constants", "ENABLE_RAY_CLUSTER", "limit Ray to 127.0.0.1")
# Ray has no option for the messages of its processes, and prints them in its own thread, where `replaced` has no
# effect.
PRINT_LINES = PrivateName("ray._private.worker", "print_to_stdstream", "print messages of its processes")


@contextmanager
def switched(name: PrivateName, value: object) -> Iterator[None]:
    """Sets a constant of Ray in the block; for a missing name the block changes nothing."""
    before = name.find()
    if before is None:
        yield
        return
    setattr(name.owner(), name.attribute, value)
    try:
        yield
    finally:
        setattr(name.owner(), name.attribute, before)


_HIDES: list[Callable[[str], bool]] = []


@process_wide
@contextmanager
def _filtered_lines() -> Iterator[None]:
    print_lines = PRINT_LINES.find()
    if print_lines is None:
        yield
        return

    def print_others(data: Any, *arguments: Any, **options: Any) -> None:
        hidden = False
        with suppress(LookupError, TypeError, AttributeError):  # of a later Ray with another form of data
            hidden = any(hides(line) for hides in tuple(_HIDES) for line in data["lines"])
        if not hidden:
            print_lines(data, *arguments, **options)

    with switched(PRINT_LINES, print_others):
        yield


@contextmanager
def hidden_lines(hides: Callable[[str], bool]) -> Iterator[None]:
    """Hides messages of Ray's processes, in all threads, if `hides` is True for one of their lines."""
    with _filtered_lines():
        _HIDES.append(hides)
        try:
            yield
        finally:
            _HIDES.remove(hides)


# The head of a cluster, which `connect` examines before it joins: Ray itself tries for 20 s to ten minutes, and its
# errors do not name the reason.

HEAD_ADDRESS = PrivateName("ray._private.services", "get_ray_address_from_environment", "find a head on this machine")
NODE_IDS = PrivateName("ray._private.services", "find_node_ids", "find the nodes on this machine")
GCS_CHANNEL = PrivateName("ray._private.gcs_utils", "create_gcs_channel", "connect to a head")
GCS_STUB = PrivateName("ray.core.generated.gcs_service_pb2_grpc", "NodeInfoGcsServiceStub", "ask a head for its nodes")
HEAD_REQUEST = PrivateName("ray.core.generated.gcs_service_pb2", "CheckAliveRequest", "ask a head for its version")
NODES_REQUEST = PrivateName("ray.core.generated.gcs_service_pb2", "GetAllNodeInfoRequest", "ask a head for its nodes")
# Without it, Ray sends a token to a given address only if RAY_AUTH_MODE=token was set before Ray was imported.
RAY_CONFIG = PrivateName("ray._raylet", "Config", "read RAY_AUTH_MODE again")


class RejectedCall(Exception):
    """A server did not answer a call as the head of a cluster. The text is the status of gRPC (`UNAUTHENTICATED`)."""


def head_of_this_machine() -> str | None:
    """Returns the address of the head of the Ray on this machine; None if unknown. Raises: ConnectionError if none."""
    with HEAD_ADDRESS.attributes():
        if (find := HEAD_ADDRESS.find()) is not None:
            return str(find("auto", None))
    return None


def starts_ray() -> bool:
    """Returns whether `ray.init()` starts a Ray on this machine, and does not join a cluster; True if unknown."""
    address = os.environ.get("RAY_ADDRESS")
    with HEAD_ADDRESS.attributes():
        if (find := HEAD_ADDRESS.find()) is not None:
            address = find(None, None)
    return address in (None, "", "local")


def head_version(address: str, seconds: float) -> str | None:
    """Returns the version of Ray of the head at `address`; None if unknown. Raises: RejectedCall."""
    answer = _ask_head(address, "CheckAlive", HEAD_REQUEST, seconds)
    return getattr(answer, "ray_version", None)


def has_node_here(address: str, seconds: float) -> bool | None:
    """Returns whether this machine is a node of the cluster with the head at `address`; None if unknown.

    Raises: RejectedCall.
    """
    find, answer = NODE_IDS.find(), _ask_head(address, "GetAllNodeInfo", NODES_REQUEST, seconds)
    with NODES_REQUEST.attributes():
        if None not in (find, answer):
            living = [node.node_id.hex() for node in answer.node_info_list if node.state == node.ALIVE]
            return not set(find()).isdisjoint(living)
    return None


def requires_token(address: str, seconds: float) -> bool | None:
    """Returns whether the head at `address` rejects a request without a token, or does not answer; None if unknown."""
    try:
        answer = _ask_head(address, "CheckAlive", HEAD_REQUEST, seconds, with_token=False)
    except RejectedCall:
        return True
    return None if answer is None else False


def _ask_head(address: str, method: str, request: PrivateName, seconds: float, *, with_token: bool = True) -> Any:
    """Returns the answer of a head; None if Ray's interface is unknown. Raises: RejectedCall."""
    create, stub, message = GCS_CHANNEL.find(), GCS_STUB.find(), request.find()
    if None in (create, stub, message):
        return None
    import grpc  # only for a process that joins a cluster

    answer, options = None, (("grpc.enable_http_proxy", 0),)
    with (
        GCS_STUB.attributes(),
        create(address) if with_token else grpc.insecure_channel(address, options) as channel,
    ):
        try:
            answer = getattr(stub(channel), method)(message(), timeout=seconds)
        except grpc.RpcError as error:
            raise RejectedCall(error.code().name) from error
    return answer


def read_settings_again() -> None:
    """Makes Ray read its environment variables again, if it can."""
    with RAY_CONFIG.attributes():
        if (config := RAY_CONFIG.find()) is not None:
            config.initialize("")


# Runs of Ray Tune, without which a run is slower or needs more memory.

_CONTROLLER = "ray.tune.execution.tune_controller"
# Tune saves the state of every trial, which a resume does not read, and keeps it in memory.
TRIAL_STATES = PrivateName(_CONTROLLER, "TuneController._get_trial_checkpoints", "save the states of trials")
# Tune reads its own result files, which archray does not write.
TRIAL_FRAMES = PrivateName(
    "ray.tune.analysis.experiment_analysis", "ExperimentAnalysis._fetch_trial_dataframes", "read the results of trials"
)
# Tune ends the whole run if Ray kills an actor for lack of memory.
TASK_ERROR = PrivateName(
    "ray.air.execution._internal.actor_manager", "RayActorManager._actor_task_failed", "receive the error of an actor"
)


def no_states(controller: Any) -> dict[str, Any]:
    """Takes the place of TRIAL_STATES: forgets the trials of a `TuneController` whose states Tune would save."""
    with TRIAL_STATES.attributes():
        controller._trials_to_cache.clear()
    return {}
