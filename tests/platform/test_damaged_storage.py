"""A run whose disk was full when a trial saved, and a run whose last checkpoint was cut off, lose no result."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from archray_test_command import PATIENCE, ended_trials, finish, found_values, kill_when, start, wait_until

from archray.files import Folder
from archray.platform.run.trial_log import read_log

COMMAND = (
    "search", "hnas", "--preset", "smoke", "--pool-size", "8", "--budget", "2", "--epochs", "8", "--final-epochs", "2",
    "--random", "1", "--seed", "3", "--max-concurrent", "1", "--set", "resources.actors=1",
    "--set", "cluster.dashboard=false", "--set", "train.batch_size=16", "--set", "final.batch_size=16",
)  # fmt: skip
DISK = 2**25  # bytes; such a run takes about four million


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a separate small disk."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a file system: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of the search."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(*COMMAND, "--out", "run", cwd=folder)
    return found_values(folder / "run")


def checkpoints(stage: Path) -> list[Path]:
    """Returns the existing checkpoints of the training trial that the log names, with the last one at the end."""
    for log in stage.glob("tune-*/log.jsonl"):
        logged = read_log(Folder(log.parent))
        for trial in logged.open_trials if logged else ():
            places = [log.parent / checkpoint.path for checkpoint in trial.checkpoints]
            return [place for place in places if place.exists()]
    return []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_full_disk_at_a_checkpoint_loses_nothing(
    small_disk: Path, tmp_path: Path, undisturbed: dict[str, Any]
) -> None:
    run = small_disk / "run"
    process = start(*COMMAND, "--out", str(run), cwd=tmp_path)
    wait_until(process, lambda: checkpoints(run / "search"), tmp_path)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        while free(small_disk) > 4096:  # the next file does not fit, most likely a checkpoint
            file.write(b"\0" * 4096)
    assert process.wait(timeout=PATIENCE) == 1, (tmp_path / "log.txt").read_text()
    log = " ".join((tmp_path / "log.txt").read_text().split())
    assert "Traceback" not in log, log
    assert "is full; finished work is saved. Free space there" in log, log
    assert f"Continue with: archray resume {run}" in log, log
    ballast.unlink()
    finish("resume", str(run), cwd=tmp_path)
    assert found_values(run) == undisturbed


def free(place: Path) -> int:
    disk = os.statvfs(place)
    return disk.f_bavail * disk.f_frsize


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("damaged", [1, 2])
def test_a_truncated_checkpoint_loses_nothing(tmp_path: Path, undisturbed: dict[str, Any], damaged: int) -> None:
    """If the last checkpoint is damaged, the trial resumes from the one before. If all are, it starts again."""
    run = tmp_path / "run"
    process = start(*COMMAND, "--out", "run", cwd=tmp_path)
    kill_when(process, lambda: len(checkpoints(run / "search")) == 2, tmp_path)
    ended = ended_trials(run / "search")
    for checkpoint in checkpoints(run / "search")[-damaged:]:
        os.truncate(checkpoint / "state.pt", (checkpoint / "state.pt").stat().st_size // 2)
    finish("resume", "run", cwd=tmp_path)
    log = " ".join((tmp_path / "log.txt").read_text().split())
    assert "the trial " + ("resumes from the previous checkpoint" if damaged == 1 else "restarts") in log, log
    assert set(ended) <= set(ended_trials(run / "search"))
    assert found_values(run) == undisturbed
