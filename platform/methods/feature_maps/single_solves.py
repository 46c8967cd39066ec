"""Searches whose trials solve for one feature map each: their tables, and the best so far."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from ray.tune import ResultGrid

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.methods.feature_maps.feature_map_config import feature_map_config
from archray.platform.methods.report_stage import PROGRESS
from archray.platform.methods.training_stages import failure_reasons, write_tables


def write_single_solves(context: Context, folder: Folder, tuned: Folder, results: ResultGrid) -> None:
    """Writes the trials, the progress and what was found. Raises: ArchrayError if no solve has a score."""
    context.grids["search"] = results
    trials = write_tables(folder, tuned, results)
    progress = best_so_far(folder.read_parquet("curves.parquet"), feature_map_config(context.run).mode)
    folder.write_parquet(PROGRESS, progress)
    found = progress.iloc[-1] if len(progress) else None
    if found is None or found["architecture"] is None:
        raise ArchrayError(f"none of the {len(trials)} solves has a score: {failure_reasons(trials)}")
    told: dict[str, Any] = {
        "architecture": found["architecture"],
        "value": float(found["validation_accuracy"]),
        "metric": "validation_accuracy",
    }
    folder.write_json("architecture.json", told)
    context.console.print(
        f"    found {told['architecture']}  (validation accuracy {told['value']:.4f}, {len(progress)} solver calls)",
        soft_wrap=True,
    )


def best_so_far(solves: pd.DataFrame, mode: str) -> pd.DataFrame:
    """A row per solve in the order they ended: the best score until then, and its test error.

    Args:
        solves: a row per step of every trial: `trial_id`, `architecture`, `timestamp`, `dimension`, `score`,
            `seconds` (of the trial so far), `validation_accuracy`, `test_accuracy`.
        mode: whether the best score is the least (`min`) or the largest.

    Returns: see `RunView.progress`; and `validation_accuracy` of the best.
    """
    solves = solves.sort_values(["trial_id", "training_iteration"])
    own = solves.groupby("trial_id")["seconds"].diff().fillna(solves["seconds"])  # of this step alone
    solves = solves.assign(own_seconds=own).sort_values(["timestamp", "trial_id"], kind="stable")
    rows: list[dict[str, Any]] = []
    best: dict[Any, Any] | None = None
    sign = 1 if mode == "min" else -1
    least, seconds = math.inf, 0.0
    for calls, solve in enumerate(solves.to_dict("records"), start=1):
        seconds += solve["own_seconds"]
        if sign * solve["score"] < least:  # never of a NaN
            best, least = solve, sign * solve["score"]
        rows.append(
            {
                "calls": calls,
                "seconds": seconds,
                "architecture": best and best["architecture"],
                "dimension": int(solve["dimension"]),
                "candidates": 1,
                "score": best["score"] if best else math.nan,
                "validation_accuracy": best["validation_accuracy"] if best else math.nan,
                "test_error": 1 - best["test_accuracy"] if best else math.nan,
                "final": False,
            }
        )
    return pd.DataFrame(rows)
