"""All private names of Ray that archray uses, and temporary, thread-safe changes of Ray.

A `PrivateName` has a purpose and is imported when it is used, so this module imports neither Ray, Ray Tune nor gRPC. If
the name is missing, or if Ray no longer calls its replacement, the user gets an error or a warning with the tested
versions of Ray. No private name has a public alternative in Ray 2.60, unless its comment names one.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, _GeneratorContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, wraps
from importlib import import_module
from typing import Any

from archray.errors import IncompatibleRay, tested_versions

logger = logging.getLogger(__name__)


@cache
def _warn(message: str) -> None:
    """Logs a warning once per process."""
    logger.warning("%s", message)


@dataclass(frozen=True)
class PrivateName:
    """A private name of Ray.

    Attributes:
        module: module of Ray.
        name: `function`, `Class` or `Class.method`.
        purpose: why archray uses it, for the error.
        needed: whether results or the safety of the machine depend on it. If not, archray continues without it and
            warns once.
    """

    module: str
    name: str
    purpose: str
    needed: bool = True

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
        """Returns the object, or None for a missing name that is not needed.

        Raises: IncompatibleRay if a needed name is missing.
        """
        try:
            return getattr(self.owner(), self.attribute)
        except (ImportError, AttributeError) as error:
            self.changed(f"none ({error})")
            return None

    def changed(self, got: str) -> None:
        """Reports that Ray has changed. Raises: IncompatibleRay if the name is needed."""
        message = tested_versions(f"Expected {self} of Ray to {self.purpose}, got {got}")
        if self.needed:
            raise IncompatibleRay(message)
        _warn(message)

    @contextmanager
    def attributes(self) -> Iterator[None]:
        """Reports an AttributeError in the block, which uses attributes of the object. Raises: as `changed`."""
        try:
            yield
        except AttributeError as error:
            self.changed(f"an object without an attribute ({error})")


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


class _Replacement:
    """A function in place of a function of Ray in one block, with the number of its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.calls += 1
        return self.function(*arguments, **options)


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
    def replacements(self) -> list[_Replacement]:
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
    """Replaces a function of Ray for calls by this thread inside the block. `check_called` checks for calls.

    Other threads call Ray's function, or their own replacement. The last block restores Ray's function.

    Args:
        name: a function, a method, or a class that is called.
        replacement: returns the new function for a given current function.

    Raises: IncompatibleRay if Ray lacks a needed function.
    """
    if name.find() is None:
        yield
        return
    owner = name.owner()
    with _LOCK:
        hook = _HOOKS.get(name)
        if hook is None:
            hook = _HOOKS[name] = _Hook(name.find(), vars(owner)[name.attribute])
            setattr(owner, name.attribute, hook.function())
        hook.users += 1
    hook.replacements.append(_Replacement(replacement(hook.here)))
    try:
        yield
    finally:
        hook.replacements.pop()
        with _LOCK:
            hook.users -= 1
            if hook.users == 0:
                setattr(owner, name.attribute, hook.saved)
                del _HOOKS[name]


def check_called(*names: PrivateName) -> None:
    """Checks that Ray called the replacements of this thread's current blocks; a name without a block is skipped.

    Raises: IncompatibleRay if Ray did not call a needed function.
    """
    for name in names:
        hook = _HOOKS.get(name)
        if hook is not None and hook.replacements and not hook.replacements[-1].calls:
            name.changed("no call")


# The start of Ray. `connect` starts and joins it, `ray_watch` observes it.

# Ray's switch for macOS and Windows. Without it, Ray ignores `ray.init(_node_ip_address="127.0.0.1")` and listens on
# all interfaces. `loopback_only` checks the address that Ray then uses, `checked_loopback` the sockets.
CLUSTER_SWITCH = PrivateName("ray._private.ray_constants", "ENABLE_RAY_CLUSTER", "limit Ray to 127.0.0.1")
CLUSTER_VARIABLE = PrivateName("ray._private.ray_constants", "ENABLE_RAY_CLUSTERS_ENV_VAR", "limit Ray to 127.0.0.1")
# Ray has no option for the messages of its processes, and prints them in its own thread, where `replaced` has no
# effect. There is no check for calls: in most runs Ray prints no such message.
PRINT_LINES = PrivateName("ray._private.worker", "print_to_stdstream", "print messages of its processes", needed=False)
# The processes of the Ray that this driver started. The node exists when the GCS starts, before `ray.init` returns.
START_GCS = PrivateName("ray._private.node", "Node.start_gcs_server", "start its GCS", needed=False)
THIS_NODE = PrivateName("ray._private.worker", "_global_node", "describe the node of a driver", needed=False)
GCS = PrivateName("ray._private.ray_constants", "PROCESS_TYPE_GCS_SERVER", "name its GCS", needed=False)
RAYLET = PrivateName("ray._private.ray_constants", "PROCESS_TYPE_RAYLET", "name its raylet", needed=False)
PSUTIL = PrivateName("ray._private.services", "psutil", "contain psutil", needed=False)  # public: the package psutil
# The variable with the configuration of the Ray job in which this process runs. `ray.get_runtime_context` needs an
# initialized Ray. `connect` checks afterwards that the workers can import the modules of the job.
JOB_VARIABLE = PrivateName(
    "ray._private.runtime_env.constants", "RAY_JOB_CONFIG_JSON_ENV_VAR", "name the variable of a job's configuration"
)


