"""`--train-workers 2`: a final training with two workers that is killed and resumed equals one with a single worker."""

import pandas as pd
import pytest
from archray_test_command import ended_trials, finish, kill_when, start

from archray.trainables.tune.standalone_trainable import METRICS

SEARCH = (
    "search", "random", "--data", "digits", "--preset", "smoke", "--budget", "1", "--random", "0", "--epochs", "1",
    "--final-epochs", "5", "--set", "cluster.dashboard=false", "--set", "data.limit=90",
    "--set", "final.batch_size=16", "--set", "final.augmentation.crop=1",
    "--set", "final.lr=0.02",  # at 0.1 rounding differences of a sum become visible after five epochs
)  # fmt: skip


def final_curve(run):
    table = pd.read_parquet(run / "final" / "curves.parquet").sort_values("epoch", ignore_index=True)
    return table[[*METRICS, "epoch"]]


@pytest.mark.slow
def test_a_killed_final_training_with_two_workers_resumes(tmp_path):
    finish(*SEARCH, "--out", "one", cwd=tmp_path)
    process = start(*SEARCH, "--train-workers", "2", "--out", "two", cwd=tmp_path)
    final = tmp_path / "two" / "final"
    kill_when(process, lambda: any(final.glob("tune-*/*/*/checkpoint_000001")), cwd=tmp_path)
    assert ended_trials(final) == []
    finish("resume", "two", cwd=tmp_path)
    one, two = final_curve(tmp_path / "one"), final_curve(tmp_path / "two")
    assert two["epoch"].tolist() == list(range(1, 6))
    for metric in METRICS:
        assert two[metric].tolist() == pytest.approx(one[metric].tolist(), rel=1e-3, abs=1e-3, nan_ok=True), metric
    log = (tmp_path / "log.txt").read_text()
    assert "1 trial at a time, 2 workers per trial, 1 CPU and 0 GPUs each" in log
    assert (tmp_path / "two" / "model" / "state_dict.pt").exists()
