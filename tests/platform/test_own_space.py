"""A user's own space under HNAS: killed, and resumed from another folder after the file has gone."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from archray.trainables.spaces import get_space


def archray(*arguments, cwd):
    log = open(cwd / "log.txt", "a")  # noqa: SIM115  # the process writes to it
    return subprocess.Popen(
        [sys.executable, "-m", "archray.platform.cli", *arguments],
        cwd=cwd,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


@pytest.mark.timeout(600)
def test_the_example_killed_and_resumed_elsewhere(repository, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    shutil.copy(repository / "examples" / "own_space.py", here)
    process = archray(
        "search", "hnas", "--space", "own_space.py:ResidualSpace", "--data", "digits", "--preset", "smoke",
        "--out", "run", "--set", "cluster.dashboard=false", "--set", "pool.chunk=1", cwd=here,
    )  # fmt: skip
    run = here / "run"
    deadline = time.monotonic() + 180
    while not list(run.glob("pool/shards/part-*.parquet")):
        assert process.poll() is None and time.monotonic() < deadline, (here / "log.txt").read_text()
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    example = here / "own_space.py"
    digits = example.read_bytes()
    example.unlink()  # the run's copy must be enough
    assert archray("resume", str(run), cwd=elsewhere).wait(timeout=300) == 0, (elsewhere / "log.txt").read_text()

    found = json.loads((run / "architecture.json").read_text())
    space = get_space(f"{run}/code/space/own_space.py:ResidualSpace")
    assert space.encode(space.decode(found["architecture"])) == found["architecture"]
    assert (run / "code" / "space" / "own_space.py").read_bytes() == digits
    trials = pd.read_parquet(run / "trials.parquet")
    assert trials["failure"].isna().all() and len(trials) == 3 + 1 + 2

    # an export brings the file along
    assert archray("export", str(run), "--to", "export", cwd=elsewhere).wait(timeout=120) == 0
    told = subprocess.run(
        [sys.executable, "load_model.py"], cwd=elsewhere / "export", capture_output=True, text=True, timeout=120
    )
    assert told.returncode == 0 and "Sequential" in told.stdout, told.stderr
