"""Costs in a report: those of the networks, their bounds, and the lookup of latencies."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from archray_test_models import a_run
from archray_test_plain_report import plain_content
from archray_test_report import cells, words, write_run
from rich.console import Console

from archray.platform.engine.run_costs import with_costs
from archray.platform.engine.stage import Context
from archray.platform.report import section
from archray.platform.report.cost_sections import cost_sections


def test_a_bound_on_a_noisy_latency_is_a_warning(tmp_path: Path) -> None:
    tables, documents = plain_content()
    trials = tables["search", "trials.parquet"]
    for bound, spread in (("latency_ms <= 1.5", 17.5), ("latency_ms <= 1.5", 0.2), ("parameters <= 1M", 17.5)):
        costs = {"latency_ms": 1.41, "latency_ms_iqr": [spread, *[0.1] * (len(trials) - 1)], "parameters": 8e4}
        noisy = {**tables, ("search", "trials.parquet"): trials.assign(**costs)}
        config = {"constraints": [bound], "costs": {"names": ["latency_ms"]}}
        run = write_run(tmp_path / f"{bound} {spread}", "evolution", tables=noisy, documents=documents, config=config)
        text = words(cost_sections(section.short_names)[0](run))
        warning = f"compares noise. For 1 network of {len(trials)}, the interquartile range"
        assert (warning in text) == (spread == 17.5 and "latency" in bound) == ("Warning" in text)


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
