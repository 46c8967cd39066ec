"""Stages of the study of cells: variants, training, planes around trained weights, linear cells. Shu 2022, ch. 4."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.pool_scoring import device_of, score_in_shards
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.stages import ACCURACY, training_amount
from archray.platform.methods.understanding.topology import tables
from archray.platform.methods.understanding.topology.config import CellPlaneSettings, TopologyConfig
from archray.plurals import count
from archray.seeds import first_seeds, named_seed
from archray.trainables.data import load_images
from archray.trainables.spaces import genotypes

MEASURES = (
    "plane", "variances", "hessian", "center", "rise", "flat", "gradient_variance", "plane_variance",
)  # fmt: skip


def weights_file(number: int) -> str:
    """The file of a trained network, by the index of its architecture in `architectures_of`."""
    return f"{number:04d}.pt"


def _measure(context: Context[TopologyConfig], folder: Folder) -> None:
    from archray.trainables.tune.cell_trainable import COLUMNS, LandscapeWorker, items_of  # torch

    config, weights = context.config, context.folder("trainings") / tables.WEIGHTS
    stored = set(weights.files())
    files = {name: weights_file(number) for number, name in enumerate(tables.architectures_of(context.run))}
    places = {architecture: (weights / file).uri for architecture, file in files.items() if file in stored}
    items = {name: items_of(name, config.plane.points, config.plane.gradient_points) for name in places}
    rows = score_in_shards(
        folder,
        [item for of_network in items.values() for item in of_network],
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
    table = [{"architecture": name, **measures_of(rows.loc[part], config.plane)} for name, part in items.items()]
    folder.write_parquet(tables.PLANES, pd.DataFrame(table, columns=["architecture", *MEASURES, "seconds", "failure"]))


def measures_of(rows: pd.DataFrame, plane: CellPlaneSettings) -> dict[str, Any]:
    """The columns of `planes.parquet` for a network.

    Args:
        rows: `values`, `seconds` and `failure` of the items of the network, in order.
        plane: settings of the plane.

    Returns: The columns; if an item failed, only `seconds` and `failure`.
    """
    from archray.trainables.landscape.loss_plane import flatness  # torch

    failures, seconds = rows["failure"].dropna(), float(rows["seconds"].sum())
    if len(failures):
        return {"seconds": seconds, "failure": failures.iloc[0]}
    middle, *values = (json.loads(text) for text in rows["values"])
    losses, variances = values[: plane.points], values[plane.points :]
    measures = flatness(np.linspace(-plane.radius, plane.radius, plane.points), np.array(losses, dtype=float))
    center, variance, hessian = np.array(middle, dtype=float).tolist()  # null in JSON is NaN
    return {
        "plane": json.dumps(losses),
        "variances": json.dumps(variances),
        "hessian": hessian,
        "center": center,
        "rise": measures["rise"],
        "flat": measures["flat_share"],
        "gradient_variance": variance,
        "plane_variance": float(np.array(variances, dtype=float).mean()),
        "seconds": seconds,
        "failure": None,
    }


PLANE_STAGE = WorkStage[TopologyConfig](
    name="planes",
    title="compute losses and gradients around the trained weights",
    reads=("plane",),
    depends=file_digests("trainings/trials.parquet", f"variants/{tables.VARIANTS}"),
    work=_measure,
    amount=lambda config: f"{config.plane.points} x {config.plane.points} points per network",
)


def _shape(genotype: genotypes.Genotype) -> dict[str, Any]:
    normal, reduce = map(genotypes.cell_shape, genotype)
    return {"width": normal.width, "depth": normal.depth, "reduce_width": reduce.width, "reduce_depth": reduce.depth}


def _draw_variants(context: Context[TopologyConfig], folder: Folder) -> None:
    """Writes a row per cell and variant, and the shapes of random connections that are not trained."""
    import torch

    from archray.trainables.nets import build, count_parameters  # torch

    config, data = context.config, load_images(context.run.data)
    sizes: dict[str, Any] = {"in_channels": data.in_channels, "num_classes": data.num_classes, "seed": None}
    rows, shapes = [], []
    for name, space, text in config.cells:
        architecture = space.decode(text)
        seed = named_seed(context.seed("variants"), name)
        kinds = {
            "cell": [architecture],
            "widest": [genotypes.widest(space, architecture)] if config.widest else [],
            "connections": genotypes.connection_variants(space, architecture, config.connections, seed),
            "operations": genotypes.operation_variants(space, architecture, config.operations, seed),
        }
        for kind, variants in kinds.items():
            for number, variant in enumerate(variants, start=1):
                with torch.device("meta"):
                    network = build(space, variant, network=config.network, **sizes)
                row = {"cell": name, "kind": kind, "number": number, "space": space.name}
                row |= _shape(space.genotype(variant)) | {"parameters": count_parameters(network)}
                rows.append(row | {"architecture": space.encode(variant)})
        drawn = genotypes.random_shapes(space, architecture, config.shapes, named_seed(context.seed("shapes"), name))
        shapes += [{"cell": name, **_shape(genotype)} for genotype in drawn]
    table = pd.DataFrame(rows)
    # The widest variant may equal the cell or a random variant: keep the first of equal rows.
    table = table.drop_duplicates(["cell", "architecture"], ignore_index=True)
    folder.write_parquet(tables.VARIANTS, table)
    folder.write_parquet(tables.SHAPES, pd.DataFrame(shapes))
    context.say(f"{count(len(table), 'network')} of {count(len(config.architectures), 'cell')}")


def _trials(context: Context[TopologyConfig], tuned: Folder) -> TrialPlan:
    from archray.trainables.tune.cell_trainable import CellTrainable  # torch
    from archray.trainables.tune.standalone_trainable import StandaloneSettings  # torch

    config, architectures = context.config, tables.architectures_of(context.run)
    settings = StandaloneSettings(
        space=context.run.space,
        data=context.run.data,
        network=config.network,
        training=config.train,
        evaluate_test="every",
    )
    seeds = first_seeds(context.seed("trainings"), config.seeds)
    return TrialPlan(
        trainable=CellTrainable,
        settings=settings.model_dump(mode="json"),
        metric=ACCURACY,
        mode="max",
        total=len(architectures) * len(seeds) * len(config.learning_rates),
        keys={
            "architecture": tune.grid_search(architectures),
            "seed": tune.grid_search(seeds),
            "lr_factor": tune.grid_search(list(config.learning_rates)),
        },
        reads_checkpoints=True,
    )


def _keep_weights(context: Context[TopologyConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the networks for the planes: each architecture with the first seed, at `train.lr`."""
    from archray.trainables.checkpoint import read_state, write_weights  # torch
    from archray.trainables.tune.cell_trainable import network_state  # torch

    [seed] = first_seeds(context.seed("trainings"), 1)
    weights, architectures = folder / tables.WEIGHTS, tables.architectures_of(context.run)
    for result in run.ended:
        keys, checkpoint = result.config or {}, run.checkpoint(result)
        if checkpoint is None or (keys["seed"], keys["lr_factor"]) != (seed, 1.0):
            continue
        with checkpoint.as_directory() as place:
            state = network_state(read_state(Path(place)))
        write_weights(weights.uri, weights_file(architectures.index(keys["architecture"])), state)
    if not weights.exists() or not weights.files():
        raise ArchrayError(f"training failed for all of {count(len(architectures), 'network')}: {run.failures}")


