"""Runs the `archray` command in a separate process that a test can wait for or kill."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd

from archray.platform.run.trial_log import LOG

PATIENCE = 300  # seconds that one step may take on a busy machine before it counts as stuck
MARK = "ARCHRAY_TEST_RUN"  # in the environment of a command and its child processes


HNAS_COMMAND = (
    "search", "hnas", "--preset", "smoke", "--pool-size", "16", "--budget", "4", "--epochs", "3", "--final-epochs", "4",
    "--final-seeds", "3", "--random", "3", "--seed", "3",
    "--set", "cluster.dashboard=false", "--set", "pool.chunk=2",
    "--set", "train.batch_size=16", "--set", "final.batch_size=16",
)  # fmt: skip


def outputs_without_archray(export: Path, images: Any) -> Any:
    """Returns the outputs of an exported model for images, computed without archray."""
    import torch  # not at the top: most commands do not need it

    code = (
        "import sys; sys.modules['archray'] = None\n"
        "import torch, load_model; model = load_model.load_model().eval()\n"
        "torch.save(model(torch.load('images.pt')).detach(), 'outputs.pt')"
    )
    torch.save(images, export / "images.pt")
    subprocess.run([sys.executable, "-c", code], cwd=export, check=True, timeout=PATIENCE)
    return torch.load(export / "outputs.pt")


def start(*arguments: str, cwd: Path, patience: float | None = None) -> subprocess.Popen:
    """Starts the command and appends its output to `cwd/log.txt`.

    patience: seconds that trials have to save after Ctrl-C; None: the default for users.
    """
    program = ["-m", "archray.platform.cli"]
    if patience is not None:
        change = f"from archray.platform.durable import interrupt; interrupt.PATIENCE_SECONDS = {patience}"
        program = ["-c", f"{change}\nfrom archray.platform.cli import main; main()"]
    with open(cwd / "log.txt", "a") as log:
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=cwd,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def finish(*arguments: str, cwd: Path) -> None:
    """Runs the command to its end and checks that it succeeds."""
    assert start(*arguments, cwd=cwd).wait(timeout=2 * PATIENCE) == 0, (cwd / "log.txt").read_text()


def wait_until(process: subprocess.Popen, condition: Callable[[], object], cwd: Path) -> None:
    """Returns as soon as `condition` holds; the process must not have ended before."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, "it ended too early: " + (cwd / "log.txt").read_text()
        if time.monotonic() > deadline:
            os.killpg(process.pid, signal.SIGKILL)  # otherwise it would continue next to the other tests
            raise AssertionError("it took too long: " + (cwd / "log.txt").read_text())
        time.sleep(0.005)


def kill_when(process: subprocess.Popen, condition: Callable[[], object], cwd: Path) -> None:
    """Kills the driver and all its child processes as soon as `condition` holds."""
    wait_until(process, condition, cwd)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def marked_processes(mark: str) -> dict[int, str]:
    """Returns the processes with the mark in their environment: id -> command line."""
    lines = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                lines[int(process.name)] = line
        except OSError:  # it has ended
            continue
    return lines


def wait_until_gone(mark: str, kind: str = "") -> None:
    """Returns once no process with the mark has `kind` in its command line."""
    deadline = time.monotonic() + PATIENCE
    while left := [line for line in marked_processes(mark).values() if kind in line]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def logged(stage: Path, event: str) -> list[dict[str, Any]]:
    """Returns the events of one kind in the logs of a stage, including results that a resumed trial repeated."""
    events = []
    for log in sorted(stage.glob(f"tune-*/{LOG}")):
        for line in log.read_text().splitlines():
            with suppress(ValueError):  # an incomplete line
                events.append(json.loads(line))
    return [entry for entry in events if entry["event"] == event]


def ended_trials(stage: Path) -> list[str]:
    return [entry["trial"] for entry in logged(stage, "ended") if not entry.get("error")]


def epochs_trained(stage: Path) -> dict[str, int]:
    """Returns the number of epochs of each trial over all its attempts; repeated epochs count twice.

    An epoch that is only reported again keeps its first time, and counts once.
    """
    epochs: dict[str, set[Any]] = {}
    for entry in logged(stage, "result"):
        result = entry["result"]
        epochs.setdefault(entry["trial"], set()).add((result["epoch"], result["seconds_epoch"]))
    return {trial: len(seconds) for trial, seconds in epochs.items()}


def found_values(run: Path) -> dict:
    """Returns all results of a run without ids and times."""
    pool = pd.read_parquet(run / "pool" / "pool.parquet").drop(columns="seconds")
    trials = pd.read_parquet(run / "trials.parquet")
    columns = ["stage", "architecture", "seed", "validation_accuracy", "validation_loss", "test_accuracy", "epoch"]
    asked = pd.read_parquet(run / "search" / "suggestions.parquet")
    return {
        "found": json.loads((run / "architecture.json").read_text()),
        "pool": pool.to_json(double_precision=15),
        "asked": asked.to_json(double_precision=15),
        "trials": trials[columns].sort_values(["stage", "seed"]).to_json(orient="records", double_precision=15),
    }
