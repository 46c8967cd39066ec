"""Four methods at a size at which eight trials can run in parallel, and the results of their runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from archray_test_command import logged

SIDE_BY_SIDE = 8
COMMON: dict[str, Any] = {"preset": "smoke", "seed": 3, "resources__actors": 2}
# For each method, the options with which one stage has eight trials.
METHODS: dict[str, dict[str, Any]] = {
    "hnas": {"data__limit": 200, "budget": 8, "epochs": 3, "train__batch_size": 16},
    "gaea-darts": {"space": "darts", "data__limit": 60, "search_seeds": 8, "epochs": 3},
    "nesbs": {"space": "darts", "data__limit": 60, "ensemble_size": 8, "final_epochs": 10},
    "halving": {"space": "fourier", "dimension": 1024, "candidates": 16, "replicas": 8},
}
# The same with the smallest number of trials that covers every stage, for tests without parallel trials.
FEWER_TRIALS: dict[str, dict[str, Any]] = {
    "hnas": {"budget": 4},
    "gaea-darts": {"search_seeds": 3},
    "nesbs": {"ensemble_size": 3, "final_epochs": 3},
    "halving": {"dimension": 256, "candidates": 8, "replicas": 2},
}
# The stage with the eight trials.
STAGE = {"hnas": "search", "gaea-darts": "search", "nesbs": "final", "halving": "search"}
# Columns that differ between runs of the same search, by table.
COLUMNS_THAT_DIFFER = (
    "trial_id",
    "seconds",
    "date",
    "time",
    "pid",
    "hostname",
    "node_ip",
    "iterations_since_restore",
    "experiment_tag",
)


def options_of(method: str, at_a_time: int = SIDE_BY_SIDE) -> dict[str, Any]:
    fewer = FEWER_TRIALS[method] if at_a_time < SIDE_BY_SIDE else {}
    return {**COMMON, **METHODS[method], **fewer, "max_concurrent": at_a_time}


def results_of_run(run: Path) -> dict[str, Any]:
    """Returns all architectures and scores of a run, without ids, places and times."""
    table = pd.read_parquet(run / "trials.parquet")
    table = table[[name for name in table.columns if not name.startswith(COLUMNS_THAT_DIFFER)]]
    rows = sorted(table.to_json(orient="records", lines=True, double_precision=15).splitlines())
    return {"found": json.loads((run / "architecture.json").read_text()), "trials": rows}


def steps_trained(stage: Path) -> dict[str, int]:
    """Returns the number of steps of each trial over all its attempts.

    A step that is only reported again keeps its time.
    """
    steps: dict[str, set[Any]] = {}
    for entry in logged(stage, "result"):
        result = entry["result"]
        seconds = result.get("seconds_epoch", result["time_total_s"])
        steps.setdefault(entry["trial"], set()).add((result["training_iteration"], seconds))
    return {trial: len(reported) for trial, reported in steps.items()}


def fails_once(config: dict[str, Any]) -> float:
    """Returns a score of the architecture. The first evaluation of each raises. config["marks"]: a folder."""
    mark = Path(config["marks"]) / f"evaluated-{config['architecture']}"
    if not mark.exists():
        mark.touch()
        raise RuntimeError("the first evaluation fails")
    return float(len(config["architecture"]))
