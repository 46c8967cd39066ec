"""Stages of a search for a feature map: candidates, solves as trials, the map found, oracle solves, correlation.

Khodak et al. 2020, Figure 1. Oracle solves give what the best map of every round would reach; they count neither as
solver calls nor as seconds (note W6).
"""

import math
from typing import Any

import numpy as np
import pandas as pd
from ray import tune

from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage, run_trials
from archray.platform.methods.feature_maps.config import CorrelatedConfig, FeatureMapConfig
from archray.platform.methods.stages import ACCURACY, final_stage
from archray.platform.models.model_files import write_classifier
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND, PROGRESS
from archray.platform.run.manifest import digest
from archray.plurals import count
from archray.trainables.data import load_data
from archray.trainables.feature_maps.solve_settings import Bases
from archray.trainables.tune.feature_map_trainable import FeatureMapSettings, FeatureMapTrainable, feature_map_space

READS = ("solve", "full_dimension")  # what a solve depends on, whatever the feature map
MAX_DRAWS = 1000  # in search of a feature map that is new


def sample_candidates(context: Context[FeatureMapConfig], number: int) -> list[str]:
    """The run's candidates: distinct feature maps drawn uniformly from the space, a function of the run's seed.

    Naive-Bayes weights need two classes (note W8): with more, maps that use them are not drawn.
    """
    run, config = context.run, context.config
    space = feature_map_space(run.space)
    classes = load_data(run.data).num_classes
    rng = np.random.default_rng(context.seed("candidates"))
    drawn: dict[str, None] = {}
    left_out = 0
    for _ in range(MAX_DRAWS + 10 * number):
        if len(drawn) == number:
            break
        candidate = space.encode(space.canonical(space.sample(rng)))
        if classes > 2 and space.configuration(candidate).get("weights") == "naive-bayes":
            left_out += 1
        else:
            drawn[candidate] = None
    if len(drawn) < number:
        raise InvalidInput(
            f"{config.space} gave {count(len(drawn), 'distinct feature map')}, and {number} were asked for as "
            "candidates; ask for fewer"
        )
    if left_out:
        context.say(
            f"maps with Naive-Bayes weights are left out: they need two classes, {config.data.name} has {classes}"
        )
    return list(drawn)


def solves(number: int, config: FeatureMapConfig) -> str:
    """`3 solves with 2 000 features`: how much a stage does."""
    return f"{count(number, 'solve')} with {count(config.full_dimension, 'feature')}"


def solve_settings(context: Context[FeatureMapConfig], **changes: Any) -> dict[str, Any]:
    """What every `FeatureMapTrainable` of the run is told. `changes`: of the fields of `FeatureMapSettings`."""
    run, config = context.run, context.config
    given: dict[str, Any] = {"solve": config.solve, "dimension": config.full_dimension, **changes}
    return FeatureMapSettings(space=run.space, data=run.data, **given).model_dump(mode="json")


def solve_plan(context: Context[FeatureMapConfig], *, settings: dict[str, Any] | None = None, **plan: Any) -> TrialPlan:
    """A plan of solves. settings: of `solve_settings`. plan: further fields of `TrialPlan`."""
    return TrialPlan(
        **{
            "trainable": FeatureMapTrainable,
            "settings": settings or solve_settings(context),
            "metric": "score",
            "mode": context.config.mode,
            **plan,
        }
    )


def write_found_map(
    context: Context[FeatureMapConfig], folder: Folder, architecture: str, value: float, *, calls: int
) -> None:
    """Writes what was found, with its validation accuracy, and says so."""
    folder.write_json(FOUND, {"architecture": architecture, "value": value, "metric": ACCURACY})
    context.say(f"found {architecture}  ({quantity_of(ACCURACY).told(value)}, {count(calls, 'solver call')})")


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
