"""The stage that scores architectures of a table without training: NASI's trace norm and others. Shu 2022, 6.6.2."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from archray.files import Folder
from archray.platform.engine.pool_scoring import column_types, count_failures, device_of, score_in_shards
from archray.platform.engine.stage import Context, WorkStage, file_digests
from archray.platform.methods.supernets.nasi_config import NASIConfig, settings_of
from archray.platform.methods.supernets.nasi_tables import IN_TABLE, METRICS, TABLE
from archray.platform.methods.supernets.search_seeds import FOUND_CELLS
from archray.platform.methods.supernets.table_values import TableValues
from archray.plurals import count
from archray.trainables.proxies import ProxySettings
from archray.trainables.spaces import Space, get_space
from archray.trainables.spaces.table_base import canonical_string
from archray.trainables.tune.nasi_trainable import NASIScorer


def _score(context: Context[NASIConfig], folder: Folder) -> None:
    """Those that are drawn, and those that were found or that other constants select, as far as the table has them."""
    config, run = context.config, context.run
    if config.agreement_table is None:
        context.say("no table was given (agreement_table)")
        folder.write_parquet(IN_TABLE, pd.DataFrame())
        return
    space, seed = get_space(run.space), context.seed("table")
    table = TableValues.read(config.agreement_table, space)
    rng = np.random.default_rng(seed)
    size = min(config.agreement_rows, len(table.values))
    drawn = rng.choice(list(table.values), size, replace=False).tolist()
    selected = _selected(run.table("search", FOUND_CELLS), space)
    proxy = ProxySettings(
        metrics=METRICS, batch_size=config.nasi.batch_size, seed=seed, augment=False, network=config.nasi.network
    )
    scores = score_in_shards(
        folder,
        list(dict.fromkeys([*drawn, *(name for name in selected if name in table.values)])),
        worker=NASIScorer,
        worker_kwargs={
            "nasi": settings_of(run),
            "space": run.space,
            "data": run.data.model_dump(mode="json"),
            "proxy": proxy.model_dump(mode="json"),
            "device": device_of(config.resources),
        },
        types=column_types(proxy),
        resources=config.resources,
        console=context.console,
        labels=context.labels(folder.name),
    )
    names = scores["architecture"]
    folder.write_parquet(IN_TABLE, scores.assign(result=names.map(table.values), drawn=names.isin(drawn)))
    folder.write_json(TABLE, table.described())
    context.say(
        f"{count(len(scores), 'architecture')} of {table.location} scored, {count_failures(scores)} of them with a "
        "failed metric"
    )


def _selected(found: pd.DataFrame, space: Space) -> list[str]:
    """The canonical forms of what the seeds found, and of what other constants select from the same gradients."""
    named = [found["architecture"]] if "architecture" in found else []
    if "constants" in found:
        of_seeds = found["constants"].dropna().map(json.loads)
        named += [pd.Series([each["architecture"] for each in tried], dtype=object) for tried in of_seeds]
    names = pd.concat(named).dropna().unique() if named else []
    return [canonical_string(space, name) for name in names]


TABLE_STAGE = WorkStage[NASIConfig](
    name="table",
    title="compare metrics with the accuracies of a table",
    reads=("nasi", "agreement_table", "agreement_rows"),
    depends=file_digests(f"search/{FOUND_CELLS}"),
    work=_score,
    without_data=lambda config: config.begins_without_data,
    amount=lambda config: (
        f"{count(config.agreement_rows, 'architecture')} of {config.agreement_table}, nothing is trained"
        if config.agreement_table is not None
        else "none"
    ),
)
