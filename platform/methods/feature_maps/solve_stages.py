"""The stages after a search for a feature map: the found map solved again, oracle solves, and the paper's Figure 1."""

from __future__ import annotations

import math

import pandas as pd
from ray import tune

from archray.files import Folder
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage, run_trials
from archray.platform.methods.feature_maps.feature_map_config import FeatureMapConfig
from archray.platform.methods.feature_maps.halving_config import CorrelatedConfig
from archray.platform.methods.feature_maps.solve_plans import (
    READS,
    sample_candidates,
    solve_plan,
    solve_settings,
    solves,
)
from archray.platform.methods.training_stages import final_stage
from archray.platform.models.model_files import write_classifier
from archray.platform.run.layout import PROGRESS
from archray.platform.run.manifest import digest
from archray.plurals import count
from archray.trainables.feature_maps.solve_settings import Bases

CORRELATION = "correlation.parquet"
"""A row per `bases` (`shared` or `independent`), `dimension` and `architecture`: the validation accuracy with shared
weights, `shared_accuracy`, and solved for on its own, `standalone_accuracy`; fractions."""


FINAL_SOLVE_STAGE = final_stage(
    "solve for the found feature map alone",
    reads=READS,
    trials=solve_plan,
    write=write_classifier,
    amount=lambda config: solves(config.final_seeds, config),
)


# Oracle solves: what the best map of every round would reach. They count neither as calls nor as seconds (note W6).


def _oracle_trials(context: Context[FeatureMapConfig], tuned: Folder) -> TrialPlan | None:
    progress = context.run.table("search", PROGRESS)
    unknown = progress["search_test_accuracy"].isna() & progress["architecture"].notna()
    leaders = list(dict.fromkeys(progress.loc[unknown, "architecture"]))
    if not leaders:
        tuned.parent.write_parquet(PROGRESS, progress)
        return None
    keys = {"architecture": tune.grid_search(leaders), "seed": context.seed("oracle")}
    return solve_plan(context, total=len(leaders), keys=keys)


def _write_oracle(context: Context[FeatureMapConfig], folder: Folder, run: TuneRun) -> None:
    progress = context.run.table("search", PROGRESS)
    accuracies = run.trials.set_index("architecture")["test_accuracy"]
    known = progress["search_test_accuracy"]
    progress["search_test_accuracy"] = known.fillna(progress["architecture"].map(accuracies))
    folder.write_parquet(PROGRESS, progress)


ORACLE_STAGE = TuneStage[FeatureMapConfig](
    name="oracle",
    title="solve for the best feature map of every round, to compare",
    reads=READS,
    depends=file_digests(f"search/{PROGRESS}"),
    plan=_oracle_trials,
    finish=_write_oracle,
)


def _correlate(context: Context[CorrelatedConfig], folder: Folder) -> None:
    options = context.config.correlation
    if options.maps == 0:
        context.say("not asked for (correlation.maps)")
        return
    maps = sample_candidates(context, options.maps)
    full = context.config.full_dimension
    dimensions = tuple(sorted(set(options.dimensions or (math.ceil(full / 4), math.ceil(full / 2), full))))
    alone = _standalone_accuracies(context, folder, maps, dimensions)
    shared = [_shared_accuracies(context, folder, maps, dimensions, bases) for bases in options.bases]
    folder.write_parquet(CORRELATION, pd.concat(shared).merge(alone, on=["architecture", "dimension"]))


def _standalone_accuracies(
    context: Context[CorrelatedConfig], folder: Folder, maps: list[str], dimensions: tuple[int, ...]
) -> pd.DataFrame:
    """`architecture`, `dimension`, `standalone_accuracy`: the validation accuracy of each map solved for alone."""
    settings = solve_settings(context, rungs=dimensions, evaluate_test=False)
    keys = {"architecture": tune.grid_search(maps), "seed": context.seed("correlation")}
    plan = solve_plan(context, total=len(maps), settings=settings, keys=keys)
    run = run_trials(folder / f"tune-alone-{_digest(context, dimensions)}", plan, context)
    run.write_tables(folder, context.say)
    columns = ["architecture", "dimension", "validation_accuracy"]
    return run.curves[columns].rename(columns={"validation_accuracy": "standalone_accuracy"})


def _shared_accuracies(
    context: Context[CorrelatedConfig], folder: Folder, maps: list[str], dimensions: tuple[int, ...], bases: Bases
) -> pd.DataFrame:
    """`architecture`, `dimension`, `bases`, `shared_accuracy`: the validation accuracy of each map with shared weights.

    Every map is scored on all validation points (note W6).
    """
    scoring = {"bases": bases, "score": "accuracy", "validation": "all"}
    settings = solve_settings(context, solve=context.config.solve.model_copy(update=scoring))
    seed, budgets = context.seed("correlation"), tune.grid_search(list(dimensions))
    keys = {"candidates": maps, "round": 1, "replica": 0, "budget": budgets, "seed": seed}
    plan = solve_plan(context, total=len(dimensions), settings=settings, keys=keys, mode="max")
    run = run_trials(folder / f"tune-{bases}-{_digest(context, dimensions)}", plan, context)
    tables = []
    for result in run.ended:
        metrics = result.metrics or {}
        scores = metrics.get("scores") or [math.nan] * len(maps)
        columns = {
            "architecture": maps,
            "dimension": metrics.get("dimension"),
            "bases": bases,
            "shared_accuracy": scores,
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _digest(context: Context[CorrelatedConfig], dimensions: tuple[int, ...]) -> str:
    return digest({**CORRELATION_STAGE.inputs(context), "dimensions": dimensions})


CORRELATION_STAGE = WorkStage[CorrelatedConfig](
    name="correlation",
    title="shared against standalone accuracy",
    reads=(*READS, "correlation"),
    work=_correlate,
    amount=lambda config: count(config.correlation.maps, "feature map") if config.correlation.maps else "none",
)
