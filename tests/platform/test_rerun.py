"""Trials that ran out of memory run again with a larger share of a GPU, and the tables show their final outcome."""

import json
import subprocess
import sys

import pandas as pd
import pytest
from archray_test_command import finish, kill_when, start

from archray.platform.engine.trial_tables import enter_reruns, larger_share
from archray.searchers.ledger import Ledger


@pytest.mark.parametrize(
    ("share", "larger"),
    [(0.1, 0.2), (0.15, 0.3333), (0.2, 0.5), (0.25, 0.5), (0.3, 1), (0.3333, 1), (0.5, 1), (1, 1)],
)
def test_the_next_share_is_twice_as_large_and_leaves_nothing_idle(share, larger):
    assert larger_share(share) == larger


def test_a_trial_that_was_not_suggested_changes_no_state():
    ledger = Ledger()
    enter_reruns(ledger, {}, "accuracy")
    assert ledger.records == {}


@pytest.mark.slow
def test_trials_that_run_out_of_memory_are_run_again(repository, tmp_path):
    """Width 6 fails with a quarter of a GPU and trains with half of it. Width 8 fails even with a whole GPU."""
    space = repository / "tests" / "worker_modules" / "archray_test_memory.py"
    process = start(
        "search", "random", "--space", f"{space}:MemorySpace", "--data", "digits", "--preset", "smoke", "--budget", "6",
        "--epochs", "2", "--random", "0", "--gpus-per-trial", "0.25", "--out", "run",
        "--set", "cluster.dashboard=false", "--set", "cluster.num_gpus=1",
        "--set", "cluster.num_cpus=4", "--max-concurrent", "2", cwd=tmp_path,
    )  # fmt: skip
    search = tmp_path / "run" / "search"
    kill_when(
        process,
        lambda: any(b'"result"' in log.read_bytes() for log in search.glob("tune-*-again-0.5/log.jsonl")),
        cwd=tmp_path,
    )
    finish("resume", "run", cwd=tmp_path)

    log = (tmp_path / "log.txt").read_text()
    trials = pd.read_parquet(search / "trials.parquet")
    widths = trials["architecture"].str.extract(r"width=(\d)")[0]
    assert {"6", "8"} <= set(widths), "the seed samples none that runs out of memory"
    short = int(widths.isin(["6", "8"]).sum())
    assert "ran out of memory; rerunning with 0.5 GPUs each" in log
    assert f"{short} trial" in log
    assert trials["validation_accuracy"].isna().eq(widths == "8").all()
    assert trials.loc[widths == "8", "failure"].str.startswith("out of memory").all()
    assert trials["rerun_gpus"].fillna(0).tolist() == [{"4": 0, "6": 0.5, "8": 1}[width] for width in widths]
    assert trials["trial_id"].tolist() == [f"{number:05d}" for number in range(1, 7)]  # their first ids
    curves = pd.read_parquet(search / "curves.parquet")
    assert set(curves["trial_id"]) == set(trials["trial_id"])
    assert curves[curves["trial_id"].isin(trials.loc[widths != "8", "trial_id"])].groupby("trial_id").size().eq(2).all()
    report = (tmp_path / "run" / "report.html").read_text()
    assert f"{short} trials of the search ran out of memory, and ran again" in report
    found = json.loads((tmp_path / "run" / "architecture.json").read_text())
    assert "width=8" not in found["architecture"]
    state = json.loads((search / "searcher.json").read_text())
    values = {record["trial_id"]: record["value"] for record in state["ledger"]["records"]}
    assert values == {
        trial_id: None if pd.isna(value) else value
        for trial_id, value in zip(trials["trial_id"], trials["validation_accuracy"], strict=True)
    }


SCORING = """
import ray
import torch
from rich.console import Console

from archray.cluster.settings import ResourceSettings
from archray.files import Folder
from archray.platform.engine.pool_scoring import score_in_shards

NEEDED = {"a": 0.0, "b": 0.5, "c": 0.0, "d": 2.0}  # the last never fits


class Scorer:
    def __call__(self, architecture):
        share = ray.get_runtime_context().get_assigned_resources()["GPU"]
        if share >= NEEDED[architecture]:
            return {"share": share, "failure": None}
        if architecture == "b":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than the share")
        return {"failure": "naswot: out of memory"}


ray.init(address="local", num_cpus=1, num_gpus=1, include_dashboard=False, log_to_driver=False,
         _node_ip_address="127.0.0.1")
for _ in range(2):  # the second call reads the scores
    table = score_in_shards(
        Folder(FOLDER).create(), list("abcd"), worker=Scorer, worker_kwargs={},
        types={"share": "float64", "failure": "string"}, resources=ResourceSettings(trials_per_gpu=4),
        console=Console(width=200),
    )
print(table["architecture"].tolist(), table["share"].tolist())
print(table["failure"].tolist())
"""


@pytest.mark.slow
def test_architectures_that_run_out_of_memory_are_scored_again(tmp_path):
    script = SCORING.replace("FOLDER", repr(str(tmp_path)))
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "['a', 'b', 'c', 'd'] [0.25, 0.5, 0.25, nan]" in run.stdout
    assert "[<NA>, <NA>, <NA>, 'naswot: out of memory']" in run.stdout
    for line in ("2 architectures ran out of memory; scoring again with 0.5 GPUs", "1 architecture ran out of memory"):
        assert run.stdout.count(line) == 2
