"""Starts and joins real Ray clusters in separate processes, and checks which modules workers can import."""

from __future__ import annotations

import os
import subprocess
import sys
from contextvars import Context
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from archray.cluster import CLUSTER_VARIABLE, PLAIN_RAY
from archray.cluster.connect import ClusterError, connect, runtime_environment, secure_token, ssh_tunnel
from archray.cluster.settings import ClusterSettings, check_address, forks_workers
from archray.cluster.warm_workers import warm_python
from archray.errors import InvalidInput
from archray.references import file_module_name, file_package, load_reference, worker_reference

TOKEN_VARIABLES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


@pytest.fixture
def user_file(tmp_path: Path) -> Path:
    return write_user_file(tmp_path / "code")


def write_user_file(folder: Path) -> Path:
    """Writes a file that imports a module of its folder; returns its path."""
    folder.mkdir()
    (folder / "values.py").write_text("seven = 7\n")
    path = folder / "own_thing.py"
    path.write_text("class Thing:\n    from values import seven as value\n")
    return path


# Before Ray starts


def test_ray_client_raises_an_error_with_the_command_to_use() -> None:
    with pytest.raises(InvalidInput, match="archray submit --address http://head:8265 -- search "):
        check_address(ClusterSettings(address="ray://head:10001"))


def test_the_address_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert check_address(ClusterSettings()) == "10.0.0.1:6379"
    assert not forks_workers(ClusterSettings())
    assert check_address(ClusterSettings(address="local", num_cpus=2)) is None
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(InvalidInput, match="Ray Client"):
        check_address(ClusterSettings())


def test_an_inner_block_uses_the_process_of_the_outer_block() -> None:
    def pythons() -> list[str]:
        with warm_python(["json"]) as outer, warm_python(["json"]) as inner:
            pass
        with warm_python(["json"]) as later:
            return [outer, inner, later]

    outer, inner, later = Context().run(pythons)  # without the block of the test session
    assert outer == inner != later


def test_sizes_of_a_running_cluster_raise_an_error() -> None:
    with pytest.raises(InvalidInput, match="Leave them out"):
        check_address(ClusterSettings(address="10.0.0.1:6379", num_cpus=2))
    with pytest.raises(ValidationError):
        ClusterSettings.model_validate({"adress": "auto"})


def test_a_cluster_receives_the_package_in_the_layout_of_a_wheel(user_file: Path, tmp_path: Path) -> None:
    environment = runtime_environment([user_file], tmp_path, local=False)
    package, copy = map(Path, environment["py_modules"])
    assert (package / "errors.py").is_file()
    assert (package / "cluster" / "connect.py").is_file()
    assert not (package / "platform" / "__init__.py").exists()
    assert copy.name == file_package(user_file)
    files = {str(file.relative_to(copy)) for file in copy.rglob("*.py")}
    assert files == {"__init__.py", "files/own_thing.py", "files/values.py"}


def test_references_to_files_become_modules(user_file: Path) -> None:
    reference = worker_reference(f"{user_file}:Thing")
    assert reference == f"{file_module_name(user_file)}:Thing"
    assert load_reference(f"{user_file}:Thing") is load_reference(reference)
    assert worker_reference("nasbench201") == "nasbench201"
    assert worker_reference("package.module:Thing") == "package.module:Thing"


def test_a_session_over_ssh_prints_how_to_reach_the_dashboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert ssh_tunnel("http://127.0.0.1:8265") is None
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setenv("SSH_CONNECTION", "198.51.100.7 50022 192.0.2.10 22")
    assert ssh_tunnel("http://127.0.0.1:8266") == (
        "ssh -L 8266:127.0.0.1:8266 ada@192.0.2.10, then open http://127.0.0.1:8266"
    )
    monkeypatch.setenv("SSH_CONNECTION", "198.51.100.7 50022 192.0.2.10 2222")
    assert "8265 -p 2222 ada@" in (ssh_tunnel("http://127.0.0.1:8265") or "")


# The file of Ray's token


def modes(folder: Path) -> tuple[int, int]:
    return folder.stat().st_mode & 0o777, (folder / "auth_token").stat().st_mode & 0o777


def secured(home: Path, monkeypatch: pytest.MonkeyPatch, *, create: bool = True, **token: str) -> list[str]:
    """Calls `secure_token` with another home folder; returns its lines."""
    lines: list[str] = []
    for name in TOKEN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": str(home), **token}.items():
        monkeypatch.setenv(name, value)
    secure_token(lines.append, create=create)
    return lines


