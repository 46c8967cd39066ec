"""A search whose driver is killed (SIGKILL) at five random moments gives the results of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from archray_test_command import MARK, PATIENCE, start, wait_until_gone
from archray_test_faults import options_of, results_of_run, steps_trained
from archray_test_run_files import undescribed_names
from archray_test_runs import as_arguments

import archray

KILLS = 5
AT_A_TIME = 2  # trials


def files(run: Path) -> set[str]:
    """Returns all files of a run. `os.walk` ignores files that are deleted meanwhile."""
    walked = os.walk(run)
    return {os.path.join(at, name) for at, inner, names in walked for name in inner + names if name[0] != "."}


@contextmanager
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Sets a temporary folder for commands that start in the block.

    Its path is short because Ray's sockets are in it.
    """
    with tempfile.TemporaryDirectory(prefix="at-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)
        monkeypatch.delenv("TMPDIR")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", ["gaea-darts", "nesbs"])  # test_resume.py kills hnas
def test_a_driver_killed_five_times_finds_the_same(
    method: str,
    undisturbed: Callable[..., archray.RunResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the driver is killed; its child processes must stop without help.

    A moment is a number of files in the run.
    """
    expected, run, mark = Path(undisturbed(method, AT_A_TIME).path), tmp_path / "run", f"{method}-{os.getpid()}"
    monkeypatch.setenv(MARK, mark)
    moments = sorted(random.Random(method).sample(range(1, len(files(expected))), KILLS))
    arguments = ["search", method, *as_arguments(options_of(method, AT_A_TIME)), "--out", "run"]
    arguments += ["--set", "cluster.dashboard=false"]
    seen: set[str] = set()
    with temporary_folder(monkeypatch) as temporary:
        for moment in moments:
            process = start(*arguments, cwd=tmp_path)
            least = max(moment, len(seen) + 1)
            while len(seen) < least or not (run / "manifest.json").exists():
                assert process.poll() is None, "it ended too early: " + (tmp_path / "log.txt").read_text()
                seen |= files(run)
                time.sleep(0.005)
            process.kill()
            assert process.wait() == -signal.SIGKILL
            arguments = ["resume", "run"]
        process = start(*arguments, cwd=tmp_path)
        assert process.wait(timeout=2 * PATIENCE) == 0, (tmp_path / "log.txt").read_text()
        wait_until_gone(mark)  # once: some processes of Ray need up to a minute to notice the death of the head
        assert list(temporary.glob("archray-*")) == [], "Ray and torch leave files under their names"
    assert results_of_run(run) == results_of_run(expected)
    assert undescribed_names(run) == []
    for stage in {path.parent.parent.name for path in expected.glob("*/tune-*/log.jsonl")}:
        once, now = steps_trained(expected / stage), steps_trained(run / stage)
        assert len(now) == len(once)
        assert sum(now.values()) <= sum(once.values()) + KILLS * AT_A_TIME, "a kill costs each running trial one epoch"
