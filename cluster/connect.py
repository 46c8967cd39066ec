"""Start or join Ray, with archray and the user's files importable in every worker."""

import getpass
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.job_config import JobConfig

import archray
from archray.cluster.loopback import LOOPBACK, checked_loopback, loopback_only
from archray.cluster.ray_compat import (
    RejectedCall,
    has_node_here,
    head_of_this_machine,
    head_version,
    read_settings_again,
    requires_token,
    starts_ray,
    warn_of_new_ray,
)
from archray.cluster.ray_watch import hidden_raylet_death, interruptible, own_raylets, received, watched, watched_start
from archray.cluster.settings import LOCAL, ClusterSettings, check_address, forks_workers
from archray.cluster.warm_workers import warm_python
from archray.errors import ArchrayError
from archray.file_modules import worker_package
from archray.files import create_secret
from archray.references import file_module_name, file_package

# Head of a cluster: checked in seconds, while Ray itself tries for 20 s to ten minutes

AUTO = "auto"  # Ray's value for "the cluster that runs on this machine"
ANSWER_SECONDS = 5.0  # limit for a connection, and for an answer over it
AUTH_MODE = "RAY_AUTH_MODE"
TOKEN, TOKEN_FILE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
GET_TOKEN = (
    "Run 'ray get-auth-token' on the head, and set RAY_AUTH_TOKEN to its output, or RAY_AUTH_TOKEN_PATH to a file with "
    "the token"
)
DEFAULT_TOKEN_FILE = "~/.ray/auth_token"
# Ray's own error may take minutes and does not name the reason.
UNEXAMINED = (
    "archray did not examine the head, since it does not use private names of Ray. Check that the address is that of "
    "the GCS server (default port: 6379) of a running cluster with the same version of Ray, and that this machine is a "
    f"node of it. If the cluster requires a token, set RAY_AUTH_MODE=token before Python starts. {GET_TOKEN}"
)
NEW_TOKEN = "export RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')"


class Unreachable(Exception):
    """No cluster at an address can be joined. The message contains the reason and the remedy."""


class Head(NamedTuple):
    """The head of a cluster.

    Attributes:
        address: `host:port`; `auto` if only Ray can find it.
        loopback: whether it listens only on 127.0.0.1.
        examined: whether archray has examined it, for which it needs private names of Ray.
    """

    address: str
    loopback: bool
    examined: bool


def find_head(address: str) -> Head:
    """Finds the head of a cluster.

    The head must accept the token of this machine, run the same version of Ray, and have a node on this machine.

    Args:
        address: `auto` or `host:port`.

    Raises: Unreachable, within seconds.
    """
    if address == AUTO:
        try:
            address = head_of_this_machine() or AUTO
        except ConnectionError as error:
            raise Unreachable("no Ray runs on this machine. Run archray on a node of the cluster.") from error
        if address == AUTO:
            return Head(AUTO, loopback=False, examined=False)
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise Unreachable("expected auto, local or ip:port")
    host = host.strip("[]")
    # Ray treats loopback as the address of this machine, where a head listens unless it listens only on loopback.
    hosts = [ray.util.get_node_ip_address(), LOOPBACK] if host in (LOOPBACK, "localhost") else [host]
    for candidate in hosts:
        try:
            socket.create_connection((candidate, int(port)), timeout=ANSWER_SECONDS).close()
        except OSError as error:
            refused = error
            continue
        endpoint = f"[{candidate}]:{port}" if ":" in candidate else f"{candidate}:{port}"
        return Head(endpoint, candidate == LOOPBACK, _check_head(endpoint))
    raise Unreachable(
        f"no answer ({refused}). Check that the cluster is running and that its port is open."
    ) from refused


def _check_head(address: str) -> bool:
    """Returns whether archray can examine the head at `address`.

    Raises: Unreachable unless the head of a cluster answers, under the conditions of `find_head`.
    """
    if os.environ.get(AUTH_MODE) == "token" and not send_token():
        raise Unreachable(f"{AUTH_MODE}=token is set, but no token was found. {GET_TOKEN}.")
    try:
        version = head_version(address, ANSWER_SECONDS)
    except RejectedCall as error:
        if str(error) != "UNAUTHENTICATED":
            raise Unreachable(
                f"the server at this address is not the head of a Ray cluster ({error}). Give the port of "
                "its GCS server (default: 6379). The port of the dashboard (default: 8265) is for archray submit."
            ) from error
        if not send_token():
            raise Unreachable(f"the cluster requires a token, but none was given. {GET_TOKEN}.") from error
        try:
            version = head_version(address, ANSWER_SECONDS)
        except RejectedCall:
            raise Unreachable(f"the cluster rejects the token in {token_source()}. {GET_TOKEN}.") from error
    if version not in (ray.__version__, None):
        raise Unreachable(
            f"the cluster runs Ray {version}, this machine Ray {ray.__version__}. Install the same version."
        )
    deadline = time.monotonic() + ANSWER_SECONDS  # a new raylet may not be registered yet
    while has_node_here(address, ANSWER_SECONDS) is False:
        if time.monotonic() > deadline:
            raise Unreachable(
                "this machine is not a node of the cluster, and a search must run on a node. Send the command to the "
                f"cluster: archray submit --address http://{address.rpartition(':')[0]}:8265 -- ..."
            )
        time.sleep(0.5)
    return version is not None


