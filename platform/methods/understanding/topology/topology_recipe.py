"""What the study of cells does: variants, trainings, planes around trained weights, linear cells. Shu 2022, ch. 4."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import torch
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.training_stages import ACCURACY, trainings
from archray.platform.methods.understanding.topology.plane_stage import PLANE_STAGE, weights_file
from archray.platform.methods.understanding.topology.topology_claims import findings
from archray.platform.methods.understanding.topology.topology_config import TopologyConfig
from archray.platform.methods.understanding.topology.topology_report import SECTIONS, headline, listings
from archray.platform.methods.understanding.topology.topology_tables import (
    BOUNDS,
    SHAPES,
    VARIANTS,
    WEIGHTS,
    architectures_of,
)
from archray.plurals import count
from archray.seeds import first_seeds, named_seed
from archray.trainables.checkpoint import read_state, write_weights
from archray.trainables.data import load_images
from archray.trainables.landscape.linear_cells import bounds_table
from archray.trainables.nets import build, count_parameters
from archray.trainables.spaces.cell_shape import cell_shape
from archray.trainables.spaces.cell_variants import connection_variants, operation_variants, random_shapes, widest
from archray.trainables.spaces.genotypes import Genotype
from archray.trainables.tune.cell_trainable import CellTrainable, network_state
from archray.trainables.tune.standalone_trainable import StandaloneSettings


def _shape(genotype: Genotype) -> dict[str, Any]:
    normal, reduce = map(cell_shape, genotype)
    return {"width": normal.width, "depth": normal.depth, "reduce_width": reduce.width, "reduce_depth": reduce.depth}


def _draw_variants(context: Context[TopologyConfig], folder: Folder) -> None:
    """Writes what is trained, a row a cell or a variant, and the shapes of many more random connections."""
    config, run = context.config, context.run
    data = load_images(run.data)
    rows, shapes = [], []
    for name, space, text in config.cells:
        architecture = space.decode(text)
        seed = named_seed(context.seed("variants"), name)
        kinds = {
            "cell": [architecture],
            "widest": [widest(space, architecture)] if config.widest else [],
            "connections": connection_variants(space, architecture, config.connections, seed),
            "operations": operation_variants(space, architecture, config.operations, seed),
        }
        for kind, variants in kinds.items():
            for number, variant in enumerate(variants, start=1):
                with torch.device("meta"):
                    network = build(
                        space,
                        variant,
                        network=config.network,
                        in_channels=data.in_channels,
                        num_classes=data.num_classes,
                        seed=None,
                    )
                row = {"cell": name, "kind": kind, "number": number, "space": space.name}
                row |= _shape(space.genotype(variant)) | {"parameters": count_parameters(network)}
                rows.append(row | {"architecture": space.encode(variant)})
        drawn = random_shapes(space, architecture, config.shapes, named_seed(context.seed("shapes"), name))
        shapes += [{"cell": name, **_shape(genotype)} for genotype in drawn]
    table = pd.DataFrame(rows)
    # A widest form may be the cell itself, or what was drawn: it is what stands there first.
    table = table.drop_duplicates(["cell", "architecture"], ignore_index=True)
    folder.write_parquet(VARIANTS, table)
    folder.write_parquet(SHAPES, pd.DataFrame(shapes))
    context.say(f"{count(len(table), 'network')} of {count(len(config.architectures), 'cell')}")


def _trials(context: Context[TopologyConfig], tuned: Folder) -> TrialPlan:
    config, architectures = context.config, architectures_of(context.run)
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
    )


def _keep_weights(context: Context[TopologyConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the networks whose surroundings are measured: of each architecture the first seed at the rate itself."""
    seed, weights, numbers = (
        first_seeds(context.seed("trainings"), 1)[0],
        folder / WEIGHTS,
        architectures_of(context.run),
    )
    for result in run.ended:
        told = result.config or {}
        checkpoint = run.checkpoint(result)
        if checkpoint is None or (told["seed"], told["lr_factor"]) != (seed, 1.0):
            continue
        with checkpoint.as_directory() as place:
            state = network_state(read_state(Path(place)))
        write_weights(weights.uri, weights_file(numbers.index(told["architecture"])), state)
    if not weights.exists() or not weights.files():
        raise ArchrayError(f"none of {count(len(numbers), 'network')} was trained: {run.failures}")


def _check_linear(context: Context[TopologyConfig], folder: Folder) -> None:
    if context.config.linear_instances == 0:
        context.say("none asked for")
        return
    folder.write_parquet(BOUNDS, bounds_table(context.config.linear_instances, context.seed("linear")))


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
            title="train cells and variants at equal budget",
            reads=("network", "train", "learning_rates", "seeds"),
            depends=file_digests(f"variants/{VARIANTS}"),
            plan=_trials,
            finish=_keep_weights,
            search=True,
            amount=lambda config: trainings(
                config.seeds * len(config.learning_rates), config.train, "training of each network"
            ),
        ),
        PLANE_STAGE,
        WorkStage[TopologyConfig](
            name="linear",
            title="Theorems 4.3 and 4.4 on linear cells",
            reads=("linear_instances",),
            work=_check_linear,
            needs_ray=False,
            without_data=lambda config: True,
            amount=lambda config: count(config.linear_instances, "instance"),
        ),
    ),
    findings=findings,
    headline=headline,
    sections=SECTIONS,
    listings=listings,
)
