"""The reports of nodes before their first trial, and the reports that are errors."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray
from archray_test_node import NODE

from archray.cluster.connect import ClusterError
from archray.cluster.node_checks import NodeReport, check_nodes, compare, look
from archray.cluster.settings import ResourceSettings
from archray.errors import InvalidInput
from archray.files import Folder


def report_of_a_worker(variables: dict[str, str], *arguments: Any) -> NodeReport:
    """Returns the report of a worker whose environment has these variables."""
    task = ray.remote(num_cpus=0)(look).options(runtime_env={"env_vars": variables})
    return ray.get(task.remote(*arguments))


@pytest.mark.usefixtures("ray_session")
def test_the_nodes_of_this_machine_pass(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    last_line: list[str] = []
    run = Folder(tmp_path / "run").create()
    (report,) = check_nodes(run, [str(tmp_path / "data"), __file__], last_line.append)
    assert not last_line, "a single node has no differences"
    assert not os.listdir(tmp_path / "run"), "the marker is removed"
    assert report.versions["ray"] == ray.__version__
    checked: set[str] = set()
    assert [len(check_nodes(run, checked=checked)) for _ in range(2)] == [1, 0], "each node is checked once"
    assert list(report.places.values()) == ["a folder with 0 entries", f"a file of {os.stat(__file__).st_size} bytes"]


@pytest.mark.usefixtures("ray_session")
def test_only_nodes_that_can_hold_a_trial_are_checked(tmp_path: Path) -> None:
    run = Folder(tmp_path / "run").create()
    assert len(check_nodes(run, resources=ResourceSettings(cpus_per_trial=2))) == 1
    for resources in ({"cpus_per_trial": 3}, {"gpus_per_trial": 0.5}, {"custom": {"a": 1}}):
        assert check_nodes(run, resources=ResourceSettings(**resources)) == []
    assert not os.listdir(tmp_path / "run")


def install_another_torch(folder: Path) -> None:
    """Simulates an environment with another torch for importlib.metadata, if the folder is first on the path."""
    (folder / "torch-1.2.3.dist-info").mkdir()
    (folder / "torch-1.2.3.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.2.3\n")


@pytest.mark.usefixtures("ray_session")
def test_a_node_with_another_torch_is_named(tmp_path: Path) -> None:
    install_another_torch(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "marker").write_text("content")
    seen = ("10.0.0.2 (id ab12)", str(tmp_path / "run"), "marker", [])
    ours = look("the driver", *seen[1:])
    compare(ours, [report_of_a_worker({}, *seen)])
    theirs = report_of_a_worker({"PYTHONPATH": str(tmp_path)}, *seen)
    message = (
        rf"^node 10\.0\.0\.2 \(id ab12\) has torch 1\.2\.3, the driver has {ours.versions['torch'][:3]}.*\. Install"
    )
    with pytest.raises(ClusterError, match=message):
        compare(ours, [theirs])


@pytest.mark.usefixtures("ray_session")
def test_a_node_without_access_to_the_run_or_the_data_is_named(tmp_path: Path) -> None:
    # Two paths of one worker represent the same path on two nodes.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "marker").write_text("content")
    for name in ("mounted", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "mounted" / "train.npz").write_text("images")

    def seen(run: str, data: str) -> NodeReport:
        path = str(tmp_path / data)
        report = report_of_a_worker({}, "10.0.0.2", str(tmp_path / run), "marker", [path])
        return replace(report, places={"/data": report.places[path]})

    ours = seen("run", "mounted")
    compare(ours, [ours])
    with pytest.raises(InvalidInput, match=r"^node 10\.0\.0\.2 cannot read the run's folder: there is no .*s3://"):
        compare(ours, [ours, seen("nowhere", "mounted")])
    for data, there in (("empty", "a folder with 0 entries"), ("nowhere", "nothing that can be read (No such file")):
        with pytest.raises(InvalidInput, match=re.escape(f"node 10.0.0.2 has {there}")) as caught:
            compare(ours, [seen("run", data)])
        assert "at /data, the driver has a folder with 1 entries (train.npz to train.npz)" in str(caught.value)


# Two nodes, one with another file system: a mount namespace, as on a machine without the mount.

HEAD = """
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from ray.cluster_utils import Cluster
from archray.cluster.loopback import loopback_only

