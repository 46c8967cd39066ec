"""Ray's memory monitor kills workers of every stage of a search. Their trials restart, and the search completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from archray_test_command import logged

from archray.platform.durable.failed_trials import MEMORY_SHORT

GIB = 2**30
SEARCH = """
import os, sys
from pathlib import Path

from ray import tune
from ray._common.utils import get_system_memory
from ray._private.utils import get_used_memory

import archray

space, out = sys.argv[1:]
used, total, margin = get_used_memory(), get_system_memory(), 3 * 2**30
if total - used < 8 * 2**30:
    sys.exit("too little memory")
os.environ |= {
    "RAY_memory_usage_threshold": str((used + margin) / total),
    "RAY_memory_monitor_refresh_ms": "100",
    "MOST_BYTES": str(2 * margin),
    "HUNGRY": f"{out}-hungry",
}

class Hungry(tune.Callback):
    def setup(self, **info):
        Path(os.environ["HUNGRY"]).touch()

Hungry().setup()  # for the pool
archray.search(
    "hnas", space=space, data="digits", preset="smoke", data__limit=200, pool_size=10, budget=2, epochs=2, random=1,
    final_seeds=1, resources__actors=1, max_concurrent=1, cluster__dashboard=False, out=out, callbacks=[Hungry()],
)
"""


@pytest.mark.slow
@pytest.mark.ci
def test_a_worker_that_ray_kills_for_lack_of_memory_costs_one_attempt(repository: Path, tmp_path: Path) -> None:
    space = repository / "tests" / "worker_modules" / "archray_test_hungry.py"
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_memory_monitor_refresh_ms"}
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, f"{space}:HungrySpace", str(tmp_path / "run")],
        cwd=tmp_path, env=inherited, capture_output=True, text=True,
    )  # fmt: skip
    if "too little memory" in done.stderr:
        pytest.skip("needs 8 GiB of free memory")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run-hungry").exists() and len(list(tmp_path.glob("eaten-*"))) == 4
    for stage in ("search", "final", "baseline"):
        assert logged(tmp_path / "run" / stage, "failed")[0]["failure"]["cause"] == MEMORY_SHORT
    assert pd.read_parquet(tmp_path / "run" / "trials.parquet")["validation_accuracy"].notna().all()
    assert pd.read_parquet(tmp_path / "run" / "pool" / "pool.parquet")["failure"].isna().all()