@contextmanager
def switched(name: PrivateName, value: object) -> Iterator[None]:
    """Sets a constant of Ray in the block. Raises: IncompatibleRay if Ray lacks a needed constant."""
    before = name.find()
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


def node_processes(node: Any, kind: PrivateName | None = None) -> list[Any]:
    """Returns the processes of a node that this process started; none for None or a joined node.

    Args:
        kind: `GCS` or `RAYLET`; None: all processes.
    """
    processes: list[Any] = []
    with THIS_NODE.attributes():
        by_kind = [] if node is None else list(node.all_processes.items())
        processes = [info for name, infos in by_kind if kind is None or name == kind.find() for info in list(infos)]
    return processes


def child_processes(number: int) -> list[Any]:
    """Returns the children of a process; none if it has ended."""
    psutil = PSUTIL.find()
    if psutil is not None:
        with suppress(psutil.Error):
            return list(psutil.Process(number).children())
    return []


def kill(processes: list[Any]) -> None:
    """Kills processes of `child_processes`, some of which may have ended."""
    for process in processes:
        with suppress(PSUTIL.find().Error):
            process.kill()


def job_config() -> Mapping[str, Any] | None:
    """Returns the configuration of the Ray job in which this process runs; None outside of a job."""
    text = os.environ.get(JOB_VARIABLE.find())
    return None if text is None else json.loads(text)


# The head of a cluster, which `connect` examines before it joins: Ray itself tries for 20 s to ten minutes. Each call
# is its own check: without an answer, archray does not join.

HEAD_ADDRESS = PrivateName("ray._private.services", "get_ray_address_from_environment", "find a head on this machine")
NODE_IDS = PrivateName("ray._private.services", "find_node_ids", "find the nodes on this machine")
GCS_CHANNEL = PrivateName("ray._private.gcs_utils", "create_gcs_channel", "connect to a head")
GCS_STUB = PrivateName("ray.core.generated.gcs_service_pb2_grpc", "NodeInfoGcsServiceStub", "ask a head for its nodes")
HEAD_REQUEST = PrivateName("ray.core.generated.gcs_service_pb2", "CheckAliveRequest", "ask a head for its version")
NODES_REQUEST = PrivateName("ray.core.generated.gcs_service_pb2", "GetAllNodeInfoRequest", "ask a head for its nodes")
NODE_INFO = PrivateName("ray.core.generated.gcs_pb2", "GcsNodeInfo", "describe a node")
TOKENS = PrivateName("ray._raylet", "AuthenticationTokenLoader", "read the token of this machine")
RAY_CONFIG = PrivateName("ray._raylet", "Config", "read RAY_AUTH_MODE again")


class RejectedCall(Exception):
    """A server did not answer a call as the head of a cluster. The text is the status of gRPC (`UNAUTHENTICATED`)."""


def head_of_this_machine() -> str:
    """Returns the address of the head of the Ray on this machine. Raises: ConnectionError without a Ray."""
    return str(HEAD_ADDRESS.find()("auto", None))


def address_to_join() -> str | None:
    """Returns the address of the cluster that `ray.init()` joins; None if it starts a Ray on this machine."""
    address = HEAD_ADDRESS.find()(None, None)
    return None if address in (None, "local") else str(address)


def nodes_of_this_machine() -> set[str]:
    """Returns the ids of the nodes on this machine."""
    return set(NODE_IDS.find()())


def head_version(address: str, seconds: float) -> str:
    """Returns the version of Ray of the head at `address`. Raises: RejectedCall; IncompatibleRay."""
    answer = _ask_head(address, "CheckAlive", HEAD_REQUEST, seconds)
    with HEAD_REQUEST.attributes():
        return str(answer.ray_version)


def living_nodes(address: str, seconds: float) -> set[str]:
    """Returns the ids of the living nodes of the cluster with the head at `address`. Raises: as `head_version`."""
    answer = _ask_head(address, "GetAllNodeInfo", NODES_REQUEST, seconds)
    with NODE_INFO.attributes():
        alive = NODE_INFO.find().GcsNodeState.ALIVE
        return {node.node_id.hex() for node in answer.node_info_list if node.state == alive}


