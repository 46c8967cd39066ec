"""Architectures drawn from a space, and scored with a supernet's weights over the cluster: resumable, in shards."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import ray
import torch
from rich.console import Console

from archray.cluster.metrics import RunLabels
from archray.cluster.settings import ResourceSettings, actor_count
from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.engine.pool_scoring import count_failures, device_of, score_in_shards
from archray.plurals import count
from archray.trainables.spaces import ConstrainedSpace, Space, get_space
from archray.trainables.supernets.networks import discretise
from archray.trainables.tune.scorers import SCORES, SupernetScorer
from archray.trainables.tune.settings import SupernetOptions

GROUP = 8  # architectures that one pass over the validation data scores: small, as a kill loses the groups in flight
REPEATS = 1000  # draws in a row that give nothing new, before the space counts as exhausted
TYPES = {**dict.fromkeys(SCORES, "float64"), "failure": "string"}


def draw_architectures(space: Space | str, options: SupernetOptions, number: int, seed: int) -> list[str]:
    """Distinct architectures, uniformly drawn among those that the supernet can find.

    They are the discretisations of independent uniform weights. So `none`, where the supernet has no such operation,
    is not drawn: its steps would never have trained that path. Isomorphic architectures count apart, as their shared
    weights differ.

    space: under a constraint, only what meets it is drawn. Raises: InvalidInput if there are fewer.
    """
    meets = space.meets if isinstance(space, ConstrainedSpace) else lambda architecture: True
    space = get_space(space.unconstrained if isinstance(space, ConstrainedSpace) else space)
    parameters = options.groups(space)
    if number > space.size:
        there = count(int(space.size), "architecture")
        raise InvalidInput(f"{space.name} has {there}, and {number} were asked for; ask for fewer")
    generator = torch.Generator().manual_seed(seed)
    drawn: dict[str, None] = {}
    repeats = 0
    while len(drawn) < number:
        weights = {group.name: torch.rand(group.shape, generator=generator) for group in parameters}
        architecture = discretise(space, weights)
        refused = architecture in drawn or not meets(space.decode(architecture))
        repeats = repeats + 1 if refused else 0
        if repeats == REPEATS:
            raise InvalidInput(
                f"the supernet of {space.name} gave {count(len(drawn), 'different architecture')} before {REPEATS} "
                f"draws gave none that was new, and {number} were asked for; ask for fewer"
            )
        if not refused:
            drawn[architecture] = None
    return list(drawn)


def score_with_shared_weights(
    folder: Folder,
    architectures: Sequence[str],
    *,
    settings: Mapping[str, Any],
    weights: Mapping[str, np.ndarray],
    resources: ResourceSettings,
    console: Console,
    labels: RunLabels | None = None,
) -> pd.DataFrame:
    """A row for each architecture, in order: `architecture`, `shared_loss`, `shared_accuracy`, `failure`.

    Called again on the same folder, of which each set of weights has its own, it goes on where it was left; see
    `score_in_shards`. settings: fields of `SupernetSettings`.

    Raises: WorkerFailed if the weights are of another supernet; RunInterrupted.
    """
    table = score_in_shards(
        folder,
        architectures,
        worker=SupernetScorer,
        worker_kwargs={"settings": dict(settings), "weights": ray.put(weights), "device": device_of(resources)},
        types=TYPES,
        resources=resources,
        console=console,
        group=max(1, min(GROUP, math.ceil(len(architectures) / actor_count(resources)))),
        labels=labels,
    )
    console.print(f"    {count(len(table), 'architecture')} scored, {count_failures(table)} of them without a score")
    return table