def token_source() -> str:
    """Returns the source of Ray's token: the first of its three places that exists."""
    if os.environ.get(TOKEN):
        return TOKEN
    return f"{TOKEN_FILE}={os.environ[TOKEN_FILE]}" if os.environ.get(TOKEN_FILE) else DEFAULT_TOKEN_FILE


def send_token() -> str | None:
    """Makes Ray send the token of this machine; returns it, or None without a token.

    Raises: Unreachable if RAY_AUTH_MODE disables tokens, or if the file of the token is unusable.
    """
    mode = os.environ.get(AUTH_MODE)
    if mode is not None and mode != "token":
        raise Unreachable(
            f"the cluster requires a token, but {AUTH_MODE}={mode} prevents Ray from sending one. Unset {AUTH_MODE}."
        )
    token, named = os.environ.get(TOKEN), os.environ.get(TOKEN_FILE)
    file = Path(named or os.path.expanduser(DEFAULT_TOKEN_FILE))
    if not token and (named or file.exists()):
        try:
            token = file.read_text()
        except (OSError, ValueError) as error:
            raise Unreachable(f"{token_source()} is not a file with a token. {GET_TOKEN}.") from error
    token = (token or "").strip() or None
    if token and mode is None:
        os.environ[AUTH_MODE] = "token"
        read_settings_again()
    return token


def secure_token(announce: Callable[[str], None], *, create: bool) -> None:
    """Ensures that no other user of this machine can read Ray's token, with which they could run code as this user.

    Ray itself creates the file of the token with the mode 0644.

    Args:
        announce: called with a line for the user if a mode changes.
        create: whether Ray is about to start on this machine: creates the token unless it exists. If not, a file in
            RAY_AUTH_TOKEN_PATH stays as it is: the users of a cluster may share it.

    Raises: ClusterError with the command to run if another user can read or replace the token.
    """
    mode, named = os.environ.get(AUTH_MODE, "token"), os.environ.get(TOKEN_FILE)
    if os.environ.get(TOKEN) or mode.lower() != "token" or (named and not create):
        return
    file = Path(named or os.path.expanduser(DEFAULT_TOKEN_FILE))
    try:
        if create and not named:
            create_secret(file, secrets.token_hex(32).encode())
        if not named and file.exists():
            _make_private(file.parent, 0o700, 0o022, announce)
        if file.exists():
            _make_private(file, 0o600, 0o077, announce)
    except OSError as error:
        advice = f"Use a token that is not in a file: {NEW_TOKEN}"
        raise ClusterError(f"Ray's token must be in a file that only you can read, but {error}. {advice}") from error


def _make_private(path: Path, mode: int, others: int, announce: Callable[[str], None]) -> None:
    """Sets the mode of a file or folder of this user if it has a bit of `others`. Raises: PermissionError."""
    before = path.stat()
    if before.st_mode & others and before.st_uid == os.getuid():
        path.chmod(mode)
        announce(
            f"Changed the mode of {path} from {before.st_mode & 0o777:04o} to {mode:04o}: with Ray's token, other "
            "users could run code as you."
        )
    after = path.stat()  # some file systems ignore modes
    if after.st_mode & others or after.st_uid != os.getuid():
        raise PermissionError(f"{path} has the mode {after.st_mode & 0o777:04o} and the owner {after.st_uid}")


PACKAGES = ("platform", "searchers", "trainables", "cluster")
IMPORT_SECONDS = 120.0  # limit for a worker that unpacks its environment and imports
# Ray's message for a missing raylet, which ends if one of its agents does not start within 15 s (upstream 65983).
LATE = "timed out during startup"
JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # the configuration of the Ray job in which this process runs
# Without it, Ray rejects a driver in a job if both have modules.
COMBINE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"
USAGE_REPORTS = "RAY_USAGE_STATS_ENABLED"  # Ray's usage reports: off unless the user turned them on
# Ray's workers that start with the first driver, one per CPU. They have no runtime environment, so trials cannot use
# them.
EARLY_WORKERS = "RAY_prestart_worker_first_driver"


class ClusterError(ArchrayError):
    """Ray cannot be started or joined, or its workers lack a module. The message contains the reason."""


