"""Successive halving with weight sharing over feature maps. Khodak et al. 2020, Algorithm 1; the fast form, B.1."""

from __future__ import annotations

import math

import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun
from archray.platform.methods.feature_maps.halving_config import HalvingConfig
from archray.platform.methods.feature_maps.random_maps import maps_recipe
from archray.platform.methods.feature_maps.solve_plans import sample_candidates, solve_plan, write_found_map
from archray.platform.methods.feature_maps.solve_stages import CORRELATION_STAGE, ORACLE_STAGE
from archray.platform.methods.training_stages import ACCURACY
from archray.platform.run.layout import PROGRESS, ROUNDS
from archray.plurals import count
from archray.searchers import WeightSharingHalving


def _trials(context: Context[HalvingConfig], tuned: Folder) -> TrialPlan:
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


RECIPE = maps_recipe(
    ORACLE_STAGE,
    CORRELATION_STAGE,
    title="solve with shared weights, and halve",
    reads=("candidates", "replicas", "keep", "growth"),
    plan=_trials,
    finish=_write_winner,
    amount=lambda config: (
        count(config.candidates, "candidate") + ", of which a round leaves a share of "
        f"{config.keep:g}; {count(config.replicas, 'solve')} a round"
    ),
)
