"""Ctrl-C loses nothing that was finished, and says how to continue."""

import signal

import pandas as pd
import pytest
from archray_test_command import HNAS_COMMAND, PATIENCE, epochs_trained, finish, start, wait_until
from typer.testing import CliRunner

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
    assert "of 200 architectures scored; they are saved" in (tmp_path / "log.txt").read_text()
    scored = sum(len(pd.read_parquet(part)) for part in parts.glob("part-*.parquet"))
    assert 0 < scored < 200
    monkeypatch.chdir(tmp_path)
    again = CliRunner().invoke(application(arguments), arguments)
    assert again.exit_code == 0 and f"{scored} of 200 architectures were scored before" in again.output, again.output
    assert len(pd.read_parquet(tmp_path / "pool.parquet")) == 200
    assert not (tmp_path / "pool.parquet.parts").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_loses_no_finished_epoch(tmp_path):
    """The first Ctrl-C lets every running trial save; the command that continues is told, and does not repeat them."""
    process = start(*HNAS_COMMAND, "--max-concurrent", "2", "--out", "run", cwd=tmp_path)
    stage = tmp_path / "run" / "search"
    wait_until(process, lambda: epochs_trained(stage), tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "log.txt").read_text()
    said = (tmp_path / "log.txt").read_text()
    assert "saved its next checkpoint" in said and f"archray resume {tmp_path / 'run'}" in said
    assert not (stage / "done.json").exists()
    finish("resume", "run", cwd=tmp_path)
    assert set(epochs_trained(stage).values()) == {3}, "every epoch of every trial was trained once"
