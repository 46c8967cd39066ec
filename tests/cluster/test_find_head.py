"""A cluster that requires a token, with the right token, a wrong one and none, and with other services at its ports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from archray_test_node import NODE

from archray.cluster import PLAIN_RAY

MODE = {"RAY_AUTH_MODE": "token"}
TOKEN = MODE | {"RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
WRONG = {"RAY_AUTH_TOKEN": "fedcba9876543210" * 4}
SECONDS = 300.0  # for a busy machine; Ray itself tries a wrong port for over ten minutes

# Addresses of real processes on loopback: a head, and below a second node with another token. The default ports stay
# free for other Rays on this machine.
HEAD = """
import sys
from archray.cluster.loopback import loopback_only
from ray.cluster_utils import Cluster

with loopback_only():
    cluster = Cluster(initialize_head=True, head_node_args=dict(
        num_cpus=1, num_gpus=0, include_dashboard=False, dashboard_port=None, dashboard_agent_listen_port=0
    ))
print(cluster.address, cluster.head_node.node_manager_port, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""

JOIN = """
import sys
from archray.cluster.settings import ClusterSettings
from archray.cluster.connect import ClusterError, connect
import ray

for address in sys.argv[1:]:
    try:
        with connect(ClusterSettings(address=address), announce=lambda line: "Warning" in line and print(line)):
            nodes = [node for node in ray.nodes() if node["Alive"]]
            print("joined", len(nodes), ray.get(ray.remote(num_cpus=0)(lambda: 7).remote()))
    except ClusterError as error:
        print(error)
"""


def environment(home: Path, token: dict[str, str]) -> dict[str, str]:
    """Returns an environment without the token of this machine: another home has no `.ray/auth_token`.

    Only `token` can forbid private names of Ray: without them, the errors are Ray's.
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", PLAIN_RAY))}
    return {**ours, "HOME": str(home), **token}


def start(home: Path, token: dict[str, str], program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(home, token),
        text=True,
    )


def output(home: Path, token: dict[str, str], program: str, *arguments: str) -> list[str]:
    printed, _ = start(home, token, program, *arguments).communicate(timeout=SECONDS)
    return printed.splitlines()


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Returns the address of the head of a cluster that requires a token, and the port of its raylet."""
    process = start(tmp_path_factory.mktemp("home"), TOKEN, HEAD)
    yield process.stdout.readline().split()
    process.communicate("\n")


@pytest.mark.slow
@pytest.mark.ci
def test_a_missing_token_and_wrong_ports_have_distinct_errors(head: list[str], tmp_path: Path) -> None:
    address, raylet_port = head
    places = [address, f"127.0.0.1:{raylet_port}", "127.0.0.1:1", "head"]
    lines = output(tmp_path, {}, JOIN, *places)
    reasons = [
        "the cluster requires a token, but none was given. Run 'ray get-auth-token' on the head",
        r"the server at this address is not the head of a Ray cluster \(UNIMPLEMENTED\)\. Give the port of its GCS",
        "no answer .*Check that the cluster is running",
        "expected auto, local or ip:port",
    ]
    for line, place, reason in zip(lines, places, reasons, strict=True):
        assert re.match(rf"cannot join the Ray cluster at {place}: {reason}", line)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        pytest.param(WRONG, "the cluster rejects the token in RAY_AUTH_TOKEN. Run", marks=pytest.mark.ci),
        (TOKEN | WRONG, "the cluster rejects the token in RAY_AUTH_TOKEN. Run"),
        (
            {"RAY_AUTH_TOKEN_PATH": "/nowhere/token"},
            "RAY_AUTH_TOKEN_PATH=/nowhere/token is not a file with a token. Run 'ray get-auth-token'",
        ),
        (MODE, "RAY_AUTH_MODE=token is set, but no token was found. Run 'ray get-auth-token'"),
        (
            TOKEN | {"RAY_AUTH_MODE": "disabled"},
            "the cluster requires a token, but RAY_AUTH_MODE=disabled prevents Ray from sending one. Unset",
        ),
    ],
    ids=["wrong", "wrong-mode", "no-file", "mode-alone", "mode-off"],
)
@pytest.mark.slow
def test_a_wrong_token_is_distinguished_from_a_missing_one(
    token: dict[str, str], reason: str, head: list[str], tmp_path: Path
) -> None:
    (line,) = output(tmp_path, token, JOIN, head[0])
    assert line.startswith(f"cannot join the Ray cluster at {head[0]}: {reason}")


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (TOKEN, "joined 1 7"),
        (WRONG, "Failed to connect .* If the cluster requires a token, set RAY_AUTH_MODE=token before Python starts"),
        (
            {"RAY_AUTH_TOKEN_PATH": "/nowhere/token"} | MODE,
            "RAY_AUTH_TOKEN_PATH=/nowhere/token is not a file with a token",
        ),
    ],
    ids=["right", "wrong", "no-file"],
)
@pytest.mark.slow
def test_a_plain_ray_joins_with_a_token(token: dict[str, str], reason: str, head: list[str], tmp_path: Path) -> None:
    (line,) = output(tmp_path, token | {PLAIN_RAY: "1"}, JOIN, head[0])
    assert re.search(reason, line), line


@pytest.mark.slow
def test_the_command_prints_the_error_and_exits_with_code_2(head: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "archray.platform.cli", "search", "random", "--preset", "smoke"]
    done = subprocess.run(
        [*command, "--address", head[0], "--out", str(tmp_path / "run")],
        env=environment(tmp_path, WRONG),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"archray: cannot join the Ray cluster at {head[0]}: the cluster rejects the token in RAY_AUTH_TOKEN"
    )


@pytest.mark.slow
def test_nodes_join_only_with_the_right_token(head: list[str], tmp_path: Path) -> None:
    right, wrong, none = (start(tmp_path, token, NODE, head[0]) for token in (TOKEN, TOKEN | WRONG, {}))
    assert right.stdout.readline() == "a node\n"
    for node in (wrong, none):
        printed, errors = node.communicate()
        assert node.returncode != 0
        assert not printed
        assert "Unauthenticated" in errors
    # A token in a variable, and one in a file. The mode is detected.
    file = tmp_path / "token"
    file.write_text(TOKEN["RAY_AUTH_TOKEN"])
    for token in ({"RAY_AUTH_TOKEN": TOKEN["RAY_AUTH_TOKEN"]}, {"RAY_AUTH_TOKEN_PATH": str(file)}):
        assert output(tmp_path, token, JOIN, head[0]) == ["joined 2 7"]
    right.communicate("\n")
