"""A stage that is one Tune trial: the supernet's training, the posterior's."""

from __future__ import annotations

from typing import Any

import pandas as pd
from ray import tune
from ray.tune import Result

from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, listed, run_trials, trial_table
from archray.platform.run.run import digest
from archray.seeds import stage_seed


def run_single_trial(
    context: Context,
    folder: Folder,
    trainable: type[tune.Trainable],
    settings: dict[str, Any],
    *,
    stage: str,
    metric: str,
    inputs: dict[str, Any],
) -> tuple[Folder, pd.DataFrame, Result]:
    """Runs a trial to its end, or what is left of it.

    Args:
        settings: what goes under the config key `settings`. The seed is the stage's own.
        metric: what the terminal shows of it; more is better.
        inputs: what it depends on; the Tune run's folder is named by it.

    Returns: the Tune run's folder, the table of its one trial, which may have failed, and the trial's result.
    """
    config = context.run.config
    plan = TrialPlan(
        trainable=trainable,
        settings=settings,
        metric=metric,
        mode="max",
        total=1,
        cpus=config.resources.cpus_per_trial,
        gpus=config.resources.gpus(),
        concurrency=1,
        keys={"seed": tune.grid_search([stage_seed(config.seed, stage)])},
    )
    tuned = folder / f"tune-{digest(inputs)}"
    results = run_trials(tuned, plan, context)
    context.grids[stage] = results
    [result] = listed(results)
    return tuned, trial_table(results), result
