"""Searches that solve for one feature map each, and random search. The baseline of Khodak et al. 2020, Figures 2, 3."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.feature_maps.feature_map_config import FeatureMapConfig, RandomMapsConfig
from archray.platform.methods.feature_maps.feature_map_report import (
    HEADLINES,
    SECTIONS,
    headline,
    listings,
    measured_maps,
)
from archray.platform.methods.feature_maps.oracle_accuracy import progress_of
from archray.platform.methods.feature_maps.solve_plans import (
    READS,
    sample_candidates,
    solve_plan,
    solves,
    write_found_map,
)
from archray.platform.methods.feature_maps.solve_stages import FINAL_SOLVE_STAGE
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.training_stages import ACCURACY
from archray.platform.run.layout import PROGRESS
from archray.plurals import count
from archray.searchers import RandomSearch


def drawn_maps(context: Context[Any], candidates: list[str], **plan: Any) -> TrialPlan:
    """A solve for each candidate, in a random order."""
    seed = context.seed("search")
    return solve_plan(
        context,
        total=len(candidates),
        searcher=lambda: RandomSearch(candidates, budget=len(candidates), seed=seed),
        **plan,
    )


def _trials(context: Context[RandomMapsConfig], tuned: Folder) -> TrialPlan:
    return drawn_maps(context, sample_candidates(context, context.config.candidates))


def write_best_solve(context: Context[FeatureMapConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the progress and what was found. Raises: ArchrayError if no solve has a score."""
    progress = best_so_far(run.curves, context.config.mode)
    folder.write_parquet(PROGRESS, progress)
    best = progress.iloc[-1] if len(progress) else None
    if best is None or best["architecture"] is None:
        raise ArchrayError(f"none of {count(len(run.trials), 'solve')} has a score: {run.failures}")
    write_found_map(context, folder, best["architecture"], float(best[ACCURACY]), calls=len(progress))


def best_so_far(solves: pd.DataFrame, mode: str) -> pd.DataFrame:
    """A row per solve in the order they ended: the best score until then, and its test accuracy.

    Args:
        solves: a row per step of every trial; its `seconds` are of the trial so far.
        mode: whether the best score is the least (`min`) or the largest.

    Returns: `calls` (so far), `seconds` (so far), `architecture` (the best so far), `dimension` (of this solve),
        `candidates` (1), `score`, `validation_accuracy` and `search_test_accuracy` of the best, `final` (False).
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
                "search_test_accuracy": best["test_accuracy"] if best else math.nan,
                "final": False,
            }
        )
    return pd.DataFrame(rows)


def maps_recipe(
    *more: Stage[Any],
    title: str,
    reads: tuple[str, ...],
    plan: Callable[[Context[Any], Folder], TrialPlan],
    amount: Callable[[Any], str],
    finish: Callable[[Context[Any], Folder, TuneRun], None] = write_best_solve,
) -> Recipe[Any]:
    """What a search for a feature map does; `title` to `finish` are of its first stage, `more` come after the final."""
    search = TuneStage[Any](
        name="search", title=title, reads=(*READS, *reads), plan=plan, finish=finish, search=True, amount=amount
    )
    return Recipe(
        stages=(search, FINAL_SOLVE_STAGE, *more),
        measured=measured_maps,
        headlines=HEADLINES,
        headline=headline,
        sections=SECTIONS,
        listings=listings,
        progress=progress_of,
    )


RECIPE = maps_recipe(
    title="solve for every candidate",
    reads=("candidates",),
    plan=_trials,
    amount=lambda config: solves(config.candidates, config),
)
