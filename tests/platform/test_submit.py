"""`archray submit` to a head on this machine, with a token: the files that it sends, its output, and a killed job."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import ray
from archray_test_command import PATIENCE, ended_trials, epochs_trained

from archray.cluster import jobs
from archray.cluster.connect import ClusterError
from archray.errors import InvalidInput
from archray.platform.commands.submit import job_command, job_name, submit

TOKEN = "0123456789abcdef" * 4
HEAD = """
import sys
from archray.cluster.loopback import LOOPBACK, loopback_only  # before Ray, which reads its variables at import
from ray.cluster_utils import Cluster

with loopback_only():
    cluster = Cluster(initialize_head=True, head_node_args=dict(
        num_cpus=2, num_gpus=0, include_dashboard=True, dashboard_host=LOOPBACK,
        dashboard_port=None, dashboard_agent_listen_port=0,  # free ones: other Rays of this machine have theirs
    ))
print(f"http://{cluster.head_node.webui_url}", flush=True)
sys.stdin.readline()
cluster.shutdown()
"""
SEARCH = (
    "search", "random", "--space", "own_space.py:ResidualSpace", "--config", "small.yaml", "--data", "digits",
    "--preset", "smoke", "--seed", "3", "--max-concurrent", "1", "--random", "0", "--set", "final.epochs=1",
)  # fmt: skip


# Files to send


def test_files_in_the_command_are_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outside = tmp_path.parent / "outside.py"
    for file in (Path("spaces/own.py"), Path("small.yaml"), outside, Path("rows.csv"), Path("digits")):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    for file in (Path("spaces/own.py"), outside):
        file.write_text("import blocks.conv\n")
        (file.parent / "blocks").mkdir()
        (file.parent / "blocks" / "conv.py").touch()
    words, files = job_command(
        [
            *("search", "hnas", "--space", "spaces/own.py:Space", "--config=small.yaml"),
            *("--proxy", f"{outside}:norm,snip"),
            *("--data", "digits", "--set", "space=table:rows.csv", "--out", "s3://bucket/run"),
        ]
    )
    assert words == [
        *("search", "hnas", "--space", "spaces/own.py:Space", "--config=small.yaml"),
        *("--proxy", "sent-3/outside.py:norm,snip"),
        *("--data", "digits", "--set", "space=table:rows.csv", "--out", "s3://bucket/run"),
    ]
    assert {name: file.name for name, file in files.items()} == {
        "spaces/own.py": "own.py",
        "spaces/blocks/conv.py": "conv.py",
        "small.yaml": "small.yaml",
        "sent-3/outside.py": "outside.py",
        "sent-3/blocks/conv.py": "conv.py",
        "rows.csv": "rows.csv",
    }


def test_a_search_without_an_out_option_gets_a_folder_that_outlives_the_job() -> None:
    words, _ = job_command(["search", "hnas"])
    assert words[2] == "--out" and words[3].startswith("~/archray-runs/hnas-")
    assert job_command(["search", "--preset", "demo"])[0][:4] == ["search", "rank-surrogate", "--preset", "demo"]
    assert job_command(["search", "hnas", "--dry-run"])[0] == ["search", "hnas", "--dry-run"]


@pytest.mark.parametrize(
    ("words", "option", "place"),
    [
        (["search", "hnas", "--out", "runs/1"], "--out", "runs/1"),
        (["search", "hnas", "--data-dir=data"], "--data-dir", "data"),
        (["resume", "runs/1"], "RUN", "runs/1"),
    ],
)
def test_a_folder_on_this_machine_alone_raises_an_error(words: list[str], option: str, place: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{option}: expected a folder that every node .* got {place}"):
        job_command(words)


def test_a_runtime_environment_has_no_working_folder(tmp_path: Path) -> None:
    file = tmp_path / "environment.yaml"
    file.write_text("working_dir: .")
    with pytest.raises(InvalidInput, match=r"expected no working_dir in .*, got one\. Use --working-dir"):
        submit(["list", "methods"], address="http://head:8265", runtime_env=file)


@pytest.mark.parametrize("options", [{"command": ["list", "methods"]}, {"attach": "a"}, {"stop": "a"}])
def test_a_job_without_an_address_raises_an_error(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 8265 of this machine may belong to the Ray of a search."""
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with pytest.raises(InvalidInput, match=r"^expected the URL of .* dashboard, got none\. Pass --address "):
        submit(**options)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("search hnas --space own_space.py:Space --out /shared/runs/digits-1", "hnas digits-1"),
        ("search random --out=s3://bucket/runs/digits-2?region=eu", "random digits-2"),
        ("resume /shared/runs/digits-1/ --budget 40", "resume digits-1"),
        ("list methods", "list"),
    ],
)
def test_jobs_are_distinguished_by_method_and_run(command: str, name: str) -> None:
    assert job_name(command.split()) == name


