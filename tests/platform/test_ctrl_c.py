"""Ctrl-C loses no finished work and prints how to resume."""

import shlex
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
from archray_test_command import HNAS_COMMAND, PATIENCE, epochs_trained, finish, logged, start, wait_until
from typer.testing import CliRunner

import archray
from archray.platform.cli import application


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_loses_no_scored_architecture(ray_session, tmp_path, monkeypatch):
    """After the first Ctrl-C, the scoring of a pool finishes its running chunks. The same command scores the rest."""
    arguments = ("proxies", "--size", "200", "--chunk", "1", "--channels", "2", "--cells", "1", "--batch-size", "16")
    process = start(*arguments, cwd=tmp_path)
    parts = tmp_path / "pool.parquet.parts" / "shards"
    wait_until(process, lambda: list(parts.glob("part-*.parquet")), tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "log.txt").read_text()
    assert "of 200 architectures; the scores are saved" in (tmp_path / "log.txt").read_text()
    scored = sum(len(pd.read_parquet(part)) for part in parts.glob("part-*.parquet"))
    assert 0 < scored < 200
    monkeypatch.chdir(tmp_path)
    again = CliRunner().invoke(application(arguments), arguments)
    assert again.exit_code == 0 and f"{scored} of 200 architectures already scored" in again.output, again.output
    assert len(pd.read_parquet(tmp_path / "pool.parquet")) == 200
    assert not (tmp_path / "pool.parquet.parts").exists()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(600)
def test_ctrl_c_loses_no_finished_epoch(tmp_path):
    """After the first Ctrl-C, every running trial saves. The resumed command does not repeat its epochs.

    The name of the run contains characters with a special meaning in a shell, a URI and Ray's metrics.
    """
    name = "größe 😀/it's $1 #2 50%?[/b]"
    command = (*HNAS_COMMAND, "--max-concurrent", "2", "--out", name)
    process = start(*command, cwd=tmp_path, patience=PATIENCE)  # a busy machine trains an epoch in more than 10 s
    stage = tmp_path / name / "search"
    wait_until(process, lambda: epochs_trained(stage), tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "log.txt").read_text()
    log = (tmp_path / "log.txt").read_text()
    # All trials saved; the command did not stop at the end of its patience
    assert "their results are saved" in log, log
    assert "saved its next checkpoint" in log and f"archray resume {shlex.quote(str(tmp_path / name))}" in log
    assert not (stage / "done.json").exists()
    finish("resume", name, cwd=tmp_path)
    assert set(epochs_trained(stage).values()) == {3}, "every epoch of every trial was trained once"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_does_not_wait_for_a_long_epoch(tmp_path):
    """One Ctrl-C stops the command within seconds, long before the epoch ends, and two stop it at once.

    Both runs can be resumed.
    """
    long = ("--set", "network.channels=64", "--set", "network.cells=5", "--set", "train.batch_size=4")
    process = start(*HNAS_COMMAND, *long, "--max-concurrent", "2", "--out", "run", cwd=tmp_path)
    stage = tmp_path / "run" / "search"
    for presses in (1, 2):
        if presses == 2:
            process = start("resume", "run", cwd=tmp_path)
        before = (tmp_path / "log.txt").stat().st_size
        wait_until(process, lambda before=before: "2 trials at a time" in log_after(tmp_path, before), tmp_path)
        start_time = time.time()
        wait_until(
            process,
            lambda start_time=start_time: sum(entry["time"] > start_time for entry in logged(stage, "started")) == 2,
            tmp_path,
        )
        for press in range(presses):
            process.send_signal(signal.SIGINT)
            if press + 1 < presses:
                wait_until(process, lambda before=before: "again to stop" in log_after(tmp_path, before), tmp_path)
        assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "log.txt").read_text()
        log = log_after(tmp_path, before)
        assert "stopped; finished work is saved" in log and f"archray resume {tmp_path / 'run'}" in log
        assert epochs_trained(stage) == {}, "it waited for an epoch"
        assert archray.runs(tmp_path)[0].state == "interrupted"


def log_after(folder: Path, size: int) -> str:
    return (folder / "log.txt").read_bytes()[size:].decode()
