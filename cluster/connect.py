"""Starting or joining Ray, with archray and the user's files importable in every worker."""

import getpass
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import ray
from ray._private import gcs_utils, services
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.core.generated import gcs_pb2, gcs_service_pb2, gcs_service_pb2_grpc
from ray.exceptions import AuthenticationError, RayError
from ray.job_config import JobConfig

import archray
from archray.cluster.loopback import LOOPBACK, checked_loopback, loopback_only
from archray.cluster.ray_watch import hidden_raylet_death, interruptible, received, watched, watched_start
from archray.cluster.settings import LOCAL, ClusterSettings, check_address
from archray.cluster.warm_workers import warm_python
from archray.errors import ArchrayError
from archray.references import file_module_name

# Head of a cluster: checked in seconds, where Ray itself tries for 20 s to ten minutes

MESSAGES: Any = gcs_service_pb2  # their classes are made as they load: mypy finds none
NODES: Any = gcs_pb2
AUTO = "auto"  # Ray's word for "the cluster that runs on this machine"
ANSWER_SECONDS = 5.0  # for a connection to be accepted, and for an answer over it
AUTH_MODE = "RAY_AUTH_MODE"
TOKEN, TOKEN_FILE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
GET_TOKEN = (
    "'ray get-auth-token' on the head prints it; give it as RAY_AUTH_TOKEN, or the file with it as RAY_AUTH_TOKEN_PATH"
)


class Unreachable(Exception):
    """Nothing that can be joined answers at an address; the message says what is there, and what to do."""


@dataclass(frozen=True)
class Head:
    """Where a cluster is joined. `loopback`: its head listens on 127.0.0.1 alone."""

    address: str
    loopback: bool


def find_head(address: str) -> Head:
    """The head of a cluster that can be joined: it takes our token, has our version of Ray, and a node on this machine.

    Args:
        address: `auto` or `host:port`.

    Raises: Unreachable, within seconds.
    """
    if address == AUTO:
        try:
            address = services.get_ray_address_from_environment(AUTO, None)
        except ConnectionError as error:
            raise Unreachable("no Ray runs on this machine; is it a node of the cluster?") from error
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise Unreachable("expected auto, local or ip:port")
    host = host.strip("[]")
    # Ray takes loopback for the address of this machine, on which a head listens unless it is on loopback alone.
    hosts = [ray.util.get_node_ip_address(), LOOPBACK] if host in (LOOPBACK, "localhost") else [host]
    for candidate in hosts:
        try:
            socket.create_connection((candidate, int(port)), timeout=ANSWER_SECONDS).close()
        except OSError as error:
            refused = error
            continue
        head = Head(f"[{candidate}]:{port}" if ":" in candidate else f"{candidate}:{port}", candidate == LOOPBACK)
        _check_head(head.address)
        return head
    raise Unreachable(f"nothing answers there ({refused}); is the cluster up, and its port open?") from refused


def _check_head(address: str) -> None:
    """Raises: Unreachable unless the head of a cluster of this Ray answers there, takes our token, and has us."""
    if os.environ.get(AUTH_MODE) == "token" and not send_given_token():
        raise Unreachable(f"{AUTH_MODE}=token, and there is no token; {GET_TOKEN}")
    try:
        version = _head_version(address)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAUTHENTICATED:
            raise Unreachable(
                f"what answers there is not the head of a Ray cluster ({error.code().name}); give the port of its GCS "
                "server, 6379 unless it was started with another (8265 is the dashboard's, for archray submit)"
            ) from error
        if not send_given_token():
            raise Unreachable(f"it asks for a token, and none was given; {GET_TOKEN}") from error
        try:
            version = _head_version(address)
        except grpc.RpcError:
            raise Unreachable(f"it does not take the token in {token_source()}; {GET_TOKEN}") from error
    if version != ray.__version__:
        raise Unreachable(f"it runs Ray {version}, and this is Ray {ray.__version__}; install the same version")
    deadline = time.monotonic() + ANSWER_SECONDS  # a raylet that has just been started is not known yet
    while not services.find_node_ids() & _node_ids(address):
        if time.monotonic() > deadline:
            raise Unreachable(
                "this machine is no node of it, and a search runs on one; send the command there: "
                f"archray submit --address http://{address.rpartition(':')[0]}:8265 -- ..."
            )
        time.sleep(0.5)


def _head_version(address: str) -> str:
    """The version of Ray of a head. Raises: grpc.RpcError."""
    with gcs_utils.create_gcs_channel(address) as channel:
        nodes = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        return nodes.CheckAlive(MESSAGES.CheckAliveRequest(), timeout=ANSWER_SECONDS).ray_version