def _ask_head(address: str, method: str, request: PrivateName, seconds: float) -> Any:
    import grpc  # only for a process that joins a cluster

    with GCS_CHANNEL.find()(address) as channel, GCS_STUB.attributes():
        call = getattr(GCS_STUB.find()(channel), method)
        try:
            return call(request.find()(), timeout=seconds)
        except grpc.RpcError as error:
            raise RejectedCall(error.code().name) from error


def requires_token(address: str, seconds: float) -> bool:
    """Returns whether the head at `address` rejects a request without a token, or does not answer it."""
    import grpc  # only for a process that joins a cluster

    options = (("grpc.enable_http_proxy", 0),)
    with grpc.insecure_channel(address, options) as channel, GCS_STUB.attributes():
        try:
            GCS_STUB.find()(channel).CheckAlive(HEAD_REQUEST.find()(), timeout=seconds)
        except grpc.RpcError:
            return True
    return False


def has_token() -> bool:
    """Returns whether this machine has a token. Raises: AuthenticationError or RuntimeError for an unusable file."""
    with TOKENS.attributes():
        return bool(TOKENS.find().instance().has_token(ignore_auth_mode=True))


def token_header() -> Mapping[str, str]:
    """Returns the HTTP header with the token of this machine."""
    with TOKENS.attributes():
        return dict(TOKENS.find().instance().get_token_for_http_header())


def read_settings_again() -> None:
    """Makes Ray read its environment variables again."""
    with RAY_CONFIG.attributes():
        RAY_CONFIG.find().initialize("")


# Runs of Ray Tune. `tuning.run_trials` calls `check_called` at the end of a run.

# The names of the files in which Tune saves a run. `KeepSnapshot` checks that Tune writes them at its first step.
TUNER_FILE = "tuner.pkl"  # the arguments of a Tuner; Tune restores the Tuner from them
TUNE_CONFIG = "_tune_config"  # key of the caller's `TuneConfig` in it
EXPERIMENT_STATE = "experiment_state-"  # the state of the trials
SEARCHER_STATE = "searcher-state-"
GENERATOR_STATE = "search_gen_state-"  # of the generator that wraps a searcher
GRID_STATE = "basic-variant-state-"  # of the generator for a run without a searcher
STATE_FILES = (EXPERIMENT_STATE, GENERATOR_STATE, SEARCHER_STATE, GRID_STATE)

_CONTROLLER = "ray.tune.execution.tune_controller"
# Tune's state lacks the end of trials whose process died, and keeps the state of every ended trial in memory.
TRIAL_STATES = PrivateName(_CONTROLLER, "TuneController._get_trial_checkpoints", "save the states of trials")
# Tune writes its whole state when a trial has saved as many checkpoints as it keeps.
# `TUNE_GLOBAL_CHECKPOINT_S` has no effect on these writes.
TRIAL_CHECKPOINT = PrivateName(
    "ray.tune.execution.experiment_state",
    "_ExperimentCheckpointManager.on_trial_checkpoint",
    "request its state to be saved after a checkpoint of a trial",
    needed=False,
)
# Tune reads its own result files, which archray does not write.
TRIAL_FRAMES = PrivateName(
    "ray.tune.analysis.experiment_analysis", "ExperimentAnalysis._fetch_trial_dataframes", "read the results of trials"
)
# Tune's ids have eight hexadecimal digits. Among 10,000 trials two are equal in one of 86 runs.
TRIAL_ID = PrivateName("ray.tune.experiment.trial", "Trial.generate_id", "draw the ids of trials", needed=False)
# The error of a trial as an object; Tune pickles only some types.
TRIAL_ERROR = PrivateName("ray.tune.experiment.trial", "Trial.handle_error", "receive the error of a trial")
# Tune ends the whole run if Ray kills an actor for lack of memory. There is no check for calls: few runs need it.
TASK_ERROR = PrivateName(
    "ray.air.execution._internal.actor_manager",
    "RayActorManager._actor_task_failed",
    "receive the error of an actor",
    needed=False,
)
# Tune keeps one idle actor, and may give a trial to an actor whose node has died.
ACTOR_CACHE = PrivateName(_CONTROLLER, "_ObjectCache", "keep idle actors", needed=False)
REUSED_ACTOR = PrivateName(
    _CONTROLLER, "TuneController._maybe_reuse_cached_actor", "give a trial to an idle actor", needed=False
)
# Without a running trial, Tune waits for a suggestion and handles no events, such as the end of idle actors.
QUEUE_UPDATE = PrivateName(_CONTROLLER, "TuneController._update_trial_queue", "ask the searcher", needed=False)
# Memory of ended trials.
DEFAULT_RESULT = PrivateName(
    "ray.tune.experiment.trial", "Trial._default_result_or_future", "keep data of an actor", needed=False
)
CHECKPOINT_CONFIG = PrivateName(
    "ray.train._internal.checkpoint_manager",
    "_CheckpointManager._checkpoint_config",
    "keep the settings of checkpoints",
    needed=False,
)
LOG_LINES = PrivateName("ray.util.debug", "_logged", "record lines that it logs once", needed=False)


