"""Successive halving with weight sharing over feature maps. Khodak et al. 2020, Algorithm 1; the fast form, B.1."""

from __future__ import annotations

import math
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from archray.cluster.resources import concurrency
from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import restored_searcher, run_trials
from archray.platform.methods.feature_maps.feature_map_config import FeatureMapConfig, serves
from archray.platform.methods.feature_maps.feature_map_view import (
    FEATURE_MAP_SECTIONS,
    feature_map_view,
    print_feature_map,
)
from archray.platform.methods.feature_maps.solve_stages import (
    CorrelationOptions,
    correlation_stage,
    final_solve_stage,
    oracle_stage,
)
from archray.platform.methods.feature_maps.solve_trials import sample_candidates, solve_inputs, solve_plan
from archray.platform.methods.method import Method
from archray.platform.methods.report_stage import PROGRESS, report_stage
from archray.platform.methods.training_stages import failure_reasons, write_tables
from archray.platform.run.run import Run, digest
from archray.searchers import WeightSharingHalving
from archray.seeds import stage_seed


class HalvingConfig(FeatureMapConfig):
    """The configuration of halving; see `WeightSharingHalving`.

    Fields:
        candidates: how many feature maps the search chooses from, drawn from the space by the seed.
        replicas: shared solves of a round, each with its own assignment and bases; their scores are averaged.
        keep: the share of the candidates that a round keeps.
        growth: how much larger the dimension is in each round than in the one before; 1 is Algorithm 1.
        correlation: Figure 1.
    """

    method: Literal["halving", "fast-halving"] = "halving"
    candidates: int = Field(256, ge=2)
    replicas: int = Field(1, ge=1)
    keep: float = Field(0.5, gt=0, lt=1)
    growth: float = Field(1.0, ge=1)
    correlation: CorrelationOptions = CorrelationOptions()


class FastHalvingConfig(HalvingConfig):
    """The configuration of Fast Weight-Sharing: halving whose dimension grows by sqrt(2) each round (B.1)."""

    method: Literal["fast-halving"] = "fast-halving"
    growth: float = Field(math.sqrt(2), ge=1)


def _config(run: Run) -> HalvingConfig:
    assert isinstance(run.config, HalvingConfig)  # the run was opened with its method's configuration
    return run.config


def _search_inputs(context: Context) -> dict[str, Any]:
    config = _config(context.run)
    told = {"candidates", "replicas", "keep", "growth"}
    return {**solve_inputs(context), **config.model_dump(mode="json", include=told)}


def _search(context: Context, folder: Folder) -> None:
    config = _config(context.run)
    candidates = sample_candidates(context, config.candidates)

    def searcher() -> WeightSharingHalving:
        return WeightSharingHalving(
            candidates,
            replicas=config.replicas,
            keep=config.keep,
            budget=config.full_dimension,
            growth=config.growth,
            seed=stage_seed(config.seed, "search"),
        )

    plan = solve_plan(
        context,
        total=searcher().expected_trials,
        concurrency=concurrency(config.resources, limit=config.replicas),
        searcher=searcher,
    )
    tuned = folder / f"tune-{digest(_search_inputs(context))}"
    results = run_trials(tuned, plan, context, search=True)
    context.grids["search"] = results
    trials = write_tables(folder, tuned, results)
    ended = restored_searcher(tuned, searcher)
    rounds = ended.rounds()
    progress = halving_progress(trials, rounds, config.mode)
    folder.write_parquet("rounds.parquet", rounds)
    folder.write_parquet(PROGRESS, progress)
    best = ended.best()
    final = trials[trials["candidates"].map(len) == 1]
    value = final["validation_accuracy"].dropna()
    if best is None or value.empty:
        raise ArchrayError(f"halving found no feature map: {ended.failure or failure_reasons(trials)}")
    told = {"architecture": best["candidate"], "value": float(value.iloc[0]), "metric": "validation_accuracy"}
    folder.write_json("architecture.json", told)
    context.console.print(
        f"    found {told['architecture']}  (validation accuracy {told['value']:.4f}, {int(progress['calls'].max())} "
        "solver calls)",
        soft_wrap=True,
    )


def halving_progress(trials: pd.DataFrame, rounds: pd.DataFrame, mode: str) -> pd.DataFrame:
    """A row per round and one for the final solve: see `RunView.progress`.

    Replicas of a round count as one call each, and their seconds add up.

    Args:
        trials: a row per trial, with `round`, `candidates`, `dimension`, `seconds`, `test_accuracy`.
        rounds: of the searcher, a row per round and candidate, with `round`, `candidate`, `score`.
        mode: whether the best score is the least (`min`) or the largest.
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


def _view(run: Run) -> Any:
    return feature_map_view(run, progress_of=("oracle", "search"))


def _method(name: str, summary: str, config: type[HalvingConfig]) -> Method:
    return Method(
        name=name,
        summary=summary,
        config=config,
        stages=(
            Stage("search", "solve with shared weights, and halve", _search_inputs, _search),
            final_solve_stage(),
            oracle_stage(),
            correlation_stage(lambda run: _config(run).correlation),
            report_stage(("search", "final", "oracle", "correlation")),
        ),
        presets={
            "smoke": {"candidates": 8, "dimension": 64},
            "demo": {"candidates": 256, "correlation": {"maps": 32}},
            "paper": {
                "data": {"name": "cifar10"},
                "dimension": 100_000,
                "candidates": 256,
                "correlation": {"maps": 32, "dimensions": [3_125 * 2**i for i in range(6)]},
            },
        },
        view=_view,
        sections=FEATURE_MAP_SECTIONS,
        show=print_feature_map,
        flags={
            "candidates": "candidates",
            "dimension": "dimension",
            "replicas": "replicas",
            "loss": "solve.loss",
            "final_seeds": "final_seeds",
            "correlation": "correlation.maps",
        },
        extendable=("final_seeds", "correlation"),
        serves=serves,
    )


HALVING = _method("halving", "Successive halving with weight sharing (Khodak 2020, Algorithm 1)", HalvingConfig)
FAST_HALVING = _method(
    "fast-halving", "Halving whose dimension grows by sqrt(2) a round (Khodak 2020, B.1)", FastHalvingConfig
)
