"""Random teachers, whose alpha and W are taken as what a search returned: Assumption 3 as it stands.

Roberts et al. 2022, Theorems 1, 4 and 7.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.progress import track

from archray.files import Folder
from archray.platform.engine.stage import Context, WorkStage
from archray.platform.methods.understanding.activations.activations_config import ActivationsConfig
from archray.platform.methods.understanding.activations.pair_tables import pair_table
from archray.plurals import count
from archray.seeds import named_seed
from archray.trainables.activations.activation_functions import get_activations
from archray.trainables.activations.conditions import SharedRisks
from archray.trainables.activations.instances import Pool, uniform_on_simplex
from archray.trainables.activations.two_layer import component_outputs, draw_weights, mixture_outputs, output_weights

TEACHERS = "teachers.parquet"
CHUNK = 20  # teachers of a shard: outputs of 20 x 2,000 points x 32 units x 5 activations are 50 MB


def _work(context: Context[ActivationsConfig], folder: Folder) -> None:
    """Writes a shard for each chunk of teachers, those that there are not yet; then all as one table."""
    config, shards = context.config, folder / "shards"
    pool = Pool.load(context.run.data)
    if pool is not None:
        pool.check(config.problem, config.data.name, labelled="data" in config.labels)
    chunks = [(size, begin) for size in config.sizes for begin in range(0, config.teachers, CHUNK)]
    names = [f"part-{size}-{begin:06d}.parquet" for size, begin in chunks]
    known = set(shards.files())
    missing = [place for place, name in enumerate(names) if name not in known]
    for place in track(missing, "    teachers", console=context.console, transient=True):
        size, begin = chunks[place]
        numbers = range(begin, min(begin + CHUNK, config.teachers))
        shards.write_parquet(names[place], teacher_pairs(context, size, numbers, pool))
    table = pd.concat([shards.read_parquet(name) for name in names], ignore_index=True)
    folder.write_parquet(TEACHERS, table)
    context.say(f"{count(config.teachers, 'teacher')} each of {', '.join(map(str, config.sizes))} activations")


def teacher_pairs(context: Context[ActivationsConfig], size: int, numbers: range, pool: Pool | None) -> pd.DataFrame:
    """The pairs of these teachers, each of `size` activations drawn from the study's, alpha uniform on the simplex."""
    problem = context.config.problem
    drawn = [_draw(context, size, number, pool) for number in numbers]
    inputs, weights, alpha, chosen = (torch.stack(column) for column in zip(*drawn, strict=True))
    functions = get_activations(problem.activations)
    components = component_outputs(inputs, weights, output_weights(problem.width), functions)  # (S, n, all)
    components = components.gather(-1, chosen[:, None].expand(-1, inputs.shape[1], -1))  # (S, n, h)
    risks = SharedRisks.of(components, mixture_outputs(components, alpha), alpha)
    names = np.array(problem.activations)[chosen.numpy()]
    return pair_table(risks, names, {"activations": size, "number": np.array(numbers)})


def _draw(context: Context[ActivationsConfig], size: int, number: int, pool: Pool | None) -> tuple[Any, ...]:
    """Inputs (n, d), W (k, d), alpha (h,) and which activations (h,) of one teacher."""
    problem = context.config.problem
    generator = torch.Generator().manual_seed(named_seed(context.seed("teachers"), size, number))
    if pool is None:
        inputs = torch.randn(problem.risk_samples, problem.dimension, generator=generator, dtype=torch.float64)
    else:
        points = min(problem.risk_samples, len(pool.inputs))
        inputs = pool.inputs[torch.randperm(len(pool.inputs), generator=generator)[:points]]
    weights = draw_weights(problem.width, inputs.shape[1], generator)
    chosen = torch.randperm(len(problem.activations), generator=generator)[:size].sort().values
    return inputs, weights, uniform_on_simplex(size, generator=generator), chosen


TEACHER_STAGE = WorkStage[ActivationsConfig](
    name="teachers",
    title="count the theorems on random teachers",
    reads=("problem", "teachers", "labels"),
    work=_work,
    needs_ray=False,
    amount=lambda config: (
        f"{count(config.teachers, 'teacher')} each of {', '.join(map(str, config.sizes))} activations"
    ),
)