def _node_ids(address: str) -> set[str]:
    """The nodes of a cluster that are alive. Raises: grpc.RpcError."""
    with gcs_utils.create_gcs_channel(address) as channel:
        nodes = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        answer = nodes.GetAllNodeInfo(MESSAGES.GetAllNodeInfoRequest(), timeout=ANSWER_SECONDS)
    alive = NODES.GcsNodeInfo.GcsNodeState.ALIVE
    return {node.node_id.hex() for node in answer.node_info_list if node.state == alive}


def token_source() -> str:
    """Where Ray takes its token from: the first of its three places that is there."""
    if os.environ.get(TOKEN):
        return TOKEN
    if os.environ.get(TOKEN_FILE):
        return f"{TOKEN_FILE}={os.environ[TOKEN_FILE]}"
    return "~/.ray/auth_token"


def send_given_token() -> bool:
    """Has Ray send the token that there is on this machine, unless RAY_AUTH_MODE says not to; whether there is one.

    Raises: Unreachable if RAY_AUTH_TOKEN_PATH names no file with a token.
    """
    mode = os.environ.get(AUTH_MODE)
    if mode is not None and mode != "token":
        raise Unreachable(f"it asks for a token, and {AUTH_MODE}={mode} keeps Ray from sending one; leave that out")
    try:
        has_token = AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    except (AuthenticationError, RuntimeError) as error:
        raise Unreachable(f"{token_source()} is no file with a token; {GET_TOKEN}") from error
    if has_token and mode is None:
        os.environ[AUTH_MODE] = "token"
        Config.initialize("")  # which has the variable read again
    return has_token


ROOMS = ("platform", "searchers", "trainables", "cluster")
IMPORT_SECONDS = 120.0  # a worker that unpacks its environment and imports; far more than it takes
# What Ray says when its raylet is not there: it ends if an agent of its own is not up within 15 s (upstream 65983).
LATE = "timed out during startup"
USAGE_REPORTS = "RAY_USAGE_STATS_ENABLED"  # Ray's reports to its makers: off unless the user turned them on


class ClusterError(ArchrayError):
    """Ray cannot be started or joined, or its workers lack a module; the message says which."""


@dataclass(frozen=True)
class Connection:
    """A Ray that is up. `started`: it is ours, and ends with the connection. `joined`: its nodes are to be checked."""

    started: bool
    address: str
    dashboard_url: str | None
    joined: bool = False


@contextmanager
def connect(
    settings: ClusterSettings | None = None,
    user_files: Sequence[Path] = (),
    announce: Callable[[str], None] = print,
    name: str | None = None,
) -> Iterator[Connection]:
    """Starts or joins Ray for the length of a `with`; shuts down only what it started, leaves what it joined.

    Every worker can then import archray, and each file of `user_files` under the name that
    `archray.references.load_reference` gives it (see `worker_reference`). A Ray that is initialised already is used
    as it is, after a check that its workers can do the same.

    Args:
        user_files: single `.py` files; they travel in Ray's runtime environment, content-addressed.
        announce: called with each line for the user: the dashboard's address, what was joined.
        name: of this driver among the jobs of Ray's dashboard.

    Raises: InvalidInput as `check_address`; ClusterError if Ray does not come up or a worker lacks a module;
    KeyboardInterrupt when Ray is lost, see `ray_watch`.
    """
    settings = settings or ClusterSettings()
    by_module = {file_module_name(file): file for file in user_files}
    modules, user_files = ["archray.cluster", *by_module], list(by_module.values())
    if ray.is_initialized():
        check_modules(modules)
        several = sum(node["Alive"] for node in ray.nodes()) > 1
        with watched():
            yield Connection(False, ray.get_runtime_context().gcs_address, None, joined=several)
        return
    address = check_address(settings)
    doing = "start Ray on this machine" if address is None else f"join the Ray cluster at {address}"
    os.environ.setdefault(USAGE_REPORTS, "0")
    with interruptible(), hidden_raylet_death(), ExitStack() as stack:
        local = address is None
        warm = local and settings.warm_workers and sys.platform == "linux"
        python = {"py_executable": stack.enter_context(warm_python())} if warm else {}
        stack.callback(ray.shutdown)  # ends a Ray of ours; from a cluster it only disconnects
        copies = user_files or not local  # else this process may be killed here and leave nothing
        with tempfile.TemporaryDirectory(prefix="archray-") if copies else nullcontext("") as scratch:
            environment = runtime_environment(user_files, Path(scratch), local=local)
            try:
                with watched_start() if local else nullcontext():
                    context = _init(address, settings, environment | python, announce, name)
            except SystemExit as error:  # raised by Ray's own handler of SIGTERM, until `watched` sets ours
                received(signal.SIGTERM)
                raise KeyboardInterrupt from error
            except Exception as error:  # what Ray could not do it often says in a plain one
                raise ClusterError(f"cannot {doing}: {error}") from error
        stack.enter_context(watched())
        if address is not None:
            check_modules(modules)
        connection = Connection(
            started=address is None,
            address=ray.get_runtime_context().gcs_address,
            dashboard_url=f"http://{context.dashboard_url}" if context.dashboard_url else None,
            joined=address is not None,
        )
        if address is not None:
            announce(f"Joined the Ray cluster at {connection.address}.")
        if connection.dashboard_url:
            token = " (token: ray get-auth-token)" if os.environ.get("RAY_AUTH_MODE") == "token" else ""
            announce(f"Ray dashboard: {connection.dashboard_url}{token}")
            if tunnel := ssh_tunnel(connection.dashboard_url):
                announce(f"From your own machine: {tunnel}")
        yield connection