with loopback_only():
    cluster = Cluster(initialize_head=True, head_node_args=dict(
        num_cpus=2, num_gpus=0, include_dashboard=False, dashboard_port=None, dashboard_agent_listen_port=0
    ))
    second = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', sys.argv[1]]
        + [sys.executable, "-c", sys.argv[2], cluster.address],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
assert second.stdout.readline() == "a node\\n"
command = [sys.executable, "-m", "archray.platform.cli", "search", "random", "--preset", "smoke"]
command += ["--address", cluster.address, "--out", f"{sys.argv[1]}/run"]
done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
print(done.returncode, done.stderr.strip().splitlines()[-1])
second.communicate("\\n")
cluster.shutdown()
"""


@pytest.mark.slow
@pytest.mark.ci
def test_a_search_stops_if_a_node_has_not_mounted_its_folder(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "--mount", "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("needs permission for a mount namespace (unshare --mount)")
    shared = tmp_path / "shared"
    shared.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", HEAD, str(shared), NODE], stdout=subprocess.PIPE, text=True, check=True
    )
    last_line = done.stdout.splitlines()[-1]
    assert last_line.startswith("2 archray: node 127.0.0.1 (id "), done.stdout
    assert f"cannot read the run's folder: there is no {shared}/run" in last_line
    assert list(shared.rglob("*.json")) == list(shared.rglob("node-check*")) == [], "the rejected run left nothing"


# A search starts on a head that holds no trial, and its trials wait for a node that joins later.

LATE = """
import os
import subprocess
import sys
import time
from pathlib import Path
from ray.cluster_utils import Cluster
from archray.cluster.loopback import loopback_only

method, folder, node, *paths = sys.argv[1:]
with loopback_only():
    cluster = Cluster(initialize_head=True, head_node_args=dict(
        num_cpus=0, num_gpus=0, include_dashboard=False, dashboard_port=None, dashboard_agent_listen_port=0
    ))
archray = [sys.executable, "-m", "archray.platform.cli"]
search = ["search", method, "--preset", "smoke", "--address", cluster.address, "--out", f"{folder}/run"]
search += ["--gpus-per-trial", "0", "--max-concurrent", "1", "--set", "resources.actors=1"]
search += ["--set", "resources.autoscales=true", "--or-resume"]
for path in paths:
    running = subprocess.Popen(archray + search, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while running.poll() is None and not any(Path(folder).glob("run/*/*")):  # the first stage, after the first check
        time.sleep(0.1)
    late = subprocess.Popen(
        [sys.executable, "-c", node, cluster.address], env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    output, errors = running.communicate()
    late.communicate("\\n")
    print(running.returncode, (errors.strip() or output.strip()).splitlines()[-1])
cluster.shutdown()
"""


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(
    ("method", "nodes"), [("random", ["other", "same"]), ("hnas", ["other"])]
)  # the first actor trains, or scores the pool
def test_a_node_that_joins_later_is_checked_before_it_holds_a_trial(
    method: str, nodes: list[str], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    install_another_torch(tmp_path / "other")
    command = [sys.executable, "-c", LATE, method, str(tmp_path), NODE, *(str(tmp_path / name) for name in nodes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    stopped, *resumed = done.stdout.splitlines()
    assert stopped.startswith("2 archray: a node that joined during the run: node 127.0.0.1 (id "), done.stdout
    assert "has torch 1.2.3, the driver has " in stopped
    assert [line[:2] for line in resumed] == ["0 "] * (len(nodes) - 1), done.stdout
