"""Stages that methods share: training what was found, random architectures beside it, and the report."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import Field
from ray import tune
from ray.tune import ResultGrid

from archray.cluster.resources import concurrency
from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.config import SearchConfig
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import TrialPlan, curve_table, listed, run_trials, trial_table
from archray.platform.models.export import write_model
from archray.platform.run.run import Run, digest
from archray.searchers import RandomSearch
from archray.seeds import first_seeds, stage_seed
from archray.trainables.nets import NetworkSettings
from archray.trainables.training import TrainingSettings
from archray.trainables.tune.standalone_trainable import StandaloneSettings, StandaloneTrainable

METRIC, MODE = "validation_accuracy", "max"


class TrainedSearchConfig(SearchConfig):
    """A search that ends with the standalone training of what it found.

    Fields:
        network: the skeleton that architectures are put in.
        final: how the found architecture is trained.
        final_seeds: how many times, each from its own initial parameters.
        baseline: how many random architectures are trained the same way, to compare with; 0 for none.
    """

    network: NetworkSettings = NetworkSettings()
    final: TrainingSettings = TrainingSettings(epochs=200)
    final_seeds: int = Field(1, ge=1)
    baseline: int = Field(0, ge=0)


def trained_config(run: Run) -> TrainedSearchConfig:
    """The configuration of a run whose method trains networks."""
    assert isinstance(run.config, TrainedSearchConfig)  # methods with these stages have such a configuration
    return run.config


def standalone_settings(context: Context, training: TrainingSettings, *, test: bool) -> dict[str, Any]:
    """What every `StandaloneTrainable` of the run is told; `test`: the test split is evaluated, in the last epoch."""
    run, config = context.run, trained_config(context.run)
    return StandaloneSettings(
        space=run.space,
        data=run.data,
        network=config.network,
        training=training,
        evaluate_test="last" if test else "never",
    ).model_dump(mode="json")


def training_inputs(context: Context, training: TrainingSettings) -> dict[str, Any]:
    """What a training depends on, whatever the architecture."""
    manifest, config = context.run.manifest, trained_config(context.run)
    return {
        "space": context.run.space,
        "data": manifest["data_checksum"],
        "network": config.network.model_dump(mode="json"),
        "training": training.model_dump(mode="json"),
        "seed": config.seed,
    }


def trial_plan(context: Context, training: TrainingSettings, *, total: int, test: bool, **plan: Any) -> TrialPlan:
    """A plan of standalone trainings with the run's resources."""
    resources = context.run.config.resources
    return TrialPlan(
        trainable=StandaloneTrainable,
        settings=standalone_settings(context, training, test=test),
        metric=METRIC,
        mode=MODE,
        total=total,
        cpus=resources.cpus_per_trial,
        gpus=resources.gpus(),
        **plan,
    )


def write_tables(folder: Folder, tuned: Folder, results: ResultGrid, *, keep_earlier: bool = False) -> pd.DataFrame:
    """Writes `trials.parquet` and `curves.parquet` of a stage; returns the former.

    tuned: the folder of the Tune run.
    keep_earlier: the rows of other trials that the files hold stay, for a search that was extended.
    """
    tables = {"trials.parquet": trial_table(results), "curves.parquet": curve_table(tuned, results)}
    for name, table in tables.items():
        if keep_earlier and folder.exists(name):
            earlier = folder.read_parquet(name)
            others = earlier[~earlier["trial_id"].isin(table.get("trial_id", []))]
            table = pd.concat([others, table], ignore_index=True)
        folder.write_parquet(name, table)
    return tables["trials.parquet"]


def failure_reasons(trials: pd.DataFrame) -> str:
    """The distinct reasons for which trials failed, in one line."""
    reasons = pd.concat([trials[column] for column in ("failure", "error") if column in trials]).dropna()
    return "; ".join(sorted({str(reason) for reason in reasons})) or "no reason was recorded"


def found_in(run: Run) -> Folder:
    """The folder of the stage that chose the architecture: `selection` where there is one, else `search`."""
    selection = run.folder / "selection"
    return selection if selection.exists("architecture.json") else run.folder / "search"


def found_architecture(context: Context) -> dict[str, Any]:
    """What the search found; of several architectures that it found, the one selected."""
    found: dict[str, Any] = found_in(context.run).read_json("architecture.json")
    return found


# Final training


def _final_inputs(context: Context) -> dict[str, Any]:
    config = trained_config(context.run)
    return {
        **training_inputs(context, config.final),
        "final_seeds": config.final_seeds,
        "architecture": found_architecture(context)["architecture"],
    }


def train_with_seeds(
    context: Context,
    folder: Folder,
    *,
    inputs: dict[str, Any],
    seeds: int,
    plan: Callable[..., TrialPlan],
    write: Callable[[Folder, Path, Run], None],
) -> None:
    """Trains what the search found once for each of `seeds` seeds, and writes the best on validation to `model/`.

    Args:
        inputs: what the training depends on; the Tune run's folder is named by it.
        plan: makes the plan of the trials, given `total`, `concurrency` and `keys`.
        write: writes a model from the folder of a trial's checkpoint.

    Raises: ArchrayError if no training has a validation accuracy.
    """
    config = context.run.config
    architecture = found_architecture(context)["architecture"]
    grid = tune.grid_search(first_seeds(stage_seed(config.seed, "final"), seeds))
    tuned = folder / f"tune-{digest(inputs)}"
    keys = {"architecture": architecture, "seed": grid}
    results = run_trials(tuned, plan(total=seeds, concurrency=concurrency(config.resources), keys=keys), context)
    context.grids["final"] = results
    trials = write_tables(folder, tuned, results)
    ended = [(result.metrics or {}, result.checkpoint) for result in listed(results)]
    trained = [(told[METRIC], kept) for told, kept in ended if kept and not math.isnan(told.get(METRIC, math.nan))]
    if not trained:
        raise ArchrayError(f"the final training of {architecture} failed: {failure_reasons(trials)}")
    checkpoint = max(trained, key=lambda entry: entry[0])[1]
    with checkpoint.as_directory() as place:
        write(folder / "model", Path(place), context.run)


def _train_found(context: Context, folder: Folder) -> None:
    config = trained_config(context.run)

    def plan(**given: Any) -> TrialPlan:
        return trial_plan(context, config.final, test=True, **given)

    train_with_seeds(
        context, folder, inputs=_final_inputs(context), seeds=config.final_seeds, plan=plan, write=write_model
    )


def final_stage() -> Stage:
    return Stage("final", "train the found architecture from scratch", _final_inputs, _train_found)


# Random architectures


def _baseline_inputs(context: Context) -> dict[str, Any]:
    config = trained_config(context.run)
    return {**training_inputs(context, config.final), "baseline": config.baseline}


def _train_random(context: Context, folder: Folder) -> None:
    config = trained_config(context.run)
    if config.baseline == 0:
        context.console.print("    none asked for")
        return
    concurrent = concurrency(config.resources)
    plan = trial_plan(
        context,
        config.final,
        total=config.baseline,
        test=True,
        concurrency=concurrent,
        searcher=lambda: RandomSearch(
            context.run.space, budget=config.baseline, seed=stage_seed(config.seed, "baseline")
        ),
    )
    tuned = folder / f"tune-{digest(_baseline_inputs(context))}"
    results = run_trials(tuned, plan, context)
    context.grids["baseline"] = results
    write_tables(folder, tuned, results)


def baseline_stage() -> Stage:
    return Stage("baseline", "train random architectures the same way", _baseline_inputs, _train_random)
