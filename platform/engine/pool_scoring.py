"""Scoring of a pool of architectures on the cluster, into a table, in shards. Shu 2022, Alg. 7.1, line 1."""

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
from archray.errors import OUT_OF_MEMORY, RunInterrupted
from archray.files import Folder
from archray.platform.durable.interrupt import INTERRUPT, stop_gracefully
from archray.platform.engine.progress import ScoringProgress
from archray.platform.engine.trial_tables import larger_share
from archray.platform.run.layout import SCORING, SHARDS
from archray.plurals import count
from archray.trainables.data import DataSettings
from archray.trainables.proxies import ProxySettings

POOL = "pool.parquet"
MERGED = 100  # shards of similar size that become one larger shard, so that a large pool has a few hundred files


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
    scorer: Callable[..., Callable[[str], dict[str, Any]]] | None = None,
    labels: RunLabels | None = None,
) -> None:
    """Scores the candidates without training, and writes the table POOL in `folder`.

    This process draws the batch, so that the actors open no data set. The rows are in the order of the candidates:
    `architecture`, a column per metric, `failure` (the reason of NaN values; else null), `seconds`, `parameters`,
    `device` (CPU, or the name of the GPU). Values of different devices differ slightly, so a mixture is reported.

    Args:
        candidates: distinct canonical strings.
        scorer: class of the worker: `scorer(space=, data=, proxy=, device=)(architecture)` returns a row; `data` is a
            `ScoredBatch`. None: `PoolScorer`.

    Raises: the errors of `score_in_shards` and `batch_of`.
    """
    from archray.trainables.tune.scorers import PoolScorer, batch_of  # torch

    batch, proxy_options = batch_of(data, proxy), proxy.model_dump(mode="json")
    table = score_in_shards(
        folder,
        candidates,
        worker=scorer or PoolScorer,
        worker_kwargs={"space": space, "data": batch, "proxy": proxy_options, "device": device_of(resources)},
        types=column_types(proxy),
        resources=resources,
        console=console,
        chunk=chunk,
        labels=labels,
    )
    folder.write_parquet(POOL, table)
    left_out = int(table["seconds"].isna().sum())
    console.print(
        f"    {count(len(table), 'architecture')} scored, {count_failures(table)} with a failed metric"
        + (f", {left_out} skipped: the scorer failed twice on them (see the column 'failure')" if left_out else "")
    )
    for line in failed_metrics(table, proxy.columns):
        console.print(f"    Warning: {line}", markup=False, soft_wrap=True)
    if warning := mixed_devices(table["device"]):
        console.print(f"    Warning: {warning}")


def failed_metrics(table: pd.DataFrame, metrics: Sequence[str]) -> list[str]:
    """Returns a line per metric that failed, with the number of architectures and the first reason.

    Architectures on which the scorer itself failed do not count.
    """
    scored, lines = table[table["seconds"].notna()], []
    for metric in metrics:
        reasons = scored.loc[scored[metric].isna(), "failure"].dropna()
        if len(reasons):
            share = f"{len(reasons)} of {count(len(scored), 'architecture')}"
            lines.append(f"the metric {metric} failed for {share}: {_reason_of(metric, reasons.iloc[0])}")
    return lines


def _reason_of(metric: str, failure: str) -> str:
    """Returns the reason of one metric in a `failure` of a `PoolScorer`: `naswot: REASON; snip, grasp: REASON`."""
    for part in failure.split("; "):
        names, _, reason = part.partition(": ")
        if metric in names.split(", "):
            return reason
    return failure


