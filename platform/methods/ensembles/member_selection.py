"""What the members are: one architecture, or those that forward selection finds in the pool."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, WorkStage
from archray.platform.methods.ensembles.baseline_config import NESConfig, OneArchitectureConfig
from archray.platform.methods.ensembles.trained_pool import POOL, trained_pool
from archray.platform.methods.final_stage import ACCURACY
from archray.platform.run.layout import DONE, FOUND, TRIALS
from archray.trainables.data import load_images
from archray.trainables.ensembles import ensemble_error, forward_selection
from archray.trainables.tune.member_trainable import read_predictions

LOSS = "validation_loss"


def _pool_digest(context: Context[Any]) -> dict[str, Any]:
    return {POOL: context.folder(POOL).read_json(DONE)["inputs"]}


# One architecture


def _take_one(context: Context[OneArchitectureConfig], folder: Folder) -> None:
    """The architecture that is given, or the best of the pool on validation, for all members."""
    config = context.config
    name, value = config.architecture, None
    if name is None:
        pool = trained_pool(context)
        best = pool.sort_values([ACCURACY, "validation_loss"], ascending=[False, True], kind="stable").iloc[0]
        name, value = best["architecture"], float(best[ACCURACY])
        context.say(f"the best of the pool is {name}  ({ACCURACY} {value:.4f})")
    members = [name] * config.ensemble_size
    folder.write_json(FOUND, {"members": members, "value": value, "metric": ACCURACY, "validation_accuracy": value})


ONE_ARCHITECTURE_STAGE = WorkStage[OneArchitectureConfig](
    name="search",
    title="choose the architecture of all members",
    reads=("ensemble_size", "architecture"),
    depends=_pool_digest,
    work=_take_one,
    needs_ray=False,
)


# Neural ensemble search


def _select(context: Context[NESConfig], folder: Folder) -> None:
    """Algorithm 1, line 2: forward selection from the whole pool. The table has that of every smaller pool too."""
    config, pool = context.config, trained_pool(context)
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
    folder.write_parquet(TRIALS, pd.DataFrame(rows))
    folder.write_json(
        FOUND,
        {
            "members": last["members"],
            "value": last[LOSS],
            "metric": LOSS,
            "validation_accuracy": 1 - last["validation_error"],
        },
    )
    context.say(f"the ensemble selected has {LOSS} {last[LOSS]:.4f}, as trained in the pool")


MEMBER_SELECTION_STAGE = WorkStage[NESConfig](
    name="search",
    title="select an ensemble from the pool",
    reads=("ensemble_size",),
    depends=_pool_digest,
    work=_select,
    needs_ray=False,
)
