"""What the members are: one architecture, or those that forward selection finds in the pool."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, Stage
from archray.platform.methods.ensembles.baseline_config import one_architecture_config, pooled_config
from archray.platform.methods.ensembles.trained_pool import pool_inputs, trained_pool
from archray.platform.methods.training_stages import METRIC
from archray.trainables.data import load_images
from archray.trainables.ensembles import ensemble_error, forward_selection
from archray.trainables.tune.member_trainable import read_predictions

STAGE = "search"
LOSS = "validation_loss"


def _inputs(context: Context) -> dict[str, Any]:
    return {"pool": pool_inputs(context), "ensemble_size": pooled_config(context.run).ensemble_size}


# One architecture


def _take_one(context: Context, folder: Folder) -> None:
    """The architecture that is given, or the best of the pool on validation, for all members."""
    config = one_architecture_config(context.run)
    name, value = config.architecture, None
    if name is None:
        pool = trained_pool(context)
        best = pool.sort_values([METRIC, "validation_loss"], ascending=[False, True], kind="stable").iloc[0]
        name, value = best["architecture"], float(best[METRIC])
        context.console.print(f"    the best of the pool is {name}  ({METRIC} {value:.4f})", soft_wrap=True)
    members = [name] * config.ensemble_size
    folder.write_json(
        "architecture.json", {"members": members, "value": value, "metric": METRIC, "validation_accuracy": value}
    )


def one_architecture_stage() -> Stage:
    return Stage(STAGE, "choose the architecture of all members", _inputs, _take_one, needs_ray=False)


# Neural ensemble search


def _select(context: Context, folder: Folder) -> None:
    """Algorithm 1, line 2: forward selection from the whole pool. The table has that of every smaller pool too."""
    config, pool = pooled_config(context.run), trained_pool(context)
    size = config.ensemble_size
    if len(pool) < size:
        raise ArchrayError(
            f"the pool has {len(pool)} networks that were trained to the end, and {size} members are asked for; the "
            "table pool/trials.parquet says why the others failed; lower ensemble_size or raise pool"
        )
    probabilities = np.stack([read_predictions(uri) for uri in pool["predictions"]])  # (pool, images, classes)
    labels = load_images(context.run.data).validation.labels.numpy()
    rows: list[dict[str, Any]] = []
    for trained in range(size, len(pool) + 1):
        selected = forward_selection(probabilities[:trained], labels, size)
        members = selected.members
        rows.append(
            {
                "number": trained,
                "sampler": config.method,
                "delta": math.nan,
                "temperature": math.nan,
                "members": [pool["architecture"][place] for place in members],
                LOSS: selected.losses[-1],
                "validation_error": ensemble_error(probabilities[members], labels),
                "failure": None,
            }
        )
    last = rows[-1]
    folder.write_parquet("trials.parquet", pd.DataFrame(rows))
    folder.write_json(
        "architecture.json",
        {
            "members": last["members"],
            "value": last[LOSS],
            "metric": LOSS,
            "validation_accuracy": 1 - last["validation_error"],
        },
    )
    context.console.print(f"    the ensemble selected has {LOSS} {last[LOSS]:.4f}, as trained in the pool")


def selection_stage() -> Stage:
    return Stage(STAGE, "select an ensemble from the pool", _inputs, _select, needs_ray=False)
