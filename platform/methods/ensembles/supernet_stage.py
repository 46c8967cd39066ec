"""Stage 1 of NESBS: a supernet trained on one uniformly drawn path for each step. Shu 2022, section 5.2.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context
from archray.platform.engine.tuning import TrialPlan, TuneRun, TuneStage
from archray.platform.methods.ensembles.ensemble_config import NESBSConfig
from archray.platform.methods.ensembles.ensemble_tables import SUPERNET
from archray.platform.run.layout import CURVES, TRIALS
from archray.trainables.checkpoint import read_state
from archray.trainables.supernets import write_weights
from archray.trainables.tune.supernet_settings import SupernetSettings
from archray.trainables.tune.supernet_trainable import SupernetTrainable

WEIGHTS, UPDATES = "weights.pt", "updates.parquet"
BEST_RESPONSE = "posterior.json"  # where the posterior was learnt with the weights
METRIC = "validation_accuracy"  # of paths drawn for each batch


def single_trial(context: Context[Any], stage: str, **plan: Any) -> TrialPlan:
    """One trial with the stage's own seed. plan: fields of `TrialPlan`; more of the metric is better."""
    return TrialPlan(mode="max", total=1, keys={"seed": tune.grid_search([context.seed(stage)])}, at_most=1, **plan)


def supernet_settings(context: Context[NESBSConfig]) -> dict[str, Any]:
    """What a `SupernetTrainable` of the run is told: space and data as they hold in its folder."""
    run, options = context.run, dict(context.config.trained_supernet)
    return SupernetSettings(**options, space=run.space, data=run.data).model_dump(mode="json")


def _trial(context: Context[NESBSConfig], tuned: Folder) -> TrialPlan:
    settings = supernet_settings(context)
    return single_trial(context, SUPERNET, trainable=SupernetTrainable, settings=settings, metric=METRIC)


def _write_trained(context: Context[NESBSConfig], folder: Folder, run: TuneRun) -> None:
    for name, table in ((TRIALS, run.trials), (CURVES, run.curves)):  # without the tables that stand in cells
        folder.write_parquet(name, table.drop(columns=["updates", "posterior"], errors="ignore"))
    [result] = run.ended
    checkpoint = run.checkpoint(result)
    if checkpoint is None:
        raise ArchrayError(f"the training of the supernet failed: {run.failures}")
    metrics = result.metrics or {}
    with checkpoint.as_directory() as place:
        state = read_state(Path(place))["trainer"]["supernet"]
    write_weights(folder.uri, WEIGHTS, state)
    updates = pd.DataFrame(json.loads(metrics["updates"]))
    folder.write_parquet(UPDATES, updates)
    if metrics.get("posterior") is not None:
        folder.write_json(BEST_RESPONSE, json.loads(metrics["posterior"]))
    context.say(
        f"{METRIC} {metrics[METRIC]:.4f} of drawn paths; an operation's weights were updated "
        f"{updates['updates'].min()} to {updates['updates'].max()} times"
    )


SUPERNET_STAGE = TuneStage[NESBSConfig](
    name=SUPERNET,
    title="train a supernet on random paths",
    reads=("trained_supernet",),
    plan=_trial,
    finish=_write_trained,
)
