"""The pool: architectures scored over the cluster, as a table, in shards. Shu 2022, Alg. 7.1, line 1."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pandas as pd
from rich.console import Console

from archray.cluster.actor_pool import Outcome, actor_map
from archray.cluster.metrics import RunLabels, ScoredCount
from archray.cluster.settings import ResourceSettings, actor_count
from archray.errors import RunInterrupted
from archray.files import Folder
from archray.platform.engine.interrupt import INTERRUPT, stop_gracefully
from archray.platform.engine.progress import ScoringProgress
from archray.platform.run.layout import SCORING, SHARDS
from archray.plurals import count
from archray.trainables.data import DataSettings
from archray.trainables.proxies import ProxySettings
from archray.trainables.tune.scorers import PoolScorer

POOL = "pool.parquet"


def score_pool(
    folder: Folder,
    candidates: Sequence[str],
    *,
    space: str,
    data: DataSettings,
    proxy: ProxySettings,
    resources: ResourceSettings,
    console: Console,
    chunk: int | None = None,
    scorer: Callable[..., Callable[[str], dict[str, Any]]] = PoolScorer,
    labels: RunLabels | None = None,
) -> None:
    """Scores the candidates, distinct canonical strings, without training, into the table POOL of `folder`.

    Its rows are in the order of the candidates: `architecture`, a column per metric, `failure` (why values are NaN;
    else null), `seconds`, `parameters`. Raises: as `score_in_shards`.

    Args:
        scorer: the worker: `scorer(space=, data=, proxy=, device=)(architecture)` is a row.
    """
    data_options, proxy_options = data.model_dump(mode="json"), proxy.model_dump(mode="json")
    table = score_in_shards(
        folder,
        candidates,
        worker=scorer,
        worker_kwargs={"space": space, "data": data_options, "proxy": proxy_options, "device": device_of(resources)},
        types=column_types(proxy),
        resources=resources,
        console=console,
        chunk=chunk,
        labels=labels,
    )
    folder.write_parquet(POOL, table)
    left_out = int(table["seconds"].isna().sum())
    console.print(
        f"    {count(len(table), 'architecture')} scored, {count_failures(table)} of them with a failed metric"
        + (f", {left_out} left out: the scorer failed twice on them (see the column failure)" if left_out else "")
    )


def score_in_shards(
    folder: Folder,
    architectures: Sequence[str],
    *,
    worker: Callable[..., Callable[[Any], Any]],
    worker_kwargs: Mapping[str, Any],
    types: Mapping[str, str],
    resources: ResourceSettings,
    console: Console,
    chunk: int | None = None,
    group: int | None = None,
    labels: RunLabels | None = None,
    unit: str = "architecture",
) -> pd.DataFrame:
    """Scores the architectures with actors; returns a row for each, in their order: `architecture` and `types`.

    Every chunk is written to a file in `shards/` at once; a second call scores only the remaining architectures. An
    architecture on which the worker failed twice is a row too, with no values and the error as its `failure`.

    Args:
        architectures: distinct strings.
        worker: `worker(**worker_kwargs)` in every actor makes a function of an architecture that returns its row, or,
            with groups, of a list of architectures that returns a list of rows. The architecture in a row is replaced
            by the requested one.
        types: the pandas type of every column; `failure` (why values are missing) is one of them.
        chunk: items an actor gets at a time; None: as many as take about five seconds.
        group: architectures of an item; None: an item is one architecture.
        labels: of the metric that counts the architectures, and in the names of the actors; None: the folder's name.
        unit: the word for an architecture in messages.

    Raises: InvalidInput if no actor fits on a node; WorkerFailed if the worker cannot be constructed;
    RunInterrupted after Ctrl-C, when the chunks in flight are saved.
    """
    shards = folder / SHARDS
    rows = _read_shards(shards, types)
    rows = rows[rows["architecture"].isin(set(architectures))]
    scored = set(rows["architecture"])
    labels = labels or RunLabels(stage=folder.name)
    missing = [architecture for architecture in architectures if architecture not in scored]
    items: Sequence[Any] = missing
    if group is not None:
        items = [missing[start : start + group] for start in range(0, len(missing), group)]
    finished = actor_map(
        worker,
        items,
        worker_kwargs=worker_kwargs,
        num_actors=partial(actor_count, resources),
        chunk_size=chunk,
        num_cpus=resources.cpus_per_trial,
        num_gpus=resources.gpus(),
        title=labels.title,
        stop=lambda: INTERRUPT.requested,
    )
    counted = ScoredCount(labels)
    progress = ScoringProgress(console, len(architectures), done=len(scored), failed=count_failures(rows), unit=unit)
    numbers = [int(name.removeprefix("part-").removesuffix(".parquet")) for name in shards.files()]
    began = time.time()
    folder.write_json(SCORING, {"began": began, **progress.state})
    graceful = stop_gracefully(console, f"the {unit}s under way are scored")
    with graceful, progress, closing(finished):
        for number, outcomes in enumerate(finished, start=max(numbers, default=-1) + 1):
            table = _table([row for outcome in outcomes for row in _rows(outcome)], types)
            shards.write_parquet(f"part-{number:05d}.parquet", table)
            counted.add(len(table))
            progress.advance(len(table), failed=count_failures(table))
            folder.write_json(SCORING, {"began": began, **progress.state})
    rows = _read_shards(shards, types).drop_duplicates("architecture").set_index("architecture")
    if len(rows) < len(architectures):
        total = count(len(architectures), unit)
        raise RunInterrupted(f"stopped with {len(rows)} of {total} scored; they are saved")
    return rows.loc[list(architectures)].reset_index()


def column_types(proxy: ProxySettings) -> dict[str, str]:
    """The types of a `PoolScorer`'s columns."""
    metrics = dict.fromkeys(proxy.columns, "float64")
    return metrics | {"failure": "string", "seconds": "float64", "parameters": "Int64"}


def device_of(resources: ResourceSettings) -> str:
    """The device of a worker: without a GPU of its own it still sees the machine's GPUs."""
    return "auto" if resources.gpus() else "cpu"


def count_failures(table: pd.DataFrame) -> int:
    return int(table["failure"].notna().sum())


def _read_shards(shards: Folder, types: Mapping[str, str]) -> pd.DataFrame:
    """All rows scored so far, in no order. A shard without one of the columns counts as not scored."""
    tables = [shards.read_parquet(name) for name in shards.files()]
    tables = [table for table in tables if set(types) <= set(table.columns)]
    return pd.concat(tables) if tables else _table([], types)


def _rows(outcome: Outcome) -> list[dict[str, Any]]:
    one = isinstance(outcome.item, str)
    architectures = [outcome.item] if one else outcome.item
    if outcome.error is not None:
        rows = [{"failure": outcome.error.splitlines()[0]}] * len(architectures)
    else:
        rows = [outcome.value] if one else outcome.value
    return [{**row, "architecture": name} for row, name in zip(rows, architectures, strict=True)]


def _table(rows: Sequence[dict[str, Any]], types: Mapping[str, str]) -> pd.DataFrame:
    """Rows with the same columns and types in every shard."""
    return pd.DataFrame(rows, columns=["architecture", *types]).astype(dict(types))
