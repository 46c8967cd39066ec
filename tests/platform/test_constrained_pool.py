"""NASI without a supernet: a user's space by the approximated trace norm of the NTK, under the constraint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from archray_test_command import finish
from archray_test_report import words

from archray.searchers.exterior_penalty import ExteriorPenalty


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_users_space_on_random_inputs(repository: Path, tmp_path: Path) -> None:
    finish(
        "search", "zero-cost", "--space", f"{repository / 'examples' / 'own_space.py'}:ResidualSpace",
        "--proxy", "ntk_trace_batch", "--mu", "1", "--data", "gaussian", "--preset", "smoke", "--pool-size", "8",
        "--budget", "2", "--random", "0", "--final-epochs", "1", "--max-concurrent", "1",
        "--set", "resources.actors=1", "--set", "cluster.dashboard=false", "--out", "run", cwd=tmp_path,
    )  # fmt: skip
    run = tmp_path / "run"
    pool = pd.read_parquet(run / "pool" / "pool.parquet")
    values = pool["ntk_trace_batch"].to_numpy()
    assert len(pool) == 8 and np.isfinite(values).all()
    first = pool["architecture"][ExteriorPenalty(1.0).ranking(values)][:2].tolist()
    assert pd.read_parquet(run / "search" / "trials.parquet")["architecture"].tolist() == first
    assert values[pool["architecture"] == first[0]].item() == values[values >= values.mean()].min()
    above = int((values > values.mean()).sum())
    assert f"{above} of 8 architectures are above ν" in words((run / "report.html").read_text())