def _check_linear(context: Context[TopologyConfig], folder: Folder) -> None:
    from archray.trainables.landscape.linear_cells import bounds_table  # torch

    if context.config.linear_instances == 0:
        context.say("skipped: linear_instances is 0")
        return
    folder.write_parquet(tables.BOUNDS, bounds_table(context.config.linear_instances, context.seed("linear")))


RECIPE = Recipe[TopologyConfig](
    stages=(
        WorkStage[TopologyConfig](
            name="variants",
            title="draw variants of each cell",
            reads=("architectures", "connections", "operations", "widest", "shapes", "network"),
            work=_draw_variants,
            needs_ray=False,
        ),
        TuneStage[TopologyConfig](
            name="trainings",
            title="train cells and variants with equal budgets",
            reads=("network", "train", "learning_rates", "seeds"),
            depends=file_digests(f"variants/{tables.VARIANTS}"),
            plan=_trials,
            finish=_keep_weights,
            search=True,
            amount=lambda config: (
                f"{training_amount(config.seeds * len(config.learning_rates), config.train)} per network"
            ),
        ),
        PLANE_STAGE,
        WorkStage[TopologyConfig](
            name="linear",
            title="test Theorems 4.3 and 4.4 on linear cells",
            reads=("linear_instances",),
            work=_check_linear,
            needs_ray=False,
            without_data=lambda config: True,
            amount=lambda config: count(config.linear_instances, "instance"),
        ),
    ),
    report_at="archray.platform.methods.understanding.topology.report:REPORT",
)
