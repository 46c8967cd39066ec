"""A search stops soon and can resume if Ray is killed, all processes get SIGTERM, or trials are killed for memory."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from archray_test_command import (
    HNAS_COMMAND,
    MARK,
    PATIENCE,
    epochs_trained,
    finish,
    found_values,
    marked_processes,
    start,
    wait_until,
    wait_until_gone,
)

import archray
from archray.cluster import plain_ray

SECONDS = 50  # archray stops 24 s after SIGTERM, later on a busy machine; Ray alone takes 60 s
SUPERNETS = (
    "search", "gaea-darts", "--space", "nasbench201", "--data", "digits", "--preset", "smoke",
    "--set", "cluster.dashboard=false", "--out", "run",
)  # fmt: skip

SEARCH_AND_FINAL = (
    "search", "random", "--space", "nasbench201", "--data", "digits", "--preset", "smoke", "--set", "final.epochs=40",
    "--set", "cluster.dashboard=false", "--out", "run",
)  # fmt: skip


def process_id_of(mark: str, program: str) -> int:
    """Returns the process id of Ray's process that runs a program of that name."""
    return next(number for number, line in marked_processes(mark).items() if line.split(" ")[0].endswith(program))


def end_raylet(process: subprocess.Popen[bytes], mark: str) -> None:
    os.kill(process_id_of(mark, "/raylet"), signal.SIGKILL)


def end_gcs(process: subprocess.Popen[bytes], mark: str) -> None:
    os.kill(process_id_of(mark, "/gcs_server"), signal.SIGKILL)


def terminate_all(process: subprocess.Popen[bytes], mark: str) -> None:
    """Sends SIGTERM to Ray's processes too, as `scancel` does."""
    os.killpg(process.pid, signal.SIGTERM)


def terminate_twice(process: subprocess.Popen[bytes], mark: str) -> None:
    for _ in range(2):
        process.send_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """The run of HNAS_COMMAND without any interruption, made at the first request."""
    folder = tmp_path_factory.mktemp("undisturbed")

    def run() -> Path:
        if not (folder / "run" / "architecture.json").exists():
            finish(*HNAS_COMMAND, "--max-concurrent", "2", "--out", "run", cwd=folder)
        return folder / "run"

    return run


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("stage", "event"),
    [
        pytest.param("search", terminate_all, marks=pytest.mark.ci),
        ("search", terminate_twice),
        ("pool", end_raylet),
        ("final", end_gcs),
        ("start of Ray", end_gcs),
    ],
)
def test_a_search_that_loses_ray_stops_and_resumes(
    stage: str,
    event: Callable[[subprocess.Popen[bytes], str], None],
    undisturbed: Callable[[], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    mark = f"{request.node.name}-{os.getpid()}"
    monkeypatch.setenv(MARK, mark)
    process = start(*HNAS_COMMAND, "--max-concurrent", "2", "--out", "run", cwd=tmp_path)
    run = tmp_path / "run"
    starts = {
        "start of Ray": lambda: any(line.split(" ")[0].endswith("/raylet") for line in marked_processes(mark).values()),
        "pool": lambda: list(run.glob("pool/shards/*")),
        "search": lambda: epochs_trained(run / "search"),
    }
    wait_until(process, starts.get(stage, lambda: epochs_trained(run / "final")), tmp_path)
    size = (tmp_path / "log.txt").stat().st_size
    event(process, mark)
    try:
        ended = process.wait(timeout=SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    log_text = (tmp_path / "log.txt").read_bytes()[size:].decode()
    assert ended == 130, log_text
    wait_until_gone(mark)
    summary = archray.runs(tmp_path)[0]
    reason = "SIGTERM" if event in (terminate_all, terminate_twice) else "raylet" if event is end_raylet else "GCS"
    assert summary.state == "interrupted" and summary.reason is not None
    # A trial may have saved and so ended the Tune run, as after Ctrl-C, before the loss of Ray was noticed.
    assert reason in summary.reason or reason == "SIGTERM"
    assert f"archray resume {run}" in log_text and "Traceback" not in log_text
    assert plain_ray() or "raylet)" not in log_text
    finish("resume", "run", cwd=tmp_path)
    assert found_values(run) == found_values(undisturbed())


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stage", ["search", "final"])
def test_trials_killed_for_memory_are_trained_again(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray's memory monitor kills the process of every trial until no retries are left."""
    command: tuple[str, ...] = SUPERNETS
    if stage == "final":  # the search succeeds, and the final training has saved epochs
        process = start(*SEARCH_AND_FINAL, cwd=tmp_path)
        wait_until(process, lambda: epochs_trained(tmp_path / "run" / "final"), tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 130
        command = ("resume", "run")
    with monkeypatch.context() as short:
        short.setenv("RAY_memory_usage_threshold", "0.01")
        short.setenv("RAY_memory_monitor_refresh_ms", "100")
        assert start(*command, cwd=tmp_path).wait(timeout=PATIENCE) == 1
    log = (tmp_path / "log.txt").read_text()
    assert "memory" in log and "Traceback" not in log and "raylet" not in log
    assert stage == "final" or len(log.splitlines()) < 10
    summary = archray.runs(tmp_path)[0]
    assert summary.state == "failed" and summary.reason is not None and len(summary.reason.splitlines()) == 1
    finish("resume", "run", cwd=tmp_path)
    trials = pd.read_parquet(tmp_path / "run" / stage / "trials.parquet")
    assert len(trials) == (2 if stage == "search" else 1)
    assert trials.reindex(columns=["error"])["error"].isna().all()