def ssh_tunnel(dashboard_url: str) -> str | None:
    """The command that brings a dashboard to the machine that this session came from by SSH; None if it did not."""
    ours = os.environ.get("SSH_CONNECTION", "").split()  # its address and port, ours and our port
    if len(ours) != 4:
        return None
    place = dashboard_url.partition("://")[2]
    port = place.rpartition(":")[2]
    elsewhere = "" if ours[3] == "22" else f" -p {ours[3]}"
    return f"ssh -L {port}:{place}{elsewhere} {getpass.getuser()}@{ours[2]}, then http://127.0.0.1:{port}"


def runtime_environment(user_files: Sequence[Path], scratch: Path, *, local: bool) -> dict[str, Any]:
    """What workers need to import archray and the user's files.

    A local Ray shares this Python and its site-packages; a checkout that is not installed is put on its path. A
    cluster gets the package in the layout of a wheel, from a checkout and an installation alike: that leaves the
    workers' current folder and the `working_dir` of `ray job submit` alone.

    Args:
        scratch: an empty folder that lives until Ray is initialised; copies to be uploaded are put there.
    """
    package = Path(archray.__file__).resolve().parent
    checkout = not (package / "cluster").is_dir()  # there the rooms lie beside the package
    environment: dict[str, Any] = {}
    modules: list[str] = []
    if not local:
        shutil.copytree(package, scratch / "archray", ignore=shutil.ignore_patterns("__pycache__"))
        for room in ROOMS if checkout else ():
            source, target = package.parent / room, scratch / "archray" / room
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        modules.append(str(scratch / "archray"))
    elif checkout:
        path = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["env_vars"] = {"PYTHONPATH": os.pathsep.join(path)}
    for file in user_files:
        copy = scratch / f"{file_module_name(file)}.py"
        shutil.copyfile(file, copy)
        modules.append(str(copy))
    if modules:
        environment["py_modules"] = modules
    return environment


def check_modules(names: Sequence[str]) -> None:
    """Raises: ClusterError if a worker of the Ray that is initialised cannot import one of `names`."""

    def failed_imports(names: Sequence[str]) -> list[str]:
        # Pickled by value: a function of this module could not even be loaded where archray is missing.
        import importlib

        failures = []
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as error:
                failures.append(f"{name} ({type(error).__name__}: {error})")
        return failures

    try:
        failures = ray.get(ray.remote(num_cpus=0)(failed_imports).remote(list(names)), timeout=IMPORT_SECONDS)
    except RayError as error:
        raise ClusterError(f"no worker of the Ray cluster answered: {error}") from error
    if failures:
        raise ClusterError(
            f"the workers of the Ray cluster cannot import {'; '.join(failures)}. Install what is missing on every "
            "node; if you called ray.init yourself, let archray do it, or pass them in its runtime_env"
        )


def _init(
    address: str | None,
    settings: ClusterSettings,
    runtime_env: dict[str, Any],
    announce: Callable[[str], None],
    name: str | None,
) -> Any:
    """Calls `ray.init`, once more for a Ray of ours that was too slow; the context it returns."""
    options: dict[str, Any] = {
        "runtime_env": runtime_env,
        "log_to_driver": settings.worker_output,
        "logging_level": logging.ERROR,
        "job_config": JobConfig(metadata={"job_name": name} if name else {}),
    }
    if address is not None:
        head = find_head(address)
        with loopback_only() if head.loopback else nullcontext():
            return ray.init(address=head.address, **options)
    start = partial(
        ray.init,
        address=LOCAL,  # None would join whatever cluster was started last on this machine, another run's perhaps
        num_cpus=settings.num_cpus,
        num_gpus=settings.num_gpus,
        include_dashboard=None if settings.dashboard else False,  # None: where ray[default] is installed
        dashboard_host=LOOPBACK,
        _node_ip_address=LOOPBACK,
        **options,
    )
    with checked_loopback(announce):
        try:
            return start()
        except Exception as error:
            if LATE not in str(error):
                raise
        announce("Ray was not up within its 30 seconds: a busy machine, perhaps. Starting it once more.")
        return start()
