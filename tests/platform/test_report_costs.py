"""Costs in a report: those of the networks, their bounds, and the lookup of latencies."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from archray_test_models import a_run
from archray_test_report import cells
from rich.console import Console

from archray.platform.engine.run_costs import with_costs
from archray.platform.engine.stage import Context


def test_rows_without_a_cost_get_it(tmp_path: Path) -> None:
    """Rows from before an extension have their costs already; the new rows do not."""
    context = Context(a_run(tmp_path / "run", "nasbench201", costs__names=["flops", "parameters"]), Console())
    trials = pd.DataFrame({"architecture": [*cells(3, 0), None], "value": range(4)})
    whole = with_costs(context, trials)
    assert whole[["flops", "parameters"]].notna().all(axis=1).tolist() == [True, True, True, False]
    partly = whole.assign(flops=[1.0, None, None, None])
    filled = with_costs(context, partly, fill=True)
    assert filled["flops"].tolist()[:3] == [1.0, *whole["flops"][1:3]] and filled["parameters"].equals(
        whole["parameters"]
    )
    pd.testing.assert_frame_equal(with_costs(context, partly), partly)
