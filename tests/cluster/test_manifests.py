"""The manifests in `cluster/manifests` are valid for their readers, require a token, and mark the values to edit."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from archray_test_kuberay import KINDS, ClusterSpec, Pod, RayCluster, RayJob
from pydantic import ValidationError
from typer.testing import CliRunner

from archray.platform.cli import application

RAY_UP = ("ray-up-aws.yaml", "ray-up-on-premise.yaml")
KUBERAY = ("kuberay-cluster.yaml", "kuberay-job.yaml")
SLURM = "slurm.sbatch"


@pytest.fixture(scope="module")
def manifests(repository: Path) -> Path:
    return repository / "cluster" / "manifests"


def ray_up(file: Path) -> dict[str, Any]:
    """Reads a file as `ray up` does: with Ray's defaults, and validated by Ray's schema."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(file.read_text()))
    validate_config(config)
    return config


def kuberay(file: Path) -> RayCluster | RayJob:
    content = yaml.safe_load(file.read_text())
    return KINDS[content["kind"]].model_validate(content)


def cluster_spec(manifest: RayCluster | RayJob) -> ClusterSpec:
    return manifest.spec if isinstance(manifest, RayCluster) else manifest.spec.rayClusterSpec


def pods(spec: ClusterSpec) -> list[Pod]:
    return [group.template.spec for group in (spec.headGroupSpec, *spec.workerGroupSpecs)]


# ray up


@pytest.mark.parametrize("name", RAY_UP)
def test_ray_up_accepts_it(manifests: Path, name: str) -> None:
    config = ray_up(manifests / name)
    assert config["file_mounts"] == {"~/.ray/auth_token": "~/.ray/auth_token"}
    starts = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    for command in (command for command in starts if "ray start" in command):
        assert "export RAY_AUTH_MODE=token;" in command
        assert ("--dashboard-host=127.0.0.1" in command) == ("--head" in command)
        assert subprocess.run(["bash", "-n", "-c", command]).returncode == 0
    for command in [*config["head_setup_commands"], *config["worker_setup_commands"]]:
        assert subprocess.run(["bash", "-n", "-c", command]).returncode == 0


def test_on_aws_gpu_nodes_scale_from_zero_and_the_head_runs_no_trial(manifests: Path) -> None:
    config = ray_up(manifests / "ray-up-aws.yaml")
    types = config["available_node_types"]
    assert types[config["head_node_type"]]["resources"] == {"CPU": 0, "GPU": 0}
    assert {kind["min_workers"] for kind in types.values()} == {0}
    assert types["gpu"]["max_workers"] == config["max_workers"] > 0
    assert config["idle_timeout_minutes"] > 0


def test_on_premise_all_hosts_are_static_and_the_head_runs_no_trial(manifests: Path) -> None:
    config = ray_up(manifests / "ray-up-on-premise.yaml")
    (kind,) = config["available_node_types"].values()
    hosts = len(config["provider"]["worker_ips"])
    assert kind["min_workers"] == kind["max_workers"] == config["max_workers"] == hosts
    head = next(command for command in config["head_start_ray_commands"] if "ray start" in command)
    assert "--num-cpus=0 --num-gpus=0" in head


def test_a_misspelled_key_is_found_by_rays_schema(manifests: Path, tmp_path: Path) -> None:
    text = (manifests / "ray-up-aws.yaml").read_text()
    (tmp_path / "wrong.yaml").write_text(text.replace("idle_timeout_minutes", "idle_timeout_minuts"))
    with pytest.raises(Exception, match="idle_timeout_minuts"):
        ray_up(tmp_path / "wrong.yaml")


# KubeRay


@pytest.mark.parametrize("name", KUBERAY)
def test_kuberay_accepts_it(manifests: Path, name: str) -> None:
    spec = cluster_spec(kuberay(manifests / name))
    assert spec.authOptions is not None and spec.authOptions.mode == "token"
    assert spec.headGroupSpec.rayStartParams["num-cpus"] == spec.headGroupSpec.rayStartParams["num-gpus"] == "0"
    assert spec.enableInTreeAutoscaling and spec.autoscalerOptions and spec.autoscalerOptions.idleTimeoutSeconds > 0
    (workers,) = spec.workerGroupSpecs
    assert (workers.replicas, workers.minReplicas) == (0, 0) and workers.maxReplicas > 0
    assert workers.template.spec.containers[0].resources.limits["nvidia.com/gpu"] == "1"
    assert "nvidia.com/gpu" not in spec.headGroupSpec.template.spec.containers[0].resources.limits
    assert spec.autoscalerOptions.version == "v2"  # which needs pods that do not restart
    for pod in pods(spec):
        assert pod.restartPolicy == "Never"
        assert pod.securityContext is not None and pod.securityContext.fsGroup == 100  # of the image's user
        held = {volume.name for volume in pod.volumes if volume.persistentVolumeClaim}
        for container in pod.containers:
            assert {(mount.name, mount.mountPath) for mount in container.volumeMounts} == {("shared", "/shared")}
            assert {mount.name for mount in container.volumeMounts} <= held


