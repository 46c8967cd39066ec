"""Two nodes with different file systems: the second raylet runs in a separate mount namespace."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest
from archray_test_command import logged

ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
HERE, THERE = "127.0.0.1", "127.0.0.2"  # the nodes' addresses
# Starts the head, a node that sees neither `private` nor the head's files, and then the command on the head. Everything
# stops with the namespace of processes.
PROGRAM = f"""
set -euo pipefail
ray() {{ "$PYTHON" -c 'from ray.scripts.scripts import main; main()' "$@"; }}
export -f ray
ray start --head --node-ip-address={HERE} --port="$PORT" --num-cpus=1 --num-gpus=0 --include-dashboard=false \
  --temp-dir="$RAY_FILES"
unshare --mount bash -euc '
  mount -t tmpfs tmpfs "$RAY_FILES"; mount -t tmpfs tmpfs "$PRIVATE"
  ray start --address={HERE}:"$PORT" --node-ip-address={THERE} --num-cpus=1 --num-gpus=0 \
    --dashboard-agent-listen-port="$AGENT"
'
cd "$PRIVATE"
"$PYTHON" -m archray.platform.cli "$@" --address {HERE}:"$PORT"
"""
SEARCH = ("search", "random", "--preset", "smoke", "--budget", "4", "--max-concurrent", "2")


def free_port() -> str:
    with socket.socket() as listener:
        listener.bind((HERE, 0))
        return str(listener.getsockname()[1])


@pytest.fixture
def on_two_nodes(tmp_path):
    """Runs the command on the two nodes. They share `shared`, and each has its `private`."""
    if subprocess.run([*ISOLATED, "unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("needs permission for a mount namespace (unshare --mount)")
    for name in ("shared", "private"):
        (tmp_path / name).mkdir()
    ray_files = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets' paths must be short
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "PRIVATE": str(tmp_path / "private"),
        "RAY_FILES": ray_files,
        "PORT": free_port(),
        "AGENT": free_port(),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "of-this-test-and-no-other",
    }

    def run(*arguments: str) -> subprocess.CompletedProcess:
        command = [*ISOLATED, "bash", "-c", PROGRAM, "bash", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)

    yield run
    shutil.rmtree(ray_files)


@pytest.mark.slow
def test_only_the_run_folder_must_be_shared(on_two_nodes, tmp_path):
    """The run folder has the same path on both nodes. The folder of the command and Ray's files are separate."""
    run = tmp_path / "shared" / "run"
    done = on_two_nodes(*SEARCH, "--out", str(run))
    assert done.returncode == 0, done.stdout + done.stderr
    results = logged(run / "search", "result")
    assert len({entry["trial"] for entry in results}) == 4
    nodes = {entry["result"]["node_ip"] for entry in results}
    assert THERE in nodes and len(nodes) == 2, "both nodes had trials"  # Ray may call the head by its other address


@pytest.mark.slow
def test_a_node_without_access_to_the_run_raises_before_any_training(on_two_nodes, tmp_path):
    run = tmp_path / "private" / "run"
    done = on_two_nodes(*SEARCH, "--out", str(run))
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"node {THERE}" in done.stderr and "cannot read the run's folder" in done.stderr
    assert not list(run.glob("search/tune-*"))
