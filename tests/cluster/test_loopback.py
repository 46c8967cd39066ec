"""On which addresses the processes of a Ray listen: the sockets of all of them, while a task runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Ray's own psutil: archray does not depend on one. Prints address, port and command of every socket that listens.
SOCKETS = """
import sys
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
        for connection in process.net_connections(kind="inet"):
            if connection.status == psutil.CONN_LISTEN:
                command = "driver" if process == me else process.name()
                print(connection.laddr.ip, connection.laddr.port, command)
    ray.get(signal.send.remote())
    ray.get(running)
"""

STARTED = """
from archray.cluster.cluster_settings import ClusterSettings
from archray.cluster.connect import connect

with connect(ClusterSettings(num_cpus=1, num_gpus=0), announce=lambda line: None):
    print_sockets()
"""

# As a search of another terminal does, while the first one runs.
JOINED = """
import subprocess
import sys
from archray.cluster.cluster_settings import ClusterSettings
from archray.cluster.connect import connect

JOIN = '''
import sys
import ray
from archray.cluster.cluster_settings import ClusterSettings
from archray.cluster.connect import connect

with connect(ClusterSettings(address=sys.argv[1])):
    print("joined", ray.get(ray.remote(num_cpus=0)(lambda: 7).remote()))
'''
with connect(ClusterSettings(num_cpus=1, num_gpus=0, dashboard=False)) as mine:
    for host in ("127.0.0.1", "localhost"):
        address = f"{host}:{mine.address.rpartition(':')[2]}"
        subprocess.run([sys.executable, "-c", JOIN, address], check=True)
"""


def output(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_a_ray_of_ours_listens_on_loopback_alone() -> None:
    sockets = [line.split(maxsplit=2) for line in output(SOCKETS + STARTED).splitlines()]
    commands = {command for _, _, command in sockets}
    assert {"driver", "gcs_server", "raylet"} <= commands, sockets
    assert len([command for command in commands if command.startswith("ray::")]) >= 3, sockets  # agents, task, actors
    assert {address.removeprefix("::ffff:") for address, _, _ in sockets} == {"127.0.0.1"}, sockets


@pytest.mark.usefixtures("ray_session")
def test_the_ray_of_the_tests_is_on_loopback_too() -> None:
    import ray

    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]


@pytest.mark.slow
@pytest.mark.nightly
def test_a_ray_on_loopback_can_be_joined_on_its_machine() -> None:
    lines = output(JOINED).splitlines()
    assert [line for line in lines if line.startswith("joined")] == ["joined 7"] * 2, lines
