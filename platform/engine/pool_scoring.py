"""The pool: architectures scored without training, over the cluster, as a table. Shu 2022, Alg. 7.1, line 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator
from rich.console import Console

from archray.cluster.resources import ResourceSettings
from archray.errors import InvalidInput
from archray.files import Folder
from archray.platform.engine.shards import count_failures, device_of, score_in_shards
from archray.settings import Settings
from archray.trainables.data import DataSettings
from archray.trainables.proxies import ProxySettings
from archray.trainables.spaces import Space, get_space

POOL = "pool.parquet"
ENUMERABLE = 10**6  # a space up to this size is enumerated, so that a pool is drawn uniformly from canonical forms
DRAWS_PER_ROW = 100  # in a larger space: draws per architecture wanted before the space counts as exhausted


class PoolSettings(Settings):
    """Which architectures are scored.

    Attributes:
        size: rows; None: every canonical form of the space.
        chunk: architectures an actor gets at a time; None: as many as take about five seconds. A killed run loses
            the chunks that were in flight.
        table: a table that was scored before (`archray proxies`), taken instead of scoring one.
    """

    size: int | None = Field(default=None, ge=1)
    chunk: int | None = Field(default=None, ge=1)
    table: str | None = None

    @field_validator("table")
    @classmethod
    def _absolute(cls, table: str | None) -> str | None:
        """A run may be resumed from another folder."""
        return None if table is None else str(Path(table).expanduser().absolute())


def candidates(space: str | Space, size: int | None, seed: int) -> list[str]:
    """Distinct canonical forms, as strings: all of a space, or `size` of them drawn from the seed.

    Up to ENUMERABLE architectures the draw is uniform over canonical forms; in a larger space over architectures.

    Raises: InvalidInput if the space has fewer forms than `size`, or is too large to score whole.
    """
    space = get_space(space)
    rng = np.random.default_rng(seed)
    if space.size > ENUMERABLE:
        if size is None:
            raise InvalidInput(
                f"{space.name} has {space.size:.3g} architectures, too many to score all; give a pool size"
            )
        return [space.encode(form) for form in _drawn(space, size, rng)]
    forms = list(dict.fromkeys(space.canonical(architecture) for architecture in space.enumerate()))
    if size is not None:
        if size > len(forms):
            raise InvalidInput(f"{space.name} has {len(forms)} different architectures; a pool of {size} is too large")
        forms = [forms[i] for i in rng.choice(len(forms), size, replace=False)]
    return [space.encode(form) for form in forms]


def _drawn(space: Space, size: int, rng: np.random.Generator) -> list[tuple[str, ...]]:
    forms: dict[tuple[str, ...], None] = {}
    for _ in range(DRAWS_PER_ROW * size):
        forms[space.canonical(space.sample(rng))] = None
        if len(forms) == size:
            return list(forms)
    raise InvalidInput(
        f"{DRAWS_PER_ROW * size} draws from {space.name} gave {len(forms)} different architectures of {size}"
    )


def score_pool(
    folder: Folder,
    candidates: Sequence[str],
    *,
    space: str,
    data: DataSettings,
    proxy: ProxySettings,
    resources: ResourceSettings | None = None,
    pool: PoolSettings | None = None,
    console: Console | None = None,
    scorer: Callable[..., Callable[[str], dict[str, Any]]] | None = None,
) -> str:
    """Scores the candidates with actors over the cluster; returns the name of the table in `folder`.

    Every chunk that comes back is a file in `shards/` at once; called again, only what no shard holds is scored. At
    the end all rows are `pool.parquet`, in the order of the candidates: `architecture`, a column per metric,
    `failure` (why values are NaN; null if none is), `seconds`, `parameters`. An architecture on which the scorer
    failed twice is a row too, with no value and the error as its failure.

    Args:
        candidates: distinct canonical strings.
        scorer: the worker, `PoolScorer` by default: `scorer(space=, data=, proxy=, device=)(architecture)` is a row.

    Raises: InvalidInput if no node can hold an actor; WorkerFailed if the scorer cannot be made at all;
    RunInterrupted after Ctrl-C, when the chunks that were in flight are saved.
    """
    resources, pool, console = resources or ResourceSettings(), pool or PoolSettings(), console or Console()
    # The same in every shard, whatever is missing in it.
    types = dict.fromkeys(proxy.columns, "float64")
    types |= {"failure": "string", "seconds": "float64", "parameters": "Int64"}
    table = score_in_shards(
        folder,
        candidates,
        worker=scorer or _pool_scorer(),
        worker_kwargs={
            "space": space,
            "data": data.model_dump(mode="json"),
            "proxy": proxy.model_dump(mode="json"),
            "device": device_of(resources),
        },
        types=types,
        resources=resources,
        console=console,
        chunk=pool.chunk,
    )
    folder.write_parquet(POOL, table)
    left_out = int(table["seconds"].isna().sum())
    console.print(
        f"    {len(table)} architectures scored, {count_failures(table)} of them with a failed metric"
        + (f", {left_out} left out: the scorer failed twice on them (see the column failure)" if left_out else "")
    )
    return POOL


def _pool_scorer() -> Callable[..., Callable[[str], dict[str, Any]]]:
    from archray.trainables.tune.pool_scorer import PoolScorer  # imports torch

    return PoolScorer