def test_a_new_token_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert secured(tmp_path, monkeypatch) == []
    assert modes(tmp_path / ".ray") == (0o700, 0o600)
    token = (tmp_path / ".ray" / "auth_token").read_text()
    assert len(token) == 64
    assert secured(tmp_path, monkeypatch) == []
    assert (tmp_path / ".ray" / "auth_token").read_text() == token


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize(
    ("folder", "file", "after", "lines"),
    [
        (0o755, 0o600, (0o755, 0o600), 0),
        (0o755, 0o644, (0o755, 0o600), 1),
        (0o700, 0o660, (0o700, 0o600), 1),
        (0o777, 0o644, (0o700, 0o600), 2),  # another user could replace the file
    ],
)
def test_a_token_of_this_user_becomes_private(
    folder: int, file: int, after: tuple[int, int], lines: int, create: bool, tmp_path: Path, monkeypatch: Any
) -> None:
    place = tmp_path / ".ray"
    place.mkdir()
    (place / "auth_token").write_text("0123")
    (place / "auth_token").chmod(file)
    place.chmod(folder)
    printed = secured(tmp_path, monkeypatch, create=create)
    assert (modes(place), len(printed), (place / "auth_token").read_text()) == (after, lines, "0123")
    assert all(line.startswith(f"Changed the mode of {place}") for line in printed)


def test_a_token_of_a_joined_cluster_is_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its users may share a file in RAY_AUTH_TOKEN_PATH. A Ray of this machine must not use a file that others read."""
    shared = tmp_path / "shared"
    shared.write_text("0123")
    shared.chmod(0o640)
    for token in ({}, {"RAY_AUTH_TOKEN_PATH": str(shared)}):
        assert secured(tmp_path, monkeypatch, create=False, **token) == []
    assert shared.stat().st_mode & 0o777 == 0o640
    assert len(secured(tmp_path, monkeypatch, RAY_AUTH_TOKEN_PATH=str(shared))) == 1
    assert shared.stat().st_mode & 0o777 == 0o600
    for token in ({"RAY_AUTH_TOKEN": "0123"}, {"RAY_AUTH_MODE": "disabled"}):
        assert secured(tmp_path, monkeypatch, **token) == []
    assert not (tmp_path / ".ray").exists()


def test_a_token_that_cannot_be_private_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    error = r"must be in a file that only you can read, but .*: export RAY_AUTH_TOKEN=\$\(python -c "
    with pytest.raises(ClusterError, match=error):
        secured(tmp_path / "file", monkeypatch)
    if os.getuid() == 0:  # only root can give a file to another user
        (tmp_path / "home" / ".ray").mkdir(parents=True)
        (tmp_path / "home" / ".ray" / "auth_token").write_text("0123")
        os.chown(tmp_path / "home" / ".ray" / "auth_token", 65534, 65534)
        with pytest.raises(ClusterError, match=error):
            secured(tmp_path / "home", monkeypatch, create=False)


# A running Ray


@pytest.mark.usefixtures("ray_session")
def test_a_ray_of_the_user_is_used_and_left_running() -> None:
    import ray

    with connect() as connection:
        assert not connection.started
    assert ray.is_initialized()


@pytest.mark.usefixtures("ray_session")
def test_a_ray_of_the_user_whose_workers_lack_a_file_raises_an_error(user_file: Path) -> None:
    with (
        pytest.raises(ClusterError, match=f"cannot import {file_module_name(user_file)}"),
        connect(user_files=[user_file]),
    ):
        pass


# Ray started and joined in other processes

LOAD = """
import sys
from pathlib import Path
import archray.cluster  # before Ray, which reads its variables at import
import ray
from ray._private.services import psutil  # archray does not depend on psutil
from archray.cluster.settings import ClusterSettings
from archray.cluster.connect import connect
from archray.references import worker_reference

def load(reference):
    import os, platform
    import archray.searchers
    from archray.references import load_reference
    thing = load_reference(reference)
    return thing.value, archray.__file__, sys.modules[thing.__module__].__file__, os.getcwd(), platform.python_version()

@ray.remote
def forked():
    import os
    return "warm_workers.py" in Path(f"/proc/{os.getppid()}/cmdline").read_text()

FILE = Path(sys.argv[1])
REFERENCE = worker_reference(f"{FILE}:Thing")
"""

LOCAL = """
messages = []
settings = ClusterSettings(num_cpus=1, num_gpus=0, dashboard=False)
with connect(settings, user_files=[FILE], announce=messages.append) as mine:
    processes = psutil.Process().children(recursive=True)
    assert not [process for process in processes if process.cmdline()[0] == "ray::IDLE"], "trials cannot use them"
    FILE.unlink()  # the workers have their own copy
    value, package, file, folder, version = ray.get(ray.remote(load).remote(REFERENCE))
    assert mine.started and value == 7, (mine, value)
    assert ray.get(forked.remote())
    assert not messages, messages
    print(mine.address, flush=True)
    sys.stdin.readline()
