"""The stage that scores a pool of architectures without training, or takes one that was scored before."""

from __future__ import annotations

import pandas as pd

from archray.files import Folder
from archray.platform.engine.pool_scoring import POOL, score_pool
from archray.platform.engine.pool_settings import candidates
from archray.platform.engine.run_costs import feasible_candidates, feasible_rows, has_costs, with_costs
from archray.platform.engine.stage import Context, WorkStage
from archray.platform.methods.pooled_config import PooledConfig, file_role
from archray.plurals import count


def _score(context: Context[PooledConfig], folder: Folder) -> None:
    config, run = context.config, context.run
    if (source := config.pool.table) is not None:
        table = pd.read_csv(source) if source.endswith(".csv") else pd.read_parquet(source)
        context.say(f"{count(len(table), 'architecture')} taken from {source}")
        folder.write_parquet(POOL, feasible_rows(context, with_costs(context, table)))
        return
    metrics = tuple(run.resolved(file_role(name), name) for name in config.scored.metrics)
    seed = context.seed("pool")
    drawn = feasible_candidates(context, config.pool.size, seed)
    score_pool(
        folder,
        candidates(run.space, config.pool.size, seed) if drawn is None else drawn,
        space=run.space,
        data=run.data,
        proxy=config.scored.model_copy(update={"metrics": metrics}),
        resources=config.resources,
        console=context.console,
        chunk=config.pool.chunk,
        labels=context.labels(folder.name),
    )
    if has_costs(context):
        folder.write_parquet(POOL, with_costs(context, folder.read_parquet(POOL)))


def _amount(config: PooledConfig) -> str:
    pool = config.pool
    if pool.table is not None:
        return f"none, they are taken from {pool.table}"
    return "every canonical form of the space" if pool.size is None else count(pool.size, "architecture")


POOL_STAGE = WorkStage[PooledConfig](
    name="pool",
    title="score architectures without training",
    reads=("scored", "pool.size", "pool.table"),
    work=_score,
    amount=_amount,
)
