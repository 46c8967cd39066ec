"""A search on a cluster whose autoscaler adds GPU nodes when trials wait for them, with nodes on this machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import ray
from archray_test_command import ended_trials

ISOLATED = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
HEAD = "ray.head.default"  # Ray's simulated nodes identify themselves by this name
HEAD_ID = "f" * 51 + "00000"
CLUSTER: dict[str, Any] = {
    "cluster_name": "simulated",
    "max_workers": 2,
    "idle_timeout_minutes": 5,
    "upscaling_speed": 1.0,
    "provider": {
        "type": "external",
        "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
        "head_node_id": HEAD_ID,
        "launch_multiple": True,
        "disable_node_updaters": True,  # no login is needed
    },
    "head_node_type": HEAD,
    "available_node_types": {
        HEAD: {"resources": {"CPU": 0}, "node_config": {}, "min_workers": 0, "max_workers": 0},
        "gpu": {"resources": {"CPU": 1, "GPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2},
    },
    "auth": {},
    "docker": {},
    "file_mounts": {},
    "cluster_synced_files": [],
    **{
        f"{when}_commands": []
        for when in ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
    },
}

# Starts the head with its autoscaler, then the command. Everything stops with the namespace of processes.
PROGRAM = """
set -euo pipefail
ray() { "$PYTHON" -c 'from ray.scripts.scripts import main; main()' "$@"; }
RAY_FAKE_CLUSTER=1 RAY_enable_autoscaler_v2=1 AUTOSCALER_UPDATE_INTERVAL_S=1 \
  RAY_CLOUD_INSTANCE_ID="$HEAD_ID" RAY_OVERRIDE_NODE_ID_FOR_TESTING="$HEAD_ID" \
  ray start --head --port="$PORT" --num-cpus=0 --num-gpus=0 --include-dashboard=false --temp-dir="$RAY_FILES" \
  --dashboard-agent-listen-port=0 --autoscaling-config="$RAY_FILES/cluster.json"
"$PYTHON" -m archray.platform.cli "$@" --address auto
"""


@pytest.mark.slow
def test_gpu_nodes_scale_up_from_zero(tmp_path: Path) -> None:
    if subprocess.run([*ISOLATED, "true"], capture_output=True).returncode:
        pytest.skip("needs permission for a namespace of processes (unshare --pid)")
    ray_files = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets' paths must be short
    with socket.socket() as listener:
        listener.bind(("", 0))
        port = str(listener.getsockname()[1])
    provider = {**CLUSTER["provider"], "gcs_address": f"{ray.util.get_node_ip_address()}:{port}"}
    (Path(ray_files) / "cluster.json").write_text(json.dumps({**CLUSTER, "provider": provider}))
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "RAY_FILES": ray_files,
        "PORT": port,
        "HEAD_ID": HEAD_ID,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "of-this-test-and-no-other",
    }
    search = (
        "search", "random", "--preset", "smoke", "--budget", "2", "--out", str(tmp_path / "run"),
        "--gpus-per-trial", "1", "--max-concurrent", "2", "--set", "resources.autoscales=true",
    )  # fmt: skip
    command = [*ISOLATED, "bash", "-c", PROGRAM, "bash", *search]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    finally:
        shutil.rmtree(ray_files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(ended_trials(tmp_path / "run" / "search")) == 2
