"""The stage that measures planes through trained weights, row by row over the cluster. Shu 2022, section 4.3.2."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from archray.files import Folder
from archray.platform.engine.pool_scoring import device_of, score_in_shards
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.methods.understanding.topology.topology_config import CellPlaneSettings, TopologyConfig
from archray.platform.methods.understanding.topology.topology_tables import PLANES, VARIANTS, WEIGHTS, architectures_of
from archray.trainables.landscape.flatness import flatness
from archray.trainables.tune.cell_trainable import COLUMNS, LandscapeWorker, items_of

MEASURES = (
    "plane", "variances", "hessian", "centre", "rise", "flat", "gradient_variance", "plane_variance",
)  # fmt: skip


def weights_file(number: int) -> str:
    """The trained network of an architecture, by its place in `architectures_of`."""
    return f"{number:04d}.pt"


def _measure(context: Context[TopologyConfig], folder: Folder) -> None:
    config, weights = context.config, context.folder("trainings") / WEIGHTS
    kept = set(weights.files())
    places = {
        architecture: (weights / weights_file(number)).uri
        for number, architecture in enumerate(architectures_of(context.run))
        if weights_file(number) in kept
    }
    items = {each: items_of(each, config.plane.points, config.plane.gradient_points) for each in places}
    rows = score_in_shards(
        folder,
        [item for of_one in items.values() for item in of_one],
        worker=LandscapeWorker,
        worker_kwargs={
            "weights": places,
            "data": context.run.data.model_dump(mode="json"),
            **config.plane.model_dump(),
            "seed": context.seed("planes"),
            "device": device_of(config.resources),
        },
        types=COLUMNS,
        resources=config.resources,
        console=context.console,
        labels=context.labels("planes"),
        unit="row",
    ).set_index("architecture")
    table = [{"architecture": each, **measures_of(rows.loc[of_one], config.plane)} for each, of_one in items.items()]
    folder.write_parquet(PLANES, pd.DataFrame(table, columns=["architecture", *MEASURES, "seconds", "failure"]))


def measures_of(rows: pd.DataFrame, plane: CellPlaneSettings) -> dict[str, Any]:
    """What `planes.parquet` has of a network, from what was told of its items, in their order.

    rows: `values`, `seconds` and `failure` of each. One item that failed leaves nothing but its failure.
    """
    failures, seconds = rows["failure"].dropna(), float(rows["seconds"].sum())
    if len(failures):
        return {"seconds": seconds, "failure": failures.iloc[0]}
    middle, *values = (json.loads(text) for text in rows["values"])
    losses, variances = values[: plane.points], values[plane.points :]
    measures = flatness(np.linspace(-plane.radius, plane.radius, plane.points), _numbers(losses))
    centre, variance, hessian = _numbers(middle).tolist()
    return {
        "plane": json.dumps(losses),
        "variances": json.dumps(variances),
        "hessian": hessian,
        "centre": centre,
        "rise": measures["rise"],
        "flat": measures["flat_share"],
        "gradient_variance": variance,
        "plane_variance": float(_numbers(variances).mean()),
        "seconds": seconds,
        "failure": None,
    }


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """null as NaN."""
    return np.array(values, dtype=np.float64)


PLANE_STAGE = WorkStage[TopologyConfig](
    name="planes",
    title="losses and gradients around the trained weights",
    reads=("plane",),
    depends=file_digests("trainings/trials.parquet", f"variants/{VARIANTS}"),
    work=_measure,
    amount=lambda config: f"{config.plane.points} x {config.plane.points} points of each network",
)
