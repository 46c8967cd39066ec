"""The addresses on which all processes of a Ray listen while a task runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from archray.cluster import CLUSTER_VARIABLE, PLAIN_RAY, loopback

# Uses the psutil inside Ray because archray does not depend on psutil. Prints address, port and command of every
# listening socket.
SOCKETS = """
import sys
import archray.cluster
import ray
from ray._private.services import psutil

@ray.remote
class Signal:
    def __init__(self):
        self.sent = False
    def send(self):
        self.sent = True
    def is_sent(self):
        return self.sent

@ray.remote
def task(signal, started):
    import time
    ray.get(started.send.remote())
    while not ray.get(signal.is_sent.remote()):
        time.sleep(0.1)

def print_sockets():
    signal, started = Signal.options(num_cpus=0).remote(), Signal.options(num_cpus=0).remote()
    running = task.remote(signal, started)
    while not ray.get(started.is_sent.remote()):
        pass
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        try:
            connections = process.net_connections(kind="inet")
            command = "driver" if process == me else process.name()
        except psutil.NoSuchProcess:  # it has ended meanwhile
            continue
        for connection in connections:
            if connection.status == psutil.CONN_LISTEN:
                print(connection.laddr.ip, connection.laddr.port, command)
    ray.get(signal.send.remote())
    ray.get(running)
"""

STARTED = """
from archray.cluster.settings import ClusterSettings
from archray.cluster.connect import connect

with connect(ClusterSettings(num_cpus=1, num_gpus=0), announce=lambda line: None):
    print_sockets()
"""

# Runs a second search from another terminal while the first one runs.
JOINED = """
import subprocess
import sys
from archray.cluster.settings import ClusterSettings
from archray.cluster.connect import connect

JOIN = '''
import sys
import ray
from archray.cluster.settings import ClusterSettings
from archray.cluster.connect import connect

with connect(ClusterSettings(address=sys.argv[1])):
    print("joined", ray.get(ray.remote(num_cpus=0)(lambda: 7).remote()))
'''
with connect(ClusterSettings(num_cpus=1, num_gpus=0, dashboard=False)) as mine:
    for host in ("127.0.0.1", "localhost"):
        address = f"{host}:{mine.address.rpartition(':')[2]}"
        subprocess.run([sys.executable, "-c", JOIN, address], check=True)
"""

# Ray without its switch for macOS and Windows: a node has the address of the machine. The argument is the number of
# calls that still return 127.0.0.1.
WITHOUT_SWITCH = """
import sys
import ray
from ray._private import services, worker
from archray.cluster.settings import ClusterSettings
from archray.cluster.connect import ClusterError, connect

first = iter(["127.0.0.1"] * int(sys.argv[1]))

def address_of_the_machine(address=None):
    node = worker._global_node
    if node is not None:
        return node.node_ip_address
    return next(first, None) or services.node_ip_address_from_perspective(address)

services.get_node_ip_address = ray.util.get_node_ip_address = address_of_the_machine
try:
    with connect(ClusterSettings(num_cpus=1, num_gpus=0, dashboard=False), announce=lambda line: None):
        print("connected")
except ClusterError as error:
    print(error, ray.is_initialized())
"""


def output(program: str, *arguments: str, plain: bool = False) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != CLUSTER_VARIABLE}
    environment = inherited | {PLAIN_RAY: str(int(plain))}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, env=environment, text=True, check=True).stdout


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.slow
@pytest.mark.ci
def test_a_ray_of_archray_listens_only_on_loopback(plain: bool) -> None:
    sockets = [line.split(maxsplit=2) for line in output(SOCKETS + STARTED, plain=plain).splitlines()]
    commands = {command for _, _, command in sockets}
    assert {"driver", "gcs_server", "raylet"} <= commands, sockets
    assert len([command for command in commands if command.startswith("ray::")]) >= 3, sockets  # agents, task, actors
    assert {address.removeprefix("::ffff:") for address, _, _ in sockets} == {"127.0.0.1"}, sockets


@pytest.mark.usefixtures("ray_session")
def test_the_ray_of_the_tests_listens_only_on_loopback() -> None:
    import ray

    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]


@pytest.mark.slow
def test_a_ray_on_loopback_can_be_joined_on_its_machine() -> None:
    lines = output(JOINED).splitlines()
    assert [line for line in lines if line.startswith("joined")] == ["joined 7"] * 2, lines


@pytest.mark.parametrize(
    ("calls", "expected", "plain"),
    [
        ("0", "got the address", False),
        ("0", "got the address", True),  # Ray is imported before archray sets the variable
        pytest.param("1", "got a node at", False, marks=pytest.mark.slow),
    ],
)
def test_a_ray_beyond_loopback_is_stopped(calls: str, expected: str, plain: bool) -> None:
    """Ray ignores its switch. archray raises the error before the start, or stops a Ray whose node it can check."""
    (line,) = output(WITHOUT_SWITCH, calls, plain=plain).splitlines()
    assert expected in line and f"Set {CLUSTER_VARIABLE}=0 before Python starts" in line and line.endswith("False"), (
        line
    )


COMMAND = """
import os, sys
import archray.platform.api, archray.platform.cli
from archray.cluster import CLUSTER_VARIABLE
print("ray" in sys.modules, os.environ.get(CLUSTER_VARIABLE))
"""


@pytest.mark.parametrize(("plain", "printed"), [(True, "False 0\n"), (False, "False None\n")])
def test_the_command_sets_the_variable_before_it_imports_ray(plain: bool, printed: str) -> None:
    assert output(COMMAND, plain=plain) == printed


@pytest.mark.parametrize(
    ("address", "node", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", None),
        ("0.0.0.0", "127.0.0.1", "0.0.0.0 port"),
        ("127.0.0.1", "192.0.2.7", "192.0.2.7"),
    ],
)
def test_sockets_beyond_loopback_are_named(
    address: str, node: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets of this process, with and without a Ray. A socket that was open before does not belong to Ray."""
    monkeypatch.setattr(
        loopback, "ray", SimpleNamespace(nodes=lambda: [{"NodeManagerAddress": node}], is_initialized=lambda: True)
    )
    with socket.create_server(("0.0.0.0", 0)):
        block = loopback.checked_loopback(announce=pytest.fail)
        block.__enter__()
        with socket.create_server((address, 0)):
            if expected is None:
                block.__exit__(None, None, None)
                return
            with pytest.raises(loopback.ReachableRay, match=expected):
                block.__exit__(None, None, None)


def test_sockets_of_ipv6_are_read() -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6) as server:
        assert f":: port {server.getsockname()[1]}" in (loopback.reachable_sockets() or {}).values()