@dataclass(frozen=True)
class Connection:
    """A connection to a running Ray.

    Attributes:
        started: whether archray started this Ray, and shuts it down.
        address: address of its head.
        dashboard_url: URL of its dashboard; None without one.
        joined: whether archray joined a cluster, whose nodes must be checked.
    """

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
    """Starts or joins Ray for the duration of a `with` block; it shuts down a Ray that it started.

    Every worker can import archray, and each file of `user_files` under the name of `worker_reference`. If Ray is
    already initialized, `connect` uses it after checking that its workers can import the same modules.

    Args:
        settings: the cluster to start or join; None: the defaults of `ClusterSettings`.
        user_files: `.py` files; Ray's runtime environment distributes them, by content, with the modules of their
            folders that they import.
        announce: called with each line for the user: addresses of the dashboard and the cluster.
        name: name of this driver in the list of jobs of Ray's dashboard.

    Raises: InvalidInput as `check_address`; ClusterError if Ray does not start or a worker lacks a module;
    KeyboardInterrupt when Ray is lost, see `ray_watch`.

    Example:
        ```python
        with connect(ClusterSettings(num_cpus=2)) as connection:
            print(connection.address)
        ```
    """
    settings = settings or ClusterSettings()
    warn_of_new_ray()
    by_module = {file_module_name(file): file for file in user_files}
    modules, user_files = ["archray.cluster", *by_module], list(by_module.values())
    if ray.is_initialized():
        check_modules(modules)
        secure_token(announce, create=False)  # Ray created it if the user called `ray.init`
        several = sum(node["Alive"] for node in ray.nodes()) > 1
        with watched():
            yield Connection(False, ray.get_runtime_context().gcs_address, None, joined=several)
        return
    address = check_address(settings)
    doing = "start Ray on this machine" if address is None else f"join the Ray cluster at {address}"
    os.environ.setdefault(USAGE_REPORTS, "0")
    with interruptible(), hidden_raylet_death(), ExitStack() as stack:
        local = address is None
        python = {"py_executable": stack.enter_context(warm_python())} if forks_workers(settings) else {}
        stack.callback(ray.shutdown)  # stops a local Ray; disconnects from a cluster
        copies = user_files or not local  # without copies, a killed process leaves no files behind
        with tempfile.TemporaryDirectory(prefix="archray-") if copies else nullcontext("") as scratch:
            environment = runtime_environment(user_files, Path(scratch), local=local)
            if job_config() is not None:
                os.environ[COMBINE] = "1"
            try:
                with watched_start() if local else nullcontext():
                    context = _init(address, settings, environment | python, announce, name)
            except SystemExit as error:  # Ray's own handler of SIGTERM raises it, until `watched` sets archray's
                received(signal.SIGTERM)
                raise KeyboardInterrupt from error
            except Exception as error:  # Ray often raises a plain Exception
                raise ClusterError(f"cannot {doing}: {error}") from error
        stack.enter_context(watched())
        gcs_address, url = ray.get_runtime_context().gcs_address, None
        if not local:
            check_modules(modules)
            _announce_joined(announce)
        if context.dashboard_url:
            url = f"http://{context.dashboard_url}"
            token = " (token: ray get-auth-token)" if os.environ.get(AUTH_MODE) == "token" else ""
            announce(f"Ray dashboard: {url}{token}")
            if tunnel := ssh_tunnel(url):
                announce(f"To open it on your machine: {tunnel}")
        yield Connection(started=local, address=gcs_address, dashboard_url=url, joined=not local)


def start_or_join(announce: Callable[[str], None] = print) -> None:
    """Initializes Ray as Ray Tune does, unless it is initialized: joins the cluster of this machine, or starts a Ray.

    Args:
        announce: called with each line for the user: the address of a cluster that this process has joined.

    Raises: ClusterError as `secure_token`.
    """
    warn_of_new_ray()
    if ray.is_initialized():
        secure_token(announce, create=False)
    else:
        secure_token(announce, create=starts_ray())
        ray.init()
    gcs_address = ray.get_runtime_context().gcs_address
    if not own_raylets() or os.environ.get("RAY_ADDRESS") == gcs_address:
        _announce_joined(announce)


def _announce_joined(announce: Callable[[str], None]) -> None:
    """Announces the address of the cluster that this process has joined, and warns if it requires no token."""
    address = ray.get_runtime_context().gcs_address
    announce(f"Joined the Ray cluster at {address}.")
    required = requires_token(address, ANSWER_SECONDS)
    if required is False or (required is None and os.environ.get(AUTH_MODE, "").lower() != "token"):  # no token sent
        announce(
            "Warning: this cluster requires no token, so everyone who reaches its ports can run code as its user. "
            f"Start it with {AUTH_MODE}=token, see 'Ports and tokens' in docs/cluster.md."
        )


