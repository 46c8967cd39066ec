"""`archray watch` shows a running run without writing anything, and stops with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from archray_test_command import PATIENCE, start, wait_until
from archray_test_runs import RUNS, as_arguments

import archray
from archray.files import Folder
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import DONE, SUMMARY
from archray.platform.run.run_summary import RunSummary


@pytest.fixture
def running_copy(finished_run: Callable[[str], archray.RunResult], tmp_path: Path) -> Path:
    """A copy of a run in the state during its search."""
    run = Path(shutil.copytree(finished_run("hnas").path, tmp_path / "run"))
    summary = json.loads((run / SUMMARY).read_text())
    for stage in summary["stages"][1:]:
        stage.update(state="waiting", seconds=None, finished=None)
        (run / stage["name"] / DONE).unlink()
    summary["stages"][1]["state"] = summary["state"] = "running"
    (run / SUMMARY).write_text(json.dumps(summary))
    return run


def files(folder: Path) -> dict[str, int]:
    """Returns all files in a folder with their modification times."""
    return {str(path): path.lstat().st_mtime_ns for path in (folder, *folder.rglob("*"))}


def watch_process(run: Path, *options: str) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-m", "archray.platform.cli", "watch", str(run), "--interval", "0.1", *options]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_one_view_shows_everything_and_writes_nothing(running_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with lock(Folder(running_copy), "test"):
        before = files(running_copy)
        summary = archray.watch(running_copy, once=True)
        assert files(running_copy) == before
    printed = capsys.readouterr().out
    assert summary.state == "running" and "hnas on nasbench201, digits" in printed
    assert "4 of 4 trials" in printed and "final" in printed
    best = max(row["validation_accuracy"] for row in summary.listings[0].rows)
    assert f"best     validation accuracy (search) {100 * best:.2f} %" in printed
    assert "of finished trials" in printed and "█" in printed


def test_a_watch_stops_with_the_run(running_copy: Path) -> None:
    with lock(Folder(running_copy), "test"):
        process = watch_process(running_copy)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("search: 4 of 4 trials"), line
        summary = json.loads((running_copy / SUMMARY).read_text())
        (running_copy / SUMMARY).write_text(json.dumps({**summary, "state": "done"}))
        rest = process.stdout.read()
        assert process.wait(timeout=PATIENCE) == 0 and "done" in rest, rest


def test_a_watch_reports_an_interrupted_run(running_copy: Path) -> None:
    process = watch_process(running_copy)  # no process works on it
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and "archray resume" in output, output


@pytest.mark.parametrize("view", [archray.show, partial(archray.watch, once=True)])
def test_an_interrupted_run_shows_the_finished_trials_of_its_stage(
    running_copy: Path, capsys: pytest.CaptureFixture[str], view: Callable[[Path], RunSummary]
) -> None:
    before, after = view(running_copy).listings  # of the finished run, and of the log
    assert "finished trials of the stage search, best first" in capsys.readouterr().out
    for key in ("validation_accuracy", "architecture"):
        assert [row[key] for row in after.rows] == [row[key] for row in before.rows]
    next(running_copy.glob("search/tune-*/log.jsonl")).write_bytes(b"no event\n" * 2)
    assert view(running_copy).state == "interrupted"


def test_ctrl_c_stops_only_the_watch(running_copy: Path) -> None:
    with lock(Folder(running_copy), "test"):
        process = watch_process(running_copy)
        assert process.stdout is not None and process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 130
        assert "resume" not in process.stdout.read(), "the run continues"


@pytest.mark.slow
def test_a_run_is_watched_from_its_first_stage_to_its_end(tmp_path: Path) -> None:
    arguments = as_arguments(RUNS["hnas"])
    process = start("search", "hnas", *arguments, "--out", "run", "--set", "cluster.dashboard=false", cwd=tmp_path)
    wait_until(process, lambda: (tmp_path / "run" / SUMMARY).exists(), tmp_path)
    watcher = watch_process(tmp_path / "run")
    output, _ = watcher.communicate(timeout=2 * PATIENCE)
    assert process.wait(timeout=PATIENCE) == 0, (tmp_path / "log.txt").read_text()
    assert watcher.returncode == 0 and os.path.exists(tmp_path / "run" / "report.html"), output
    for words in (
        "pool: ",
        "of 10 architectures",
        "search: 1 of 4 trials",
        "best validation accuracy (search)",
        "done",
    ):
        assert words in output, output
    assert "final: " in output and "baseline: " in output