assert not ray.is_initialized()
"""

DASHBOARD = """
import urllib.request
messages = []
with connect(ClusterSettings(num_cpus=1, num_gpus=0, warm_workers=False), announce=messages.append) as mine:
    assert not ray.get(forked.remote())
    assert mine.dashboard_url.startswith("http://127.0.0.1:"), mine
    assert mine.dashboard_url in messages[0], messages
    with urllib.request.urlopen(mine.dashboard_url) as page:
        assert page.status == 200
"""

JOINED = """
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args=dict(num_cpus=1, num_gpus=0, include_dashboard=False))
messages = []
for _ in range(2):
    with connect(ClusterSettings(address=cluster.address), user_files=[FILE], announce=messages.append) as joined:
        value, package, file, folder, version = ray.get(ray.remote(load).remote(REFERENCE))
        assert not joined.started and value == 7
        assert "py_modules_files" in package and "py_modules_files" in file, (package, file)
    assert not ray.is_initialized()
assert messages[::2] == [f"Joined the Ray cluster at {cluster.address}."] * 2, messages
assert all(line.startswith("Warning: this cluster requires no token") for line in messages[1::2]), messages
cluster.shutdown()
"""

UNREACHABLE = """
from archray.cluster.connect import ClusterError
for address, reason in {"127.0.0.1:1": "no answer", "head": "expected auto, local or ip:port"}.items():
    try:
        with connect(ClusterSettings(address=address)):
            raise AssertionError(address)
    except ClusterError as error:
        assert str(error).startswith(f"cannot join the Ray cluster at {address}: {reason}"), error
"""

# Makes some starts of Ray too slow: its raylet gives the agent 15 s.
SLOW_AGENT = """
import sys, time
from pathlib import Path
if any(argument.endswith("dashboard/agent.py") for argument in sys.orig_argv):
    starts = Path(__file__).with_name("starts")
    starts.mkdir(exist_ok=True)
    (starts / str(time.time_ns())).touch()
    if len(list(starts.iterdir())) <= {slow}:
        time.sleep(30)
"""

SLOW_AGENT_TWICE = """
from archray.cluster.connect import ClusterError
messages = []
try:
    with connect(ClusterSettings(num_cpus=1, num_gpus=0, dashboard=False), announce=messages.append):
        print("up", ray.get(ray.remote(lambda: 1).remote()))
except ClusterError as error:
    print(error)
assert len(messages) == 1 and "Starting it once more" in messages[0], messages
"""


def start(program: str, user_file: Path, *, plain: bool = False) -> subprocess.Popen[str]:
    """Runs a program in a folder outside the repository, which is also its home folder: Ray's token is there."""
    folder = user_file.parent.parent
    removed = (*TOKEN_VARIABLES, "RAY_ADDRESS", CLUSTER_VARIABLE, PLAIN_RAY)
    inherited = {name: value for name, value in os.environ.items() if name not in removed}
    return subprocess.Popen(
        [sys.executable, "-c", LOAD + program, str(user_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        env={**inherited, "HOME": str(folder), **({PLAIN_RAY: "1"} if plain else {})},
        text=True,
    )


@pytest.mark.slow
@pytest.mark.ci
def test_two_runs_on_one_machine_have_separate_rays(user_file: Path, tmp_path: Path) -> None:
    second_file = write_user_file(tmp_path / "second")
    first, second = start(LOCAL, user_file), start(LOCAL, second_file)
    addresses = {first.stdout.readline(), second.stdout.readline()}
    assert len(addresses - {""}) == 2
    assert modes(tmp_path / ".ray") == (0o700, 0o600), "no other user can read the token, which both have created"
    assert [file.name for file in (tmp_path / ".ray").iterdir()] == ["auth_token"]
    first.communicate("\n")
    assert first.returncode == 0
    assert second.poll() is None  # the end of one does not affect the other
    second.communicate("\n")
    assert second.returncode == 0


@pytest.mark.parametrize(
    ("program", "plain"),
    [
        pytest.param(DASHBOARD, False, id="dashboard", marks=pytest.mark.slow),
        pytest.param(DASHBOARD, True, id="dashboard-plain", marks=pytest.mark.slow),
        pytest.param(JOINED, False, id="joined", marks=[pytest.mark.slow, pytest.mark.ci]),
        pytest.param(JOINED, True, id="joined-plain", marks=[pytest.mark.slow, pytest.mark.ci]),
        pytest.param(UNREACHABLE, False, id="nobody"),
        pytest.param(UNREACHABLE, True, id="nobody-plain"),
    ],
)
def test_programs_that_connect(program: str, plain: bool, user_file: Path) -> None:
    process = start(program, user_file, plain=plain)
    process.communicate()
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(("slow", "outcome"), [(1, "up 1"), (2, "cannot start Ray on this machine: The current node")])
def test_a_slow_ray_is_started_a_second_time(
    slow: int, outcome: str, user_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(SLOW_AGENT.format(slow=slow))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start(SLOW_AGENT_TWICE, user_file)
    printed, _ = process.communicate()
    assert process.returncode == 0
    assert printed.startswith(outcome)