def missing_state(names: list[str]) -> str | None:
    """Returns the start of the name of a state file that is missing in a saved Tune run; None if it is complete."""
    generator = (
        (GRID_STATE,) if any(name.startswith(GRID_STATE) for name in names) else (GENERATOR_STATE, SEARCHER_STATE)
    )
    expected = (EXPERIMENT_STATE, *generator)
    return next((start for start in expected if not any(name.startswith(start) for name in names)), None)


def set_trial_frames(results: Any, frames: Mapping[str, Any]) -> None:
    """Sets the tables of a `ResultGrid`, by id of the trial; a result reads its table on access.

    Raises: IncompatibleRay if the grid does not use them.
    """
    from ray import tune

    class FramedResult(tune.Result):
        @property
        def metrics_dataframe(self) -> Any:  # type: ignore[override]
            return frames.get(self.trial_id)  # type: ignore[attr-defined]

    with TRIAL_FRAMES.attributes():
        analysis = results._experiment_analysis
        analysis._trial_dataframes = frames
        if analysis.trial_dataframes is not frames:
            TRIAL_FRAMES.changed("other tables")
        for result, trial in zip(results._results, analysis.trials, strict=True):
            del result.metrics_dataframe
            result.__class__, result.trial_id = FramedResult, trial.trial_id


def tune_config_of(tuner: bytes) -> Any:
    """Returns the caller's `TuneConfig` from the content of TUNER_FILE. Raises: IncompatibleRay."""
    from ray import cloudpickle

    content = cloudpickle.loads(tuner)
    if TUNE_CONFIG not in content:
        problem = f"Expected {TUNE_CONFIG} in {TUNER_FILE} of Ray Tune, got {', '.join(sorted(content))}"
        raise IncompatibleRay(tested_versions(problem))
    return content[TUNE_CONFIG]


def release_default_result(trial: Any) -> None:
    """Releases the data about the actor of a trial, a reference to an object of Ray, from before its first result."""
    if not hasattr(trial, DEFAULT_RESULT.attribute):
        DEFAULT_RESULT.changed("none")
    trial._default_result_or_future = None


def share_checkpoint_config(manager: Any, config: Any) -> None:
    """Replaces the settings of a checkpoint manager by the object `config` if they are equal."""
    if manager.checkpoint_config == config:
        manager._checkpoint_config = config
        if manager.checkpoint_config is not config:
            CHECKPOINT_CONFIG.changed("other settings")


def forget_log_lines(start: str) -> None:
    """Releases the record of lines that Tune logs once, if they start with `start`."""
    lines = LOG_LINES.find()
    if lines is not None:
        lines.difference_update([line for line in lines if line.startswith(start)])


def cached_actors(cache: Any) -> dict[Any, list[Any]]:
    """Returns the idle actors in Tune's cache by their resources."""
    with ACTOR_CACHE.attributes():
        return dict(cache._cached_objects)
    return {}  # type: ignore[unreachable]  # after a change of Ray


def idle_actors_of(controller: Any, kind: Any) -> list[tuple[Any, Any]] | None:
    """Returns the idle actors of a `TuneController`, as Tune and as Ray know them (None: it has ended).

    Args:
        kind: the resources of the actors.

    Returns: None after a change of Ray.
    """
    with REUSED_ACTOR.attributes():
        started = controller._actor_manager._live_actors_to_ray_actors_resources
        actors = cached_actors(controller._actor_cache).get(kind, [])
        return [(actor, started[actor][0] if actor in started else None) for actor in actors]
    return None  # type: ignore[unreachable]


def actor_cache(controller: Any) -> Any:
    """Returns the cache of idle actors of a `TuneController`."""
    return controller._actor_cache


def remove_actor(controller: Any, actor: Any) -> None:
    """Ends an actor that is no longer in the cache."""
    with REUSED_ACTOR.attributes():
        actor.set_on_stop(None)
        actor.set_on_error(None)
        controller._remove_actor(tracked_actor=actor)


def has_actor(controller: Any, trial: Any) -> bool:
    """Returns whether a trial has a reused actor, which it is about to receive."""
    with REUSED_ACTOR.attributes():
        return trial in controller._resetting_trials
    return False  # type: ignore[unreachable]


def has_actors(controller: Any) -> bool:
    """Returns whether a `TuneController` has actors, with or without a trial."""
    with QUEUE_UPDATE.attributes():
        return bool(controller._actor_manager.num_live_actors)
    return False  # type: ignore[unreachable]
