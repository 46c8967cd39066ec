"""Stage 1 of NESBS: a supernet trained on one uniformly drawn path for each step. Shu 2022, section 5.2.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.single_trial import run_single_trial
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import curve_table
from archray.platform.methods.ensembles.ensemble_config import nesbs_config
from archray.platform.methods.training_stages import failure_reasons
from archray.trainables.checkpoint import read_state
from archray.trainables.supernets import write_weights
from archray.trainables.tune.supernet_settings import SupernetSettings
from archray.trainables.tune.supernet_trainable import SupernetTrainable

STAGE, WEIGHTS, UPDATES = "supernet", "weights.pt", "updates.parquet"
BEST_RESPONSE = "posterior.json"  # where the posterior was learnt with the weights
METRIC = "validation_accuracy"  # of paths drawn for each batch


def supernet_settings(context: Context) -> dict[str, Any]:
    """What a `SupernetTrainable` of the run is told: space and data as they hold in its folder."""
    run = context.run
    options = dict(nesbs_config(run).trained_supernet)
    return SupernetSettings(**options, space=run.space, data=run.data).model_dump(mode="json")


def supernet_inputs(context: Context) -> dict[str, Any]:
    """What the training of the supernet depends on."""
    config = nesbs_config(context.run)
    return {
        "space": context.run.space,
        "data": context.run.manifest["data_checksum"],
        "supernet": config.trained_supernet.model_dump(mode="json"),
        "seed": config.seed,
    }


def _train(context: Context, folder: Folder) -> None:
    tuned, trials, result = run_single_trial(
        context,
        folder,
        SupernetTrainable,
        supernet_settings(context),
        stage=STAGE,
        metric=METRIC,
        inputs=supernet_inputs(context),
    )
    folder.write_parquet("trials.parquet", _plain(trials))
    folder.write_parquet("curves.parquet", _plain(curve_table(tuned, context.grids[STAGE])))
    told = result.metrics or {}
    if result.checkpoint is None or told.get("failure") is not None:
        raise ArchrayError(f"the training of the supernet failed: {failure_reasons(trials)}")
    with result.checkpoint.as_directory() as place:
        state = read_state(Path(place))["trainer"]["supernet"]
    write_weights(folder.uri, WEIGHTS, state)
    updates = pd.DataFrame(json.loads(told["updates"]))
    folder.write_parquet(UPDATES, updates)
    if told.get("posterior") is not None:
        folder.write_json(BEST_RESPONSE, json.loads(told["posterior"]))
    context.console.print(
        f"    {METRIC} {told[METRIC]:.4f} of drawn paths; an operation's weights were updated "
        f"{updates['updates'].min()} to {updates['updates'].max()} times",
        soft_wrap=True,
    )


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """Without the tables that stand in cells."""
    return table.drop(columns=["updates", "posterior"], errors="ignore")


def supernet_stage() -> Stage:
    return Stage(STAGE, "train a supernet on random paths", supernet_inputs, _train)
