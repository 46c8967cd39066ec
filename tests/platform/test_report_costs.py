"""What a report says of costs: those of the networks, their bounds, and how latencies were looked up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from archray_test_models import a_run
from archray_test_plain_report import plain_content
from archray_test_report import cells, rendered, section_ids, words, write_run
from rich.console import Console

from archray.platform.engine.run_costs import with_costs
from archray.platform.engine.stage import Context
from archray.trainables.costs.meter import calibration


def test_the_report_has_costs_bounds_and_the_look_up(tmp_path: Path) -> None:
    tables, documents = plain_content()
    trials = tables["search", "trials.parquet"]
    costs = pd.Series(1e5 + 1e4 * np.arange(len(trials)))
    tables["search", "trials.parquet"] = trials.assign(flops=costs, latency_ms=costs / 1e5, latency_ms_iqr=0.1)
    fitted = calibration(trials["architecture"][:3], [1.0, 2.0, 4.0], [2.0, 3.0, 6.0])
    record = {"operations": {}, "networks": {}, "whole": {}, "calibration": fitted}
    config = {"constraints": ["flops <= 205k"], "costs": {"names": ["latency_ms"], "model": "lookup"}}
    documents_of_costs = {**documents, ("costs", "latency.json"): record}
    run = write_run(tmp_path / "run", "random", config=config, tables=tables, documents=documents_of_costs)
    page = rendered(run)
    assert [name for name in section_ids(page) if name in ("costs", "look-up")] == ["costs", "look-up"]
    text = words(page).replace("\N{NARROW NO-BREAK SPACE}", "")
    assert "12 networks that the run trained, what they cost, and the bounds; 1 of them does not meet them" in text
    assert "100000 to 210000" in text and "not flops <= 205k" in text
    assert "fitted to 3 networks that were timed whole" in text and f"the median {100 * fitted['error']:.1f}" in text
    plain = write_run(tmp_path / "plain", "random", tables=tables, documents=documents)
    assert not {"costs", "look-up"} & set(section_ids(rendered(plain))), "of a run that looks at no costs"


def test_rows_that_lack_a_cost_get_it(tmp_path: Path) -> None:
    """Those of before a search was extended have their costs already, and the new ones not."""
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
