"""A run killed (SIGKILL) in every stage equals an undisturbed run and repeats no finished work."""

from pathlib import Path

import pandas as pd
import pytest
from archray_test_command import HNAS_COMMAND, ended_trials, epochs_trained, finish, found_values, kill_when, start
from archray_test_runs import RUNS, as_arguments

import archray

TRAINING_STAGES = ("search", "final", "baseline")


def shards(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.glob("pool/shards/part-*.parquet")}


def some_but_not_all_ended(stage: Path) -> bool:
    return bool(ended_trials(stage)) and not (stage / "done.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("concurrent", [1, 2])
@pytest.mark.timeout(900)
def test_a_run_killed_in_every_stage_resumes(tmp_path, concurrent):
    arguments = (*HNAS_COMMAND, "--max-concurrent", str(concurrent))
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
    assert found_values(run) == found_values(tmp_path / "undisturbed")


@pytest.mark.slow
@pytest.mark.ci
def test_a_run_killed_and_moved_resumes(finished_run, tmp_path):
    """The folder is moved during the search, with one finished trial and others in progress.

    It resumes in this process with another Ray.
    """
    arguments = as_arguments(RUNS["hnas"])
    process = start("search", "hnas", *arguments, "--out", "run", "--set", "cluster.dashboard=false", cwd=tmp_path)
    kill_when(process, lambda: some_but_not_all_ended(tmp_path / "run" / "search"), tmp_path)
    run = (tmp_path / "run").rename(tmp_path / "elsewhere")
    trained = epochs_trained(run / "search")
    finished = {trial: trained[trial] for trial in ended_trials(run / "search")}
    archray.resume(run)
    now = epochs_trained(run / "search")
    assert finished and {trial: now[trial] for trial in finished} == finished
    assert len(now) == RUNS["hnas"]["budget"]
    assert found_values(run) == found_values(Path(finished_run("hnas").path))
    assert not (tmp_path / "run").exists(), "nothing is written to the old place"
