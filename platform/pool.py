"""The pool: architectures scored without training, over the cluster, as a table. Shu 2022, Alg. 7.1, line 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, field_validator
from rich.console import Console

from archray.cluster.actors import Outcome, actor_map
from archray.cluster.resources import ResourceSettings, actor_count
from archray.errors import InvalidInput, RunInterrupted
from archray.platform.folder import Folder
from archray.platform.interrupt import INTERRUPT, stop_gracefully
from archray.platform.scoring_progress import ScoringProgress
from archray.trainables.data import DataSettings
from archray.trainables.proxies import ProxySettings
from archray.trainables.spaces import Space, get_space

POOL = "pool.parquet"
SHARDS = "shards"
ENUMERABLE = 10**6  # a space up to this size is enumerated, so that a pool is drawn uniformly from canonical forms
DRAWS_PER_ROW = 100  # in a larger space: draws per architecture wanted before the space counts as exhausted
COUNTER = "archray_scored_architectures"  # a metric of Ray's, on the dashboard and the nodes' metrics ports


class PoolSettings(BaseModel):
    """Which architectures are scored.

    Attributes:
        size: rows; None: every canonical form of the space.
        chunk: architectures an actor gets at a time; None: as many as take about five seconds. A killed run loses
            the chunks that were in flight.
        table: a table that was scored before (`archray proxies`), taken instead of scoring one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    metrics = list(proxy.metrics)
    shards = folder / SHARDS
    rows = read_shards(shards, metrics)
    rows = rows[rows["architecture"].isin(set(candidates))]
    known = set(rows["architecture"])
    missing = [architecture for architecture in candidates if architecture not in known]
    gpus = resources.gpus()
    # A worker without a GPU of its own still sees those of the machine.
    worker_kwargs = {
        "space": space,
        "data": data.model_dump(mode="json"),
        "proxy": proxy.model_dump(mode="json"),
        "device": "auto" if gpus else "cpu",
    }
    finished = actor_map(
        scorer or _pool_scorer(),
        missing,
        worker_kwargs=worker_kwargs,
        num_actors=actor_count(resources),
        chunk_size=pool.chunk,
        num_cpus=resources.cpus_per_trial,
        num_gpus=gpus,
        counter=COUNTER,
        stop=lambda: INTERRUPT.requested,
    )
    progress = ScoringProgress(console, total=len(candidates), done=len(known), failed=_failures(rows))
    graceful = stop_gracefully(console, "the architectures under way are scored")
    with graceful, progress, closing(finished):
        for number, outcomes in enumerate(finished, start=_next_shard(shards)):
            table = _table([_row(outcome, metrics) for outcome in outcomes], metrics)
            shards.write_parquet(f"part-{number:05d}.parquet", table)
            progress.advance(len(table), failed=_failures(table))
    rows = read_shards(shards, metrics).drop_duplicates("architecture").set_index("architecture")
    if len(rows) < len(candidates):
        raise RunInterrupted(f"stopped with {len(rows)} of {len(candidates)} architectures scored; they are saved")
    table = rows.loc[list(candidates)].reset_index()
    folder.write_parquet(POOL, table)
    left_out = int(table["seconds"].isna().sum())
    console.print(
        f"    {len(table)} architectures scored, {_failures(table)} of them with a failed metric"
        + (f", {left_out} left out: the scorer failed twice on them (see the column failure)" if left_out else "")
    )
    return POOL


def read_shards(shards: Folder, metrics: Sequence[str]) -> pd.DataFrame:
    """All rows scored so far, in no order. A shard without one of the metrics counts as not scored."""
    tables = [shards.read_parquet(name) for name in shards.files() if name.startswith("part-")]
    tables = [table for table in tables if set(metrics) <= set(table.columns)]
    return pd.concat(tables) if tables else _table([], metrics)


def _pool_scorer() -> Callable[..., Callable[[str], dict[str, Any]]]:
    from archray.trainables.proxies.pool_scorer import PoolScorer  # imports torch

    return PoolScorer


def _failures(table: pd.DataFrame) -> int:
    return int(table["failure"].notna().sum())


def _next_shard(shards: Folder) -> int:
    numbers = [int(name.removeprefix("part-").removesuffix(".parquet")) for name in shards.files()]
    return max(numbers, default=-1) + 1


def _row(outcome: Outcome, metrics: Sequence[str]) -> dict[str, Any]:
    """A row of the pool. The candidate is its key, whatever the scorer calls the architecture."""
    if outcome.error is None:
        return {**outcome.value, "architecture": outcome.item}
    nothing = dict.fromkeys([*metrics, "seconds"], math.nan)
    return {"architecture": outcome.item, **nothing, "failure": outcome.error.splitlines()[0], "parameters": None}


def _table(rows: Sequence[dict[str, Any]], metrics: Sequence[str]) -> pd.DataFrame:
    """Rows with the same columns and types in every shard, whatever is missing in it."""
    columns = ["architecture", *metrics, "failure", "seconds", "parameters"]
    table = pd.DataFrame(rows, columns=columns)
    types = dict.fromkeys([*metrics, "seconds"], "float64") | {"failure": "string", "parameters": "Int64"}
    return table.astype(types)
