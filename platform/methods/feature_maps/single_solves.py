"""Searches whose trials solve for one feature map each: the best so far, and what was found."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TuneRun
from archray.platform.methods.feature_maps.feature_map_config import FeatureMapConfig
from archray.platform.methods.final_stage import ACCURACY
from archray.platform.run.layout import FOUND, PROGRESS


def write_best_solve(context: Context[FeatureMapConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the progress and what was found. Raises: ArchrayError if no solve has a score."""
    progress = best_so_far(run.curves, context.config.mode)
    folder.write_parquet(PROGRESS, progress)
    best = progress.iloc[-1] if len(progress) else None
    if best is None or best["architecture"] is None:
        raise ArchrayError(f"none of the {len(run.trials)} solves has a score: {run.failures}")
    write_found_map(context, folder, best["architecture"], float(best[ACCURACY]), calls=len(progress))


def write_found_map(
    context: Context[FeatureMapConfig], folder: Folder, architecture: str, value: float, *, calls: int
) -> None:
    """Writes what was found, with its validation accuracy, and says so."""
    folder.write_json(FOUND, {"architecture": architecture, "value": value, "metric": ACCURACY})
    context.say(f"found {architecture}  (validation accuracy {value:.4f}, {calls} solver calls)")


def best_so_far(solves: pd.DataFrame, mode: str) -> pd.DataFrame:
    """A row per solve in the order they ended: the best score until then, and its test error.

    Args:
        solves: a row per step of every trial: `trial_id`, `architecture`, `timestamp`, `dimension`, `score`,
            `seconds` (of the trial so far), `validation_accuracy`, `test_accuracy`.
        mode: whether the best score is the least (`min`) or the largest.

    Returns: `calls` (so far), `seconds` (so far), `architecture` (the best so far), `dimension` (of this solve),
        `candidates` (1), `score`, `validation_accuracy` and `test_error` of the best, `final` (False).
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