def mixed_devices(devices: pd.Series) -> str | None:
    """Returns the warning for scores of several devices; None if there is one. devices: name of each row's device."""
    rows = devices.value_counts()
    if len(rows) < 2:
        return None
    parts = ", ".join(f"{number} on {device}" for device, number in rows.items())
    return (
        f"expected scores of one device type, got {parts}. Their values differ by up to 0.3 %. Score the pool on one "
        "device type to compare close architectures."
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
    """Scores the architectures with actors.

    The function writes every finished chunk to `shards/`; a second call scores only the remaining architectures. If
    the worker failed twice on an architecture, its row has no values, and the error is its `failure`.

    Args:
        architectures: distinct strings.
        worker: `worker(**worker_kwargs)` in every actor returns a function from an architecture to its row, or,
            with groups, from a list of architectures to a list of rows. The requested architecture replaces the
            architecture in a row.
        types: pandas type of every column, including `failure` (the reason of missing values).
        chunk: items per task of an actor; None: as many as take about five seconds.
        group: architectures per item; None: an item is one architecture.
        labels: labels of the metric that counts the architectures, also in the names of the actors; None: the name of
            the folder.
        unit: word for an architecture in messages.

    An architecture that ran out of its share of a GPU's memory is scored again with a larger share, as trials are, in
    the folder `again-SHARE`.

    Returns: a row per architecture, in order, with the columns `architecture` and `types`.
    Raises: InvalidInput if no actor fits on a node; WorkerFailed if the worker cannot be constructed;
    RunInterrupted after Ctrl-C, when the chunks in flight are saved.
    """
    from archray.trainables.devices import limited_worker  # torch

    shards = Shards(folder / SHARDS, types)
    rows = shards.rows()
    rows = rows[rows["architecture"].isin(set(architectures))]
    scored = set(rows["architecture"])
    labels = labels or RunLabels(stage=folder.name)
    missing = [architecture for architecture in architectures if architecture not in scored]
    items: Sequence[Any] = missing
    if group is not None:
        items = [missing[start : start + group] for start in range(0, len(missing), group)]
    finished = actor_map(
        limited_worker(worker, resources.gpus()),
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
    start = time.time()
    folder.write_json(SCORING, {"started": start, **progress.state})
    graceful = stop_gracefully(console, f"the {unit}s in progress are scored")
    with graceful, progress, closing(finished):
        for outcomes in finished:
            table = _table([row for outcome in outcomes for row in _rows(outcome)], types)
            shards.add(table)
            counted.add(len(table))
            progress.advance(len(table), failed=count_failures(table))
            folder.write_json(SCORING, {"started": start, **progress.state})
    rows = shards.rows().set_index("architecture")
    if len(rows) < len(architectures):
        total = count(len(architectures), unit)
        raise RunInterrupted(f"stopped after scoring {len(rows)} of {total}; the scores are saved")
    table = rows.loc[list(architectures)].reset_index()
    lacks_memory = table["failure"].str.contains(OUT_OF_MEMORY, na=False)
    short, share = table.loc[lacks_memory, "architecture"].tolist(), resources.gpus()
    if not short or not 0 < share < 1:
        return table
    share = larger_share(share)
    console.print(f"    {count(len(short), unit)} ran out of memory; scoring again with {count(share, 'GPU')} each")
    again = score_in_shards(
        folder / f"again-{share:g}",
        short,
        worker=worker,
        worker_kwargs=worker_kwargs,
        types=types,
        resources=resources.model_copy(update={"gpus_per_trial": share, "trials_per_gpu": None}),
        console=console,
        chunk=chunk,
        group=group,
        labels=labels,
        unit=unit,
    )
    return pd.concat([table[~lacks_memory], again.set_index(table.index[lacks_memory])]).sort_index()


class Shards:
    """The rows scored so far, in memory and in Parquet files, which are read once.

    MERGED shards of a level become one shard of the next level. The larger shard is complete before the others are
    deleted, so a kill loses no rows. It can leave rows in two shards, which `rows` returns once. A shard that lacks a
    column counts as not scored.

    Args:
        folder: folder of the files.
        types: pandas type of every column besides `architecture`.
    """

    def __init__(self, folder: Folder, types: Mapping[str, str]) -> None:
        self._folder, self._empty = folder, _table([], types)
        tables = {name: folder.read_parquet(name) for name in folder.files()}
        self._next = max((int(name.removeprefix("part-").removesuffix(".parquet")) for name in tables), default=-1) + 1
        columns = self._empty.columns
        whole = {name: table[columns] for name, table in tables.items() if not set(columns) - set(table.columns)}
        self._levels = [whole]  # the tables of each level by file
        self._merge_full(0)

    def rows(self) -> pd.DataFrame:
        """Returns a row per scored architecture, unordered."""
        return self._rows_of(*self._levels)

    def add(self, table: pd.DataFrame, level: int = 0) -> None:
        """Writes a shard."""
        name, self._next = f"part-{self._next:05d}.parquet", self._next + 1
        self._folder.write_parquet(name, table)
        self._levels[level][name] = table
        self._merge_full(level)

    def _merge_full(self, level: int) -> None:
        shards = self._levels[level]
        if len(shards) < MERGED:
            return
        if level + 1 == len(self._levels):
            self._levels.append({})
        self.add(self._rows_of(shards), level + 1)
        for name in shards:
            self._folder.delete(name)
        self._levels[level] = {}

    def _rows_of(self, *levels: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
        tables = [table for level in levels for table in level.values()]
        return pd.concat(tables or [self._empty]).drop_duplicates("architecture")


def column_types(proxy: ProxySettings) -> dict[str, str]:
    """Returns the types of a `PoolScorer`'s columns."""
    metrics = dict.fromkeys(proxy.columns, "float64")
    return metrics | {"failure": "string", "seconds": "float64", "parameters": "Int64", "device": "string"}


def device_of(resources: ResourceSettings) -> str:
    """Returns the device of a worker: the CPU without an assigned GPU, since a worker sees all GPUs of the machine."""
    return "auto" if resources.gpus() else "cpu"


def count_failures(table: pd.DataFrame) -> int:
    return int(table["failure"].notna().sum())


def _rows(outcome: Outcome) -> list[dict[str, Any]]:
    one = isinstance(outcome.item, str)
    architectures = [outcome.item] if one else outcome.item
    if outcome.error is not None:
        rows = [{"failure": outcome.error.splitlines()[0]}] * len(architectures)
    else:
        rows = [outcome.value] if one else outcome.value
    return [{**row, "architecture": name} for row, name in zip(rows, architectures, strict=True)]


def _table(rows: Sequence[dict[str, Any]], types: Mapping[str, str]) -> pd.DataFrame:
    """Builds a table with the same columns and types in every shard."""
    return pd.DataFrame(rows, columns=["architecture", *types]).astype(dict(types))
