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
    """No cluster that can be joined answers at an address; the message says why, and what to do."""


def find_head(address: str) -> tuple[str, bool]:
    """The address of the head of a cluster, and whether it listens on 127.0.0.1 alone.

    It accepts the token of this machine, has the same version of Ray, and a node on this machine.

    address: `auto` or `host:port`. Raises: Unreachable, within seconds.
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
        endpoint = f"[{candidate}]:{port}" if ":" in candidate else f"{candidate}:{port}"
        _check_head(endpoint)
        return endpoint, candidate == LOOPBACK
    raise Unreachable(f"nothing answers there ({refused}); is the cluster up, and its port open?") from refused


def _check_head(address: str) -> None:
    """Raises: Unreachable unless the head of a cluster answers there, as `find_head` says."""
    if os.environ.get(AUTH_MODE) == "token" and not send_token():
        raise Unreachable(f"{AUTH_MODE}=token, and there is no token; {GET_TOKEN}")
    try:
        version = _head_version(address)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAUTHENTICATED:
            raise Unreachable(
                f"what answers there is not the head of a Ray cluster ({error.code().name}); give the port of its GCS "
                "server, 6379 unless it was started with another (8265 is the dashboard's, for archray submit)"
            ) from error
        if not send_token():
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
    with gcs_utils.create_gcs_channel(address) as channel:
        nodes = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        return nodes.CheckAlive(MESSAGES.CheckAliveRequest(), timeout=ANSWER_SECONDS).ray_version


def _node_ids(address: str) -> set[str]:
    with gcs_utils.create_gcs_channel(address) as channel:
        nodes = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(channel)
        answer = nodes.GetAllNodeInfo(MESSAGES.GetAllNodeInfoRequest(), timeout=ANSWER_SECONDS)
    alive = NODES.GcsNodeInfo.GcsNodeState.ALIVE
    return {node.node_id.hex() for node in answer.node_info_list if node.state == alive}


def token_source() -> str:
    """The source of Ray's token: the first of its three places that exists."""
    if os.environ.get(TOKEN):
        return TOKEN
    return f"{TOKEN_FILE}={os.environ[TOKEN_FILE]}" if os.environ.get(TOKEN_FILE) else "~/.ray/auth_token"


def send_token() -> bool:
    """Has Ray send the token of this machine, unless RAY_AUTH_MODE says not to; returns whether there is one.

    Raises: Unreachable if RAY_AUTH_TOKEN_PATH names no file with a token.
    """
    mode = os.environ.get(AUTH_MODE)
    if mode is not None and mode != "token":
        raise Unreachable(f"it asks for a token, and {AUTH_MODE}={mode} keeps Ray from sending one; leave that out")
    try:
        has_token = AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    except (ray.exceptions.AuthenticationError, RuntimeError) as error:
        raise Unreachable(f"{token_source()} is no file with a token; {GET_TOKEN}") from error
    if has_token and mode is None:
        os.environ[AUTH_MODE] = "token"
        Config.initialize("")  # it reads the variable again
    return has_token


PACKAGES = ("platform", "searchers", "trainables", "cluster")
IMPORT_SECONDS = 120.0  # limit for a worker that unpacks its environment and imports
# Ray's message for a missing raylet, which ends if one of its agents is not up within 15 s (upstream 65983).
LATE = "timed out during startup"
USAGE_REPORTS = "RAY_USAGE_STATS_ENABLED"  # Ray's reports to its makers: off unless the user turned them on


class ClusterError(ArchrayError):
    """Ray cannot be started or joined, or its workers lack a module; the message says which."""


@dataclass(frozen=True)
class Connection:
    """A running Ray. `started`: archray started it, and ends it. `joined`: its nodes must be checked."""

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

    Every worker can then import archray, and each file of `user_files` under the name of `worker_reference`. A Ray that
    is initialized already is used as it is, after a check that its workers can import the same modules.

    Args:
        user_files: single `.py` files; they travel in Ray's runtime environment, content-addressed.
        announce: called with each line for the user: addresses of the dashboard and the cluster.
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
        stack.callback(ray.shutdown)  # ends a local Ray; disconnects from a cluster
        copies = user_files or not local  # else a kill of this process leaves no files
        with tempfile.TemporaryDirectory(prefix="archray-") if copies else nullcontext("") as scratch:
            environment = runtime_environment(user_files, Path(scratch), local=local)
            try:
                with watched_start() if local else nullcontext():
                    context = _init(address, settings, environment | python, announce, name)
            except SystemExit as error:  # raised by Ray's own handler of SIGTERM, until `watched` sets ours
                received(signal.SIGTERM)
                raise KeyboardInterrupt from error
            except Exception as error:  # Ray often raises a plain one
                raise ClusterError(f"cannot {doing}: {error}") from error
        stack.enter_context(watched())
        gcs_address, url = ray.get_runtime_context().gcs_address, None
        if not local:
            check_modules(modules)
            announce(f"Joined the Ray cluster at {gcs_address}.")
        if context.dashboard_url:
            url = f"http://{context.dashboard_url}"
            token = " (token: ray get-auth-token)" if os.environ.get(AUTH_MODE) == "token" else ""
            announce(f"Ray dashboard: {url}{token}")
            if tunnel := ssh_tunnel(url):
                announce(f"From your own machine: {tunnel}")
        yield Connection(started=local, address=gcs_address, dashboard_url=url, joined=not local)


def ssh_tunnel(dashboard_url: str) -> str | None:
    """The command that forwards a dashboard to the client of this SSH session; None in another session."""
    connection = os.environ.get("SSH_CONNECTION", "").split()  # the client's address and port, the server's
    if len(connection) != 4:
        return None
    place = dashboard_url.partition("://")[2]
    port = place.rpartition(":")[2]
    option = "" if connection[3] == "22" else f" -p {connection[3]}"
    return f"ssh -L {port}:{place}{option} {getpass.getuser()}@{connection[2]}, then http://127.0.0.1:{port}"


def runtime_environment(user_files: Sequence[Path], scratch: Path, *, local: bool) -> dict[str, Any]:
    """Ray's runtime environment, from which workers import archray and the user's files.

    A local Ray shares this Python and its site-packages, with a checkout on its path. A cluster gets the package in the
    layout of a wheel, from a checkout and an installation alike: that changes neither the workers' current folder nor
    the `working_dir` of `ray job submit`.

    Args:
        scratch: an empty folder, for the copies to upload, until Ray is initialized.
    """
    package = Path(archray.__file__).resolve().parent
    checkout = not (package / "cluster").is_dir()  # in a checkout the packages are next to this one
    environment: dict[str, Any] = {}
    modules: list[str] = []
    if not local:
        shutil.copytree(package, scratch / "archray", ignore=shutil.ignore_patterns("__pycache__"))
        for name in PACKAGES if checkout else ():
            source, target = package.parent / name, scratch / "archray" / name
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
    """Raises: ClusterError if a worker of the initialized Ray cannot import one of `names`."""

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
    except ray.exceptions.RayError as error:
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
    """Calls `ray.init`, once more for a local Ray that was too slow; returns its context."""
    options: dict[str, Any] = {
        "runtime_env": runtime_env,
        "log_to_driver": settings.worker_output,
        "logging_level": logging.ERROR,
        "job_config": JobConfig(metadata={"job_name": name} if name else {}),
    }
    if address is not None:
        head, loopback = find_head(address)
        with loopback_only() if loopback else nullcontext():
            return ray.init(address=head, **options)
    start = partial(
        ray.init,
        address=LOCAL,  # None would join the cluster that was started last on this machine, perhaps another run's
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