def test_the_dashboard_is_open_only_where_the_operator_needs_it(manifests: Path) -> None:
    hosts = {
        name: cluster_spec(kuberay(manifests / name)).headGroupSpec.rayStartParams["dashboard-host"] for name in KUBERAY
    }
    assert hosts == {"kuberay-cluster.yaml": "127.0.0.1", "kuberay-job.yaml": "0.0.0.0"}


def test_a_job_that_loses_its_head_resumes(manifests: Path) -> None:
    job = kuberay(manifests / "kuberay-job.yaml")
    assert isinstance(job, RayJob)
    assert job.spec.backoffLimit > 0 and job.spec.shutdownAfterJobFinishes
    assert job.spec.rayClusterSpec.headGroupSpec.template.spec.restartPolicy == "Never"
    assert "--or-resume" in job.spec.entrypoint.split()


@pytest.mark.parametrize(
    ("was", "becomes"), [("backoffLimit", "backofLimit"), ('cpu: "8"', "cpu: 8"), ("name: archray-search", "name: a_b")]
)
def test_keys_that_kuberay_would_drop_or_reject_are_found(manifests: Path, was: str, becomes: str) -> None:
    text = (manifests / "kuberay-job.yaml").read_text()
    assert was in text
    with pytest.raises(ValidationError):
        RayJob.model_validate(yaml.safe_load(text.replace(was, becomes)))


# SLURM, and the commands of all manifests


def slurm_command(text: str) -> list[str]:
    """Returns the search at the end of the batch script."""
    words = shlex.split(text.partition("\n  -- \\\n")[2], comments=True)
    return [word for word in words if word.strip()]


@pytest.mark.parametrize("name", ["kuberay-job.yaml", SLURM])
def test_archray_accepts_the_command(manifests: Path, name: str) -> None:
    text = (manifests / name).read_text()
    words = slurm_command(text) if name == SLURM else shlex.split(yaml.safe_load(text)["spec"]["entrypoint"])
    assert words[:2] == ["archray", "search"]
    options = words[2:]
    # An option of the search instead of its configuration
    options = [word for word in options if word not in ("--or-resume", "--trust")]
    place = options.index("--out")
    assert options[place + 1].startswith("/shared/")
    arguments = ["config", *options[:place], *options[place + 2 :]]
    shown = CliRunner().invoke(application(arguments), arguments)
    assert shown.exit_code == 0, shown.output
    config = yaml.safe_load(shown.output)
    assert config["data"]["data_dir"].startswith("/shared/")
    if name != SLURM:
        assert config["resources"]["autoscales"] and config["resources"]["gpus_per_trial"] == 1


def test_the_batch_script_is_valid(manifests: Path) -> None:
    script = manifests / SLURM
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    text = script.read_text()
    assert "RAY_AUTH_MODE=token" in text and "get-auth-token --generate" in text and "--or-resume" in text
    assert "RAY_TMPDIR=" in text and "--temp-dir=" not in text, "otherwise `ray symmetric-run` loses its cluster"
    if checker := shutil.which("shellcheck"):
        checked = subprocess.run([checker, script], capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout


SRUN = """#!/usr/bin/env bash
# srun of one node: the command, here.
while [[ $1 == -* ]]; do shift; done
exec "$@"
"""


@pytest.mark.slow
def test_the_batch_script_runs_on_one_node(manifests: Path, tmp_path: Path) -> None:
    """Runs with `srun` and `scontrol` of one node and real processes of Ray. A second run repeats no work.

    It runs in a namespace of processes: `ray symmetric-run` ends with `ray stop`, which stops every Ray that it sees.
    """
    isolated = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*isolated, "true"], capture_output=True).returncode:
        pytest.skip("needs permission for a namespace of processes (unshare --pid)")
    text = (manifests / SLURM).read_text()
    search = text[text.index("  archray search") :]
    small = f"archray search random --preset smoke --budget 1 --out {tmp_path}/run --or-resume --address $address"
    text = text.replace(search, f"  {small}\n").replace('source "$HOME/archray/.venv/bin/activate"', "")
    (tmp_path / SLURM).write_text(text)
    of_this_python = f"#!{sys.executable}\nfrom ray.scripts.scripts import main\nmain()\n"
    for name, content in {"srun": SRUN, "scontrol": "#!/bin/sh\nhostname\n", "ray": of_this_python}.items():
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "here",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_CPUS_PER_TASK": "1",
    }
    environment.pop("RAY_AUTH_TOKEN_PATH", None)
    for seen in ("Joined the Ray cluster", "already done"):
        done = subprocess.run(
            [*isolated, "bash", str(tmp_path / SLURM)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert seen in done.stdout
    shutil.rmtree(f"/tmp/archray-{os.getpid()}")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "done"
    assert (tmp_path / ".ray" / "auth_token").stat().st_mode & 0o077 == 0, "no other user can read the token"
