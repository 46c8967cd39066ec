"""Stages of the study of activations: random teachers, searches, training and tables. Roberts et al. 2022.

The alpha and W of a random teacher count as the result of a search, which is Assumption 3 (Theorems 1, 4, 7).
"""

from typing import Any

import numpy as np
import pandas as pd
import torch
from ray import tune
from rich.progress import track

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, WorkStage
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.understanding.activations import tables
from archray.platform.methods.understanding.activations.config import ActivationsConfig, amount
from archray.plurals import count
from archray.seeds import named_seed
from archray.trainables.activations import two_layer
from archray.trainables.activations.instances import Pool, SharedRisks, uniform_on_simplex
from archray.trainables.activations.settings import ActivationSettings
from archray.trainables.tune.activation_trainable import ActivationTrainable

CHUNK = 20  # teachers per shard: outputs of 20 x 2,000 points x 32 units x 5 activations take 50 MB


def _teachers(config: ActivationsConfig) -> str:
    return f"{count(config.teachers, 'teacher')} for each of {', '.join(map(str, config.sizes))} activations"


def _work(context: Context[ActivationsConfig], folder: Folder) -> None:
    """Writes the missing shards, one per chunk of teachers, and then all shards as one table."""
    config, shards = context.config, folder / "shards"
    pool = Pool.load(context.run.data)
    if pool is not None:
        pool.check(config.problem, config.data.name, labeled="data" in config.labels)
    chunks = [(size, start) for size in config.sizes for start in range(0, config.teachers, CHUNK)]
    names = [f"part-{size}-{start:06d}.parquet" for size, start in chunks]
    written = set(shards.files())
    missing = [place for place, name in enumerate(names) if name not in written]
    for place in track(missing, "    teachers", console=context.console, transient=True):
        size, start = chunks[place]
        numbers = range(start, min(start + CHUNK, config.teachers))
        shards.write_parquet(names[place], teacher_pairs(context, size, numbers, pool))
    table = pd.concat([shards.read_parquet(name) for name in names], ignore_index=True)
    folder.write_parquet(tables.TEACHERS, table)
    context.say(_teachers(config))


def teacher_pairs(context: Context[ActivationsConfig], size: int, numbers: range, pool: Pool | None) -> pd.DataFrame:
    """Pairs of activations of random teachers with `size` activations and alpha uniform on the simplex."""
    problem = context.config.problem
    teachers = [_draw(context, size, number, pool) for number in numbers]
    inputs, weights, alpha, chosen = (torch.stack(column) for column in zip(*teachers, strict=True))
    functions = two_layer.get_activations(problem.activations)
    outputs = two_layer.output_weights(problem.width)
    components = two_layer.component_outputs(inputs, weights, outputs, functions)  # (S, n, all)
    components = components.gather(-1, chosen[:, None].expand(-1, inputs.shape[1], -1))  # (S, n, h)
    risks = SharedRisks.of(components, two_layer.mixture_outputs(components, alpha), alpha)
    names = np.array(problem.activations)[chosen.numpy()]
    return tables.pair_table(risks, names, {"activations": size, "number": np.array(numbers)})


def _draw(context: Context[ActivationsConfig], size: int, number: int, pool: Pool | None) -> tuple[Any, ...]:
    """Inputs (n, d), W (k, d), alpha (h,) and the indices of the activations (h,) of one teacher."""
    problem = context.config.problem
    generator = torch.Generator().manual_seed(named_seed(context.seed("teachers"), size, number))
    if pool is None:
        inputs = torch.randn(problem.risk_samples, problem.dimension, generator=generator, dtype=torch.float64)
    else:
        points = min(problem.risk_samples, len(pool.inputs))
        inputs = pool.inputs[torch.randperm(len(pool.inputs), generator=generator)[:points]]
    weights = two_layer.draw_weights(problem.width, inputs.shape[1], generator)
    chosen = torch.randperm(len(problem.activations), generator=generator)[:size].sort().values
    return inputs, weights, uniform_on_simplex(size, generator=generator), chosen


TEACHER_STAGE = WorkStage[ActivationsConfig](
    name="teachers",
    title="test the theorems on random teachers",
    reads=("problem", "teachers", "labels"),
    work=_work,
    needs_ray=False,
    amount=_teachers,
)


def _trials(context: Context[ActivationsConfig], tuned: Folder) -> TrialPlan:
    config = context.config
    settings = ActivationSettings(
        **dict(config.problem), data=context.run.data, seeds=config.seeds_at_once, instances=config.seeds
    )
    firsts = list(range(0, config.seeds, config.seeds_at_once))
    return TrialPlan(
        trainable=ActivationTrainable,
        settings=settings.model_dump(mode="json"),
        metric="mixture_risk",
        mode="min",
        total=len(firsts) * len(config.labels),
        keys={
            "labels": tune.grid_search(list(config.labels)),
            "first": tune.grid_search(firsts),
            "seed": context.seed("shared"),
        },
    )


def _write_rows(context: Context[ActivationsConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the tables of the stage. Raises: ArchrayError if all trials failed."""
    curves = run.curves
    instances = curves[curves["phase"].eq("instance")].sort_values(["labels", "number"], ignore_index=True)
    if instances.empty:
        raise ArchrayError(f"all training runs failed: {run.failures}")
    rows = tables.rows_of_activations(instances, context.config.problem.activations)
    pairs = tables.rows_of_pairs(rows)
    folder.write_parquet(tables.ACTIVATION_ROWS, rows)
    folder.write_parquet(tables.PAIRS, pairs)
    folder.write_parquet(tables.AGREEMENTS, tables.agreement_rows(rows, pairs, context.seed("random-rankings")))


RECIPE = Recipe(
    stages=(
        TEACHER_STAGE,
        TuneStage[ActivationsConfig](
            name="shared",
            title="search alpha with shared weights, and train each activation from scratch",
            reads=("problem", "labels", "seeds", "seeds_at_once"),
            plan=_trials,
            finish=_write_rows,
            search=True,
            amount=amount,
        ),
    ),
    report_at="archray.platform.methods.understanding.activations.report:REPORT",
)