# Head and jobs


class WithoutAgent(BaseHTTPRequestHandler):
    """A dashboard as of a cluster whose agents are not available."""

    def answer(self) -> None:
        is_job = self.command == "POST"
        text = "No available agent to submit job, please try again later."
        body = text if is_job else json.dumps({"version": "4", "ray_version": ray.__version__, "session_name": "a"})
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(503 if is_job else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    do_GET = do_POST = do_PUT = answer

    def log_message(self, *arguments: Any) -> None:
        pass


def test_a_rejected_job_has_a_message_with_one_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "AGENT_SECONDS", 0.0)
    with ThreadingHTTPServer(("127.0.0.1", 0), WithoutAgent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = jobs.job_client(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ClusterError, match=r"No available agent .* try again later\.$") as caught:
            jobs.submit_job(client, "list methods", {}, name="list")
        server.shutdown()
    assert ".." not in str(caught.value)


class Sender:
    """Sends jobs to a head, from a folder with files of a user."""

    def __init__(self, address: str, environment: dict[str, str], folder: Path) -> None:
        self.address, self.environment, self.folder = address, environment, folder

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "archray.platform.cli", "submit", "--address", self.address, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def output(self, *arguments: str, code: int = 0) -> str:
        return output_at_end(self.start(*arguments), code)


def output_at_end(process: subprocess.Popen[str], code: int) -> str:
    printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, printed
    return printed


@pytest.fixture(scope="module")
def sender(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Iterator[Sender]:
    folder, home = tmp_path_factory.mktemp("sender"), tmp_path_factory.mktemp("home")
    shutil.copyfile(repository / "examples" / "own_space.py", folder / "own_space.py")
    (folder / "small.yaml").write_text("data: {limit: 100}\n")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ours |= {"HOME": str(home), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{ours['PATH']}"}
    ours |= {"RAY_AUTH_TOKEN": TOKEN, "PYTHONPATH": ""}
    # A job runs on the Ray that was started last with this temporary folder. Paths of sockets must be short.
    temporary = tempfile.mkdtemp(prefix="ar-", dir="/tmp")
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=ours | {"RAY_AUTH_MODE": "token", "RAY_TMPDIR": temporary},
        text=True,
    )
    yield Sender(head.stdout.readline().strip(), ours, folder)
    head.communicate("\n")
    shutil.rmtree(temporary)


def wait_until(process: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def trials(run: Path) -> list[dict[str, Any]]:
    table = pd.read_parquet(run / "search" / "trials.parquet")
    return table[["architecture", "seed", "epoch", "validation_accuracy"]].to_dict("records")


def job_description(sender: Sender, job: str) -> dict[str, Any]:
    """Returns the text about a job on the dashboard's page of jobs."""
    request = urllib.request.Request(f"{sender.address}/api/jobs/{job}", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_a_job_with_a_killed_driver_is_resumed_from_outside(sender: Sender, tmp_path: Path) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "killed"
    printed = sender.output("--", *SEARCH, "--out", str(undisturbed))
    assert "ended with exit code 0" in printed and "Ray dashboard: http://127.0.0.1:" in printed, printed
    process, search = sender.start("--", *SEARCH, "--out", str(run)), run / "search"
    wait_until(process, lambda: ended_trials(search) and not (search / "done.json").exists())
    os.kill(json.loads((run / "heartbeat.json").read_text())["pid"], signal.SIGKILL)
    killed = output_at_end(process, 128 + signal.SIGKILL)
    assert f"archray submit --address {sender.address} --resume {run}" in killed
    trained = epochs_trained(search)
    finished = {trial: trained[trial] for trial in ended_trials(search)}
    resumed = sender.output("--resume", str(run))
    print(printed, killed, resumed, sep="\n")
    now = epochs_trained(search)
    assert finished and {trial: now[trial] for trial in finished} == finished, "no finished trial ran again"
    assert json.loads((run / "summary.json").read_text())["state"] == "done"
    assert trials(run) == trials(undisturbed)


@pytest.mark.slow
def test_a_job_runs_without_the_client_and_can_be_stopped(sender: Sender, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = sender.start("--", *SEARCH, "--out", str(run), "--budget", "1000")
    wait_until(process, lambda: list(run.glob("search/tune-*/results/*")))
    process.send_signal(signal.SIGINT)
    job = output_at_end(process, 130).rpartition("--attach ")[2].strip()
    assert job_description(sender, job)["metadata"]["job_name"] == "random run"
    following = sender.start("--attach", job)
    assert "ended" not in sender.output("--stop", job)
    printed = output_at_end(following, 130)
    assert f"Job {job} ended with exit code 130." in printed
    assert "already ended" in sender.output("--stop", job)


@pytest.fixture
def modules_of_the_user(tmp_path: Path) -> Path:
    """A runtime environment with a module that has a data set."""
    module, environment = tmp_path / "mine", tmp_path / "environment.yaml"
    module.mkdir()
    (module / "__init__.py").write_text(
        "from archray.trainables.data import load_data\n\n"
        "def digits(settings):\n    return load_data(settings.model_copy(update={'name': 'digits'}))\n"
    )
    environment.write_text(f"env_vars: {{OF_THE_USER: '1'}}\npy_modules: [{module}]\n")
    return environment


@pytest.mark.slow
def test_a_job_with_an_id_and_an_environment_is_submitted_without_waiting(
    sender: Sender, modules_of_the_user: Path, tmp_path: Path
) -> None:
    options = ("--runtime-env", str(modules_of_the_user), "--submission-id", "mine-1", "--no-wait")
    printed = sender.output(*options, "--", *SEARCH, "--data", "mine:digits", "--out", str(tmp_path / "run"))
    assert "--attach mine-1" in printed and "ended" not in printed
    assert "Job mine-1 ended with exit code 0." in sender.output("--attach", "mine-1")
    used = job_description(sender, "mine-1")["runtime_env"]
    assert used["env_vars"]["OF_THE_USER"] == "1" and len(used["py_modules"]) == 2
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "done"


@pytest.mark.slow
def test_a_job_of_ray_with_modules_runs_archray(sender: Sender, modules_of_the_user: Path, tmp_path: Path) -> None:
    """The head has archray; Ray by itself would reject the modules of the job and of the driver together."""
    archray = ("python", "-m", "archray.platform.cli", "search", "random", "--preset", "smoke", "--data", "mine:digits")
    command = ("ray", "job", "submit", "--address", sender.address, "--runtime-env", str(modules_of_the_user), "--")
    environment = sender.environment | {"RAY_AUTH_MODE": "token"}
    done = subprocess.run(
        [*command, *archray, "--random", "0", "--out", str(tmp_path / "run")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "done"


@pytest.mark.slow
@pytest.mark.ci
def test_errors_are_single_sentences(sender: Sender) -> None:
    token = sender.environment
    printed = "cannot reach the Ray cluster at "
    for environment, address, reason in [
        ({**token, "RAY_AUTH_TOKEN": ""}, sender.address, "the cluster requires a token, but none was given"),
        ({**token, "RAY_AUTH_TOKEN": "wrong"}, sender.address, "the cluster rejects the token in RAY_AUTH_TOKEN"),
        (token, "http://127.0.0.1:1", "no answer"),
        (token, "127.0.0.1:8265", "expected the URL of its dashboard"),
    ]:
        line = Sender(address, environment, sender.folder).output("--", "list", "methods", code=2)
        assert line.startswith(f"archray: {printed}{address}: {reason}"), line
    assert "there is no method" in sender.output("--", "search", "hnass", "--out", "/tmp/run", code=2)
