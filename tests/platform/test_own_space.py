"""A user's own space under HNAS: killed, and resumed from another folder after the file has gone."""

import json
import shutil
import subprocess
import sys

import pandas as pd
import pytest
from archray_test_command import finish, kill_when, start

import archray
from archray.trainables.spaces import get_space


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_example_killed_and_resumed_elsewhere(repository, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    shutil.copy(repository / "examples" / "own_space.py", here)
    process = start(
        "search", "hnas", "--space", "own_space.py:ResidualSpace", "--data", "digits", "--preset", "smoke",
        "--pool-size", "6", "--budget", "2", "--random", "0", "--final-epochs", "1", "--max-concurrent", "1",
        "--out", "run", "--set", "cluster.dashboard=false", "--set", "pool.chunk=1", "--set", "resources.actors=1",
        cwd=here,
    )  # fmt: skip
    run = here / "run"
    kill_when(process, lambda: list(run.glob("pool/shards/part-*.parquet")), here)

    example = here / "own_space.py"
    source = example.read_bytes()
    example.unlink()  # the run's copy must be enough
    finish("resume", str(run), cwd=elsewhere)

    found = json.loads((run / "architecture.json").read_text())
    space = get_space(f"{run}/code/space/own_space.py:ResidualSpace")
    assert space.encode(space.decode(found["architecture"])) == found["architecture"]
    assert (run / "code" / "space" / "own_space.py").read_bytes() == source
    trials = pd.read_parquet(run / "trials.parquet")
    assert trials["failure"].isna().all() and len(trials) == 2 + 1

    # an export brings the file along
    archray.export(run, elsewhere / "export")
    told = subprocess.run(
        [sys.executable, "load_model.py"], cwd=elsewhere / "export", capture_output=True, text=True, timeout=120
    )
    assert told.returncode == 0 and "Sequential" in told.stdout, told.stderr
