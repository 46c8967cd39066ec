"""NASI finds the same cells and scores after its driver was killed in every stage and resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from archray_test_command import finish, kill_when, logged, start
from archray_test_faults import results_of_run

from archray.trainables.spaces import get_space

STAGES = ("search", "agreement", "table", "selection", "final", "baseline")
COMMAND = (
    "search", "nasi", "--preset", "smoke", "--space", "nasbench201", "--data", "digits", "--seed", "3",
    "--search-seeds", "3", "--final-seeds", "2", "--random", "2", "--steps", "8", "--agreement", "6",
    "--agreement-table", "known.csv", "--agreement-rows", "30",
    "--max-concurrent", "1", "--set", "nasi.every=1", "--set", "cluster.dashboard=false",
)  # fmt: skip


def in_progress(stage: Path) -> bool:
    """Whether the stage has a reported trial or started scoring, and has not finished."""
    started = stage.name == "table" and (stage / "scoring.json").exists()
    return bool(started or logged(stage, "result")) and not (stage / "done.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nasi_killed_in_every_stage_finds_the_same(tmp_path: Path) -> None:
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    cells = sorted({space.encode(space.canonical(space.sample(rng))) for _ in range(60)})
    pd.DataFrame({"architecture": cells, "accuracy@1": range(len(cells))}).to_csv(tmp_path / "known.csv", index=False)
    finish(*COMMAND, "--out", "undisturbed", cwd=tmp_path)
    run = tmp_path / "killed"
    command = (*COMMAND, "--out", "killed")
    for stage in STAGES:
        process = start(*command, cwd=tmp_path)
        kill_when(process, lambda stage=stage: in_progress(run / stage), tmp_path)
        command = ("resume", "killed")
    finish(*command, cwd=tmp_path)
    assert results_of_run(run) == results_of_run(tmp_path / "undisturbed")
    for table in ("search/found.parquet", "agreement/agreement.parquet", "table/table.parquet"):
        one, other = (pd.read_parquet(folder / table) for folder in (run, tmp_path / "undisturbed"))
        own = [name for name in one if name.startswith(("trial_id", "seconds"))]
        pd.testing.assert_frame_equal(one.drop(columns=own), other.drop(columns=own))
