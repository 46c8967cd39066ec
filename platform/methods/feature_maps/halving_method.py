"""Successive halving with weight sharing over feature maps. Khodak et al. 2020, Algorithm 1; the fast form, B.1."""

from __future__ import annotations

import math
from typing import Literal

import pandas as pd
from pydantic import Field

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneRun
from archray.platform.methods.feature_maps.feature_map_config import sample_candidates, solve_plan, write_found_map
from archray.platform.methods.feature_maps.random_maps import PAPER, register_maps
from archray.platform.methods.feature_maps.solve_stages import CORRELATION_STAGE, ORACLE_STAGE, CorrelatedConfig
from archray.platform.methods.training_stages import ACCURACY
from archray.platform.run.layout import PROGRESS, ROUNDS
from archray.searchers import WeightSharingHalving


class HalvingConfig(CorrelatedConfig):
    """The configuration of halving; see `WeightSharingHalving`.

    Fields:
        candidates: how many feature maps the search chooses from, drawn from the space by the seed.
        replicas: shared solves of a round, each with its own assignment and bases; their scores are averaged.
        keep: the share of the candidates that a round keeps.
        growth: how much larger the dimension is in each round than in the one before; 1 is Algorithm 1.
    """

    method: Literal["halving", "fast-halving"] = "halving"
    candidates: int = Field(256, ge=2)
    replicas: int = Field(1, ge=1)
    keep: float = Field(0.5, gt=0, lt=1)
    growth: float = Field(1.0, ge=1)


class FastHalvingConfig(HalvingConfig):
    """The configuration of Fast Weight-Sharing: halving whose dimension grows by sqrt(2) each round (B.1)."""

    method: Literal["fast-halving"] = "fast-halving"
    growth: float = Field(math.sqrt(2), ge=1)


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
                "test_error": 1 - float(solved["test_accuracy"].iloc[0]),  # NaN of a shared solve
                "final": left == 1,
            }
        )
    return pd.DataFrame(rows)


def _register(name: str, summary: str, config: type[HalvingConfig]) -> None:
    register_maps(
        name,
        summary,
        config,
        {
            "smoke": {"candidates": 8, "dimension": 64},
            "demo": {"candidates": 256, "correlation": {"maps": 32}},
            "paper": {
                **PAPER,
                "candidates": 256,
                "correlation": {"maps": 32, "dimensions": [3_125 * 2**i for i in range(6)]},
            },
        },
        {
            "candidates": "candidates",
            "dimension": "dimension",
            "replicas": "replicas",
            "loss": "solve.loss",
            "final_seeds": "final_seeds",
            "correlation": "correlation.maps",
        },
        ORACLE_STAGE,
        CORRELATION_STAGE,
        title="solve with shared weights, and halve",
        reads=("candidates", "replicas", "keep", "growth"),
        plan=_trials,
        finish=_write_winner,
        extendable=("final_seeds", "correlation"),
    )


_register("halving", "Successive halving with weight sharing (Khodak 2020, Algorithm 1)", HalvingConfig)
_register("fast-halving", "Halving whose dimension grows by sqrt(2) a round (Khodak 2020, B.1)", FastHalvingConfig)