def ssh_tunnel(dashboard_url: str) -> str | None:
    """Returns the command that forwards a dashboard to the client of this SSH session; None without SSH."""
    connection = os.environ.get("SSH_CONNECTION", "").split()  # the client's address and port, the server's
    if len(connection) != 4:
        return None
    place = dashboard_url.partition("://")[2]
    port = place.rpartition(":")[2]
    option = "" if connection[3] == "22" else f" -p {connection[3]}"
    return f"ssh -L {port}:{place}{option} {getpass.getuser()}@{connection[2]}, then open http://127.0.0.1:{port}"


def runtime_environment(user_files: Sequence[Path], scratch: Path, *, local: bool) -> dict[str, Any]:
    """Returns Ray's runtime environment, from which workers import archray and the user's files.

    A local Ray uses this Python and its site-packages, with a checkout on its path. A cluster receives the package in
    the layout of a wheel, from a checkout as well as from an installation, unless this process runs in a Ray job that
    already brings it. Modules of such a job stay importable. This changes neither the workers' current folder nor the
    `working_dir` of `ray job submit`.

    Args:
        user_files: `.py` files.
        scratch: an empty folder for the copies to upload; it must exist until Ray is initialized.
        local: whether archray starts this Ray on this machine.
    """
    package = Path(archray.__file__).resolve().parent
    checkout = not (package / "cluster").is_dir()  # in a checkout the packages are next to this one
    job = (job_config() or {}).get("runtime_env", {}).get("py_modules", [])
    environment: dict[str, Any] = {}
    modules: list[str] = []
    if not local and "py_modules_files" not in package.parts:  # Ray's folder for the modules of a job
        shutil.copytree(package, scratch / "archray", ignore=shutil.ignore_patterns("__pycache__"))
        for name in PACKAGES if checkout else ():
            source, target = package.parent / name, scratch / "archray" / name
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        modules.append(str(scratch / "archray"))
    elif checkout:
        path = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment["env_vars"] = {"PYTHONPATH": os.pathsep.join(path)}
    for file in user_files:
        package_of_file = scratch / file_package(file)
        for name, content in worker_package(file):
            (package_of_file / name).parent.mkdir(parents=True, exist_ok=True)
            (package_of_file / name).write_bytes(content)
        modules.append(str(package_of_file))
    if modules:
        environment["py_modules"] = [*modules, *job]
    return environment


def check_modules(names: Sequence[str]) -> None:
    """Raises: ClusterError if a worker of the initialized Ray cannot import one of `names`."""

    def failed_imports(names: Sequence[str]) -> list[str]:
        # Pickled by value: a function of this module could not be loaded where archray is missing.
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
        raise ClusterError(f"No worker of the Ray cluster answered: {error}") from error
    if failures:
        raise ClusterError(
            f"The workers of the Ray cluster cannot import {'; '.join(failures)}. Install the missing packages on "
            "every node. If you called ray.init yourself, let archray call it, or pass the modules in its runtime_env."
        )


def job_config() -> Mapping[str, Any] | None:
    """Returns the configuration of the Ray job in which this process runs; None outside of a job."""
    text = os.environ.get(JOB_VARIABLE)
    return None if text is None else json.loads(text)


def _init(
    address: str | None,
    settings: ClusterSettings,
    runtime_env: dict[str, Any],
    announce: Callable[[str], None],
    name: str | None,
) -> Any:
    """Calls `ray.init`, a second time if a local Ray started too slowly; returns its context."""
    options: dict[str, Any] = {
        "runtime_env": runtime_env,
        "log_to_driver": settings.worker_output,
        "logging_level": logging.ERROR,
        "job_config": JobConfig(metadata={"job_name": name} if name else {}),
    }
    secure_token(announce, create=address is None)
    if address is not None:
        head = find_head(address)
        with loopback_only() if head.loopback else nullcontext():
            try:
                return ray.init(address=head.address, **options)
            except Exception as error:
                if head.examined:
                    raise
                raise Unreachable(f"{error}. {UNEXAMINED}.") from error
    start = partial(
        ray.init,
        address=LOCAL,  # None would join the last cluster on this machine, which may be another run's
        num_cpus=settings.num_cpus,
        num_gpus=settings.num_gpus,
        include_dashboard=None if settings.dashboard else False,  # None: only if ray[default] is installed
        dashboard_host=LOOPBACK,
        **options,
    )
    if runtime_env:
        os.environ.setdefault(EARLY_WORKERS, "0")
    with checked_loopback(announce):
        try:
            return start()
        except Exception as error:
            if LATE not in str(error):
                raise
        announce("Ray did not start within 30 seconds. The machine may be busy. Starting it once more.")
        return start()
