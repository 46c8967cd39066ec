"""A run killed (SIGKILL) in every stage ends as an undisturbed one, and does nothing twice that was finished."""

import json
import signal
from pathlib import Path

import pandas as pd
import pytest
from archray_test_command import PATIENCE, ended_trials, finish, kill_when, start, wait_until

import archray

COMMAND = (
    "search", "hnas", "--preset", "smoke", "--pool-size", "16", "--budget", "4", "--epochs", "3", "--final-epochs", "4",
    "--final-seeds", "3", "--random", "3", "--seed", "3",
    "--set", "cluster.dashboard=false", "--set", "pool.chunk=2",
    "--set", "train.batch_size=16", "--set", "final.batch_size=16",
)  # fmt: skip
TRAINING_STAGES = ("search", "final", "baseline")


def shards(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.glob("pool/shards/part-*.parquet")}


def some_but_not_all_ended(stage: Path) -> bool:
    return bool(ended_trials(stage)) and not (stage / "done.json").exists()


def epochs_trained(stage: Path) -> dict[str, int]:
    """How many epochs each trial trained, over all its attempts: one that ran twice has more than its epochs.

    An epoch that is only reported again has the time that it took the first time.
    """
    counts = {}
    for log in stage.glob("tune-*/results/*.jsonl"):
        told = [json.loads(line) for line in log.read_text().splitlines()]
        counts[log.stem] = len({(result["epoch"], result["seconds_epoch"]) for result in told})
    return counts


def values(run: Path) -> dict:
    """All that a run found, without ids and times."""
    pool = pd.read_parquet(run / "pool" / "pool.parquet").drop(columns="seconds")
    trials = pd.read_parquet(run / "trials.parquet")
    columns = ["stage", "architecture", "seed", "validation_accuracy", "validation_loss", "test_accuracy", "epoch"]
    asked = pd.read_parquet(run / "search" / "asked.parquet")
    return {
        "found": json.loads((run / "architecture.json").read_text()),
        "pool": pool.to_json(double_precision=15),
        "asked": asked.to_json(double_precision=15),
        "trials": trials[columns].sort_values(["stage", "seed"]).to_json(orient="records", double_precision=15),
    }


@pytest.mark.parametrize("concurrent", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.timeout(900)
def test_killed_in_every_stage(tmp_path, concurrent):
    arguments = (*COMMAND, "--max-concurrent", str(concurrent))
    finish(*arguments, "--out", "undisturbed", cwd=tmp_path)

    run = tmp_path / "killed"
    process = start(*arguments, "--out", "killed", cwd=tmp_path)
    kill_when(process, lambda: shards(run) and not (run / "pool" / "done.json").exists(), tmp_path)
    kept = shards(run)

    finished: dict[str, dict[str, int]] = {}
    for stage in TRAINING_STAGES:
        process = start("resume", "killed", cwd=tmp_path)
        kill_when(process, lambda stage=stage: some_but_not_all_ended(run / stage), tmp_path)
        epochs = epochs_trained(run / stage)
        finished[stage] = {trial: epochs[trial] for trial in ended_trials(run / stage)}
    finish("resume", "killed", cwd=tmp_path)

    after = shards(run)
    assert {name: after[name] for name in kept} == kept, "no scored chunk was scored again"
    scored = [row for name in after for row in pd.read_parquet(run / "pool" / "shards" / name)["architecture"]]
    assert len(scored) == len(set(scored)) == 16
    for stage, counts in finished.items():
        assert counts, "at least one trial had finished"
        now = epochs_trained(run / stage)
        assert {trial: now[trial] for trial in counts} == counts, f"no finished trial of {stage} ran again"
    assert len(epochs_trained(run / "search")) == 4
    assert values(run) == values(tmp_path / "undisturbed")


@pytest.mark.timeout(600)
def test_a_finished_run_is_extended(ray_session, tmp_path):
    """`resume` with a larger budget goes on where the search ended, with the trials that it would have had."""
    options = {"preset": "smoke", "seed": 3, "pool_size": 16, "random": 1, "max_concurrent": 2}
    archray.search("hnas", **options, budget=5, out=tmp_path / "long")
    archray.search("hnas", **options, budget=3, out=tmp_path / "run")
    before = epochs_trained(tmp_path / "run" / "search")
    archray.resume(tmp_path / "run", budget=5)
    now = epochs_trained(tmp_path / "run" / "search")
    assert {trial: now[trial] for trial in before} == before and len(now) == 5
    assert values(tmp_path / "run") == values(tmp_path / "long")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["config"]["search"]["budget"] == 5
    assert manifest["amended"][0]["replaced"]["search"]["budget"] == 3


@pytest.mark.timeout(600)
def test_ctrl_c_loses_no_scored_architecture(tmp_path):
    """The first Ctrl-C while a pool is scored waits for the chunks under way."""
    arguments = ("proxies", "--size", "400", "--chunk", "1", "--channels", "4", "--cells", "1", "--batch-size", "32")
    process = start(*arguments, cwd=tmp_path)
    parts = tmp_path / "pool.parquet.parts" / "shards"
    wait_until(process, lambda: list(parts.glob("part-*.parquet")), tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "log.txt").read_text()
    assert "of 400 architectures scored; they are saved" in (tmp_path / "log.txt").read_text()
    scored = sum(len(pd.read_parquet(part)) for part in parts.glob("part-*.parquet"))
    assert 0 < scored < 400
    finish(*arguments, cwd=tmp_path)
    assert len(pd.read_parquet(tmp_path / "pool.parquet")) == 400
    assert not (tmp_path / "pool.parquet.parts").exists()


@pytest.mark.timeout(600)
def test_ctrl_c_loses_no_finished_epoch(tmp_path):
    """The first Ctrl-C lets every running trial save; the command that continues is told, and does not repeat them."""
    process = start(*COMMAND, "--max-concurrent", "2", "--out", "run", cwd=tmp_path)
    stage = tmp_path / "run" / "search"
    wait_until(process, lambda: epochs_trained(stage), tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE) == 130, (tmp_path / "log.txt").read_text()
    said = (tmp_path / "log.txt").read_text()
    assert "saved its next checkpoint" in said and f"archray resume {tmp_path / 'run'}" in said
    assert not (stage / "done.json").exists()
    finish("resume", "run", cwd=tmp_path)
    assert set(epochs_trained(stage).values()) == {3}, "every epoch of every trial was trained once"
