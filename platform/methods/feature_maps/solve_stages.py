"""The stages after a search for a feature map: the found map solved again, oracle solves, and the paper's Figure 1."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field
from ray import tune

from archray.files import Folder
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import TrialPlan, listed, run_trials
from archray.platform.methods.feature_maps.feature_map_config import feature_map_config
from archray.platform.methods.feature_maps.solve_trials import (
    sample_candidates,
    solve_inputs,
    solve_plan,
    solve_settings,
)
from archray.platform.methods.report_stage import PROGRESS
from archray.platform.methods.training_stages import found_architecture, train_with_seeds, write_tables
from archray.platform.models.feature_map_model import write_classifier
from archray.platform.run.run import digest
from archray.seeds import stage_seed
from archray.trainables.feature_maps.solve_settings import Bases

CORRELATION = "correlation.parquet"


class CorrelationOptions(BaseModel):
    """Figure 1 of the paper: shared-weights accuracy against standalone accuracy of the first candidates.

    Fields:
        maps: how many candidates (the paper: 32); 0 leaves the stage out.
        dimensions: features of the solves; none: a quarter, a half and all of the search's dimension.
        bases: a shared solve for each of these.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    maps: int = Field(0, ge=0)
    dimensions: tuple[int, ...] = ()
    bases: tuple[Bases, ...] = ("shared",)


# The found map, solved for again


def _final_inputs(context: Context) -> dict[str, Any]:
    return {
        **solve_inputs(context),
        "final_seeds": feature_map_config(context.run).final_seeds,
        "architecture": found_architecture(context)["architecture"],
    }


def _solve_found(context: Context, folder: Folder) -> None:
    def plan(**given: Any) -> TrialPlan:
        return solve_plan(context, **given)

    train_with_seeds(
        context,
        folder,
        inputs=_final_inputs(context),
        seeds=feature_map_config(context.run).final_seeds,
        plan=plan,
        write=write_classifier,
    )


def final_solve_stage() -> Stage:
    return Stage("final", "solve for the found feature map alone", _final_inputs, _solve_found)


# Oracle solves: what the best map of every round would reach. They count neither as calls nor as seconds (note W6).


def _oracle_inputs(context: Context) -> dict[str, Any]:
    return {**solve_inputs(context), "progress": context.folder("search").sha256(PROGRESS)}


def _solve_oracle(context: Context, folder: Folder) -> None:
    progress = context.folder("search").read_parquet(PROGRESS)
    unknown = progress["test_error"].isna() & progress["architecture"].notna()
    leaders = list(dict.fromkeys(progress.loc[unknown, "architecture"]))
    if leaders:
        seed = stage_seed(context.run.config.seed, "oracle")
        plan = solve_plan(context, total=len(leaders), keys={"architecture": tune.grid_search(leaders), "seed": seed})
        tuned = folder / f"tune-{digest(_oracle_inputs(context))}"
        results = run_trials(tuned, plan, context)
        trials = write_tables(folder, tuned, results)
        errors = 1 - trials.set_index("architecture")["test_accuracy"]
        progress["test_error"] = progress["test_error"].fillna(progress["architecture"].map(errors))
    folder.write_parquet(PROGRESS, progress)


def oracle_stage() -> Stage:
    return Stage("oracle", "solve for the best feature map of every round, to compare", _oracle_inputs, _solve_oracle)


# Figure 1


def correlation_stage(options: Any) -> Stage:
    """Figure 1. `options`: run -> its `CorrelationOptions`."""

    def inputs(context: Context) -> dict[str, Any]:
        return {**solve_inputs(context), "correlation": options(context.run).model_dump(mode="json")}

    def solve(context: Context, folder: Folder) -> None:
        chosen: CorrelationOptions = options(context.run)
        if chosen.maps == 0:
            context.console.print("    not asked for (correlation.maps)")
            return
        maps = sample_candidates(context, chosen.maps)
        full = feature_map_config(context.run).full_dimension
        dimensions = tuple(sorted(set(chosen.dimensions or (math.ceil(full / 4), math.ceil(full / 2), full))))
        seed = stage_seed(context.run.config.seed, "correlation")
        alone = _standalone_accuracies(context, folder, maps, dimensions, seed)
        shared = [_shared_accuracies(context, folder, maps, dimensions, bases, seed) for bases in chosen.bases]
        folder.write_parquet(CORRELATION, pd.concat(shared).merge(alone, on=["architecture", "dimension"]))

    return Stage("correlation", "shared against standalone accuracy", inputs, solve)


def _standalone_accuracies(
    context: Context, folder: Folder, maps: list[str], dimensions: tuple[int, ...], seed: int
) -> pd.DataFrame:
    """`architecture`, `dimension`, `standalone`: the validation accuracy of each map solved for alone."""
    settings = solve_settings(context, rungs=dimensions, evaluate_test=False)
    keys = {"architecture": tune.grid_search(maps), "seed": seed}
    tuned = folder / f"tune-alone-{digest({**solve_inputs(context), 'maps': maps, 'dimensions': dimensions})}"
    results = run_trials(tuned, solve_plan(context, total=len(maps), settings=settings, keys=keys), context)
    write_tables(folder, tuned, results)
    curves = folder.read_parquet("curves.parquet")
    return curves[["architecture", "dimension", "validation_accuracy"]].rename(
        columns={"validation_accuracy": "standalone"}
    )


def _shared_accuracies(
    context: Context, folder: Folder, maps: list[str], dimensions: tuple[int, ...], bases: Bases, seed: int
) -> pd.DataFrame:
    """`architecture`, `dimension`, `bases`, `shared`: the validation accuracy of each map with shared weights.

    Every map is scored on all validation points (note W6).
    """
    solve = feature_map_config(context.run).solve.model_copy(
        update={"bases": bases, "score": "accuracy", "validation": "all"}
    )
    keys = {"candidates": maps, "round": 1, "replica": 0, "budget": tune.grid_search(list(dimensions)), "seed": seed}
    told = {**solve_inputs(context), "maps": maps, "dimensions": dimensions, "bases": bases}
    plan = solve_plan(
        context, total=len(dimensions), settings=solve_settings(context, solve=solve), keys=keys, mode="max"
    )
    results = run_trials(folder / f"tune-{bases}-{digest(told)}", plan, context)
    frames = []
    for result in listed(results):
        told = result.metrics or {}
        frames.append(
            pd.DataFrame(
                {
                    "architecture": maps,
                    "dimension": told.get("dimension"),
                    "bases": bases,
                    "shared": told.get("scores") or [float("nan")] * len(maps),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)
