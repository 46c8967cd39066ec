"""Ctrl-C loses nothing that was finished, and says how to continue."""

import shlex
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
from archray_test_command import HNAS_COMMAND, PATIENCE, epochs_trained, finish, start, wait_until
from typer.testing import CliRunner

import archray
from archray.platform.cli import application


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_loses_no_scored_architecture(ray_session, tmp_path, monkeypatch):
    """The first Ctrl-C while a pool is scored waits for the chunks under way; the same command does the others."""
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
    """The first Ctrl-C lets every running trial save; the command that continues is told, and does not repeat them.

    The run's name has what a shell, a URI and Ray's metrics treat in a way of their own.
    """
    name = "größe 😀/it's $1 #2 50%?[/b]"
    command = (*HNAS_COMMAND, "--max-concurrent", "2", "--out", name)
    process = start(*command, cwd=tmp_path, patience=PATIENCE)  # a busy machine trains an epoch in more than 10 s
    stage = tmp_path / name / "search"
    wait_until(process, lambda: epochs_trained(stage), tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "log.txt").read_text()
    said = (tmp_path / "log.txt").read_text()
    assert "their results are saved" in said, said  # all saved, and not the end after the patience
    assert "saved its next checkpoint" in said and f"archray resume {shlex.quote(str(tmp_path / name))}" in said
    assert not (stage / "done.json").exists()
    finish("resume", name, cwd=tmp_path)
    assert set(epochs_trained(stage).values()) == {3}, "every epoch of every trial was trained once"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_does_not_wait_for_a_long_epoch(tmp_path):
    """Once: it ends within seconds, long before the epoch does; twice: at once. Both can be resumed."""
    long = ("--set", "network.channels=64", "--set", "network.cells=5", "--set", "train.batch_size=4")
    process = start(*HNAS_COMMAND, *long, "--max-concurrent", "2", "--out", "run", cwd=tmp_path)
    stage = tmp_path / "run" / "search"
    for presses in (1, 2):
        if presses == 2:
            process = start("resume", "run", cwd=tmp_path)
        before = (tmp_path / "log.txt").stat().st_size
        wait_until(process, lambda before=before: "2 trials at a time" in log_after(tmp_path, before), tmp_path)
        begun = time.time()
        wait_until(process, lambda begun=begun: len(started_since(stage, begun)) == 2, tmp_path)
        for press in range(presses):
            process.send_signal(signal.SIGINT)
            if press + 1 < presses:
                wait_until(process, lambda before=before: "again to stop" in log_after(tmp_path, before), tmp_path)
        assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "log.txt").read_text()
        said = log_after(tmp_path, before)
        assert "stopped; finished work is saved" in said and f"archray resume {tmp_path / 'run'}" in said
        assert epochs_trained(stage) == {}, "it waited for an epoch"
        assert archray.runs(tmp_path)[0].state == "interrupted"


def started_since(stage: Path, moment: float) -> list[Path]:
    """The trials that started after a moment; one that is restored starts again."""
    return [trial for trial in stage.glob("tune-*/started/*.json") if trial.stat().st_mtime > moment]


def log_after(folder: Path, size: int) -> str:
    return (folder / "log.txt").read_bytes()[size:].decode()
