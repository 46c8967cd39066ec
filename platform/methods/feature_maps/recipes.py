"""Recipes of searches for a feature map: halving with shared weights, searches that solve for one map at a time,
and Ray Tune's successive halving and Hyperband with the feature dimension as resource.

Khodak et al. 2020, Algorithm 1, appendix B.1, and the baselines of Figures 2 and 3.
"""

import math
from collections.abc import Callable
from typing import Any

import pandas as pd
from ray import tune
from ray.tune.schedulers import AsyncHyperBandScheduler, HyperBandScheduler

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.feature_maps.config import (
    FeatureMapConfig,
    HalvingConfig,
    HyperbandConfig,
    RandomMapsConfig,
    SuccessiveHalvingConfig,
)
from archray.platform.methods.feature_maps.report import HEADLINES, SECTIONS, headline, listings, measured_maps
from archray.platform.methods.feature_maps.stages import (
    CORRELATION_STAGE,
    FINAL_SOLVE_STAGE,
    ORACLE_STAGE,
    READS,
    sample_candidates,
    solve_plan,
    solve_settings,
    solves,
    write_found_map,
)
from archray.platform.methods.feature_maps.tables import progress_of
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.stages import ACCURACY
from archray.platform.run.layout import PROGRESS, ROUNDS
from archray.plurals import count
from archray.searchers import RandomSearch, WeightSharingHalving
from archray.seeds import trial_seed


def drawn_maps(context: Context[Any], candidates: list[str], **plan: Any) -> TrialPlan:
    """A solve for each candidate, in a random order."""
    seed = context.seed("search")
    return solve_plan(
        context,
        total=len(candidates),
        searcher=lambda: RandomSearch(candidates, budget=len(candidates), seed=seed),
        **plan,
    )


def _random_trials(context: Context[RandomMapsConfig], tuned: Folder) -> TrialPlan:
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


RANDOM_MAPS_RECIPE = maps_recipe(
    title="solve for every candidate",
    reads=("candidates",),
    plan=_random_trials,
    amount=lambda config: solves(config.candidates, config),
)


def _weight_sharing_trials(context: Context[HalvingConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    candidates = sample_candidates(context, config.candidates)

    def searcher() -> WeightSharingHalving:
        return WeightSharingHalving(
            candidates,
            replicas=config.replicas,
            keep=config.keep,
            budget=config.full_dimension,
            growth=config.growth,
            seed=context.seed("search"),
        )

    return solve_plan(context, total=searcher().expected_trials, searcher=searcher, at_most=config.replicas)


def _write_winner(context: Context[HalvingConfig], folder: Folder, run: TuneRun) -> None:
    trials = run.trials
    ended: WeightSharingHalving = run.searcher()
    rounds = ended.rounds()
    progress = halving_progress(trials, rounds, context.config.mode)
    folder.write_parquet(ROUNDS, rounds)
    folder.write_parquet(PROGRESS, progress)
    best = ended.best()
    alone = trials[trials["candidates"].map(len) == 1]
    value = alone[ACCURACY].dropna()
    if best is None or value.empty:
        raise ArchrayError(f"halving found no feature map: {ended.failure or run.failures}")
    write_found_map(context, folder, best["candidate"], float(value.iloc[0]), calls=int(progress["calls"].max()))


def halving_progress(trials: pd.DataFrame, rounds: pd.DataFrame, mode: str) -> pd.DataFrame:
    """A row per round and one for the final solve, with the columns of `best_so_far`.

    Replicas of a round count as one call each, and their seconds add up.

    trials: a row each. rounds: see `WeightSharingHalving.rounds`. mode: is the best score the least (`min`)?
    """
    rows = []
    calls, seconds = 0, 0.0
    for number, solved in trials.groupby("round", sort=True):
        calls += len(solved)
        seconds += float(solved["seconds"].sum())
        scored = rounds[(rounds["round"] == number) & rounds["score"].notna()]
        best = None if scored.empty else scored.loc[getattr(scored["score"], f"idx{mode}")()]
        left = len(solved["candidates"].iloc[0])
        rows.append(
            {
                "calls": calls,
                "seconds": seconds,
                "architecture": None if best is None else best["candidate"],
                "dimension": int(solved["dimension"].iloc[0]),
                "candidates": left,
                "score": math.nan if best is None else float(best["score"]),
                "search_test_accuracy": float(solved["test_accuracy"].iloc[0]),  # NaN of a shared solve
                "final": left == 1,
            }
        )
    return pd.DataFrame(rows)


HALVING_RECIPE = maps_recipe(
    ORACLE_STAGE,
    CORRELATION_STAGE,
    title="solve with shared weights, and halve",
    reads=("candidates", "replicas", "keep", "growth"),
    plan=_weight_sharing_trials,
    finish=_write_winner,
    amount=lambda config: (
        count(config.candidates, "candidate") + ", of which a round leaves a share of "
        f"{config.keep:g}; {count(config.replicas, 'solve')} a round"
    ),
)


RESOURCE = "resource"  # a solve's dimension in units of the smallest rung's, rounded down


def _halving_trials(context: Context[SuccessiveHalvingConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    return drawn_maps(
        context,
        sample_candidates(context, config.candidates),
        settings=solve_settings(context, rungs=config.dimensions),
        scheduler=lambda: AsyncHyperBandScheduler(
            time_attr=RESOURCE, max_t=config.max_resource, grace_period=1, reduction_factor=config.eta, brackets=1
        ),
        resumes=False,
    )


def _hyperband_trials(context: Context[HyperbandConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    candidates = sample_candidates(context, len(config.first_rungs))
    root = context.seed("search")
    begins = dict(zip(candidates, config.first_rungs, strict=True))
    seeds = {candidate: trial_seed(root, number) for number, candidate in enumerate(candidates, start=1)}
    return solve_plan(
        context,
        total=len(candidates),
        settings=solve_settings(context, rungs=config.dimensions),
        keys={
            "architecture": tune.grid_search(candidates),
            "first_rung": tune.sample_from(lambda spec: begins[spec["config"]["architecture"]]),
            "seed": tune.sample_from(lambda spec: seeds[spec["config"]["architecture"]]),
        },
        limited=False,
        scheduler=lambda: HyperBandScheduler(
            time_attr=RESOURCE, max_t=config.max_resource, reduction_factor=config.eta
        ),
        resumes=False,
    )


_TITLE = "solve at few features first"
SUCCESSIVE_HALVING = maps_recipe(
    title=_TITLE,
    reads=("candidates", "eta", "rungs"),
    plan=_halving_trials,
    amount=lambda config: count(config.candidates, "candidate"),
)
HYPERBAND = maps_recipe(
    title=_TITLE,
    reads=("eta", "rungs"),
    plan=_hyperband_trials,
    amount=lambda config: count(len(config.first_rungs), "candidate"),
)
