"""What a plain search does: trainings that one searcher asks for, and the training of the best in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from ray.tune.schedulers import TrialScheduler

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.bench.bench_problem import BenchProblem, MakeSearcher
from archray.platform.engine.pool_scoring import POOL
from archray.platform.engine.run_costs import has_costs, run_costs, searched_space
from archray.platform.engine.stage import Context, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.extended_search import search_plan, write_state
from archray.platform.methods.plain.plain_config import PlainConfig
from archray.platform.methods.plain.plain_report import HEADLINES, SECTIONS, headline, listings, measured_plain
from archray.platform.methods.plain.plain_tables import Trials
from archray.platform.methods.plain.table_look_up import (
    baseline_of_table,
    final_of_table,
    looked_up,
    or_look_up,
    pool_of_table,
    search_of_table,
    table_of,
)
from archray.platform.methods.pool_stage import POOL_STAGE
from archray.platform.methods.pooled_config import PooledConfig
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.training_stages import ACCURACY, BASELINE_STAGE, FINAL_STAGE, trainings
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND, TRIALS
from archray.plurals import count
from archray.trainables.costs import cost_column
from archray.trainables.proxies import column_of
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_space import TableSpace

COSTS = ("parameters",)  # columns of a pool that was scored


def plain_recipe(
    make: MakeSearcher,
    *,
    title: str,
    pool: bool = False,
    scheduler: Callable[[Any], TrialScheduler] | None = None,
    reads: tuple[str, ...] = (),
) -> Recipe[Any]:
    """What one searcher's search does.

    Args:
        make: its searcher, see `plain_searchers`; it is told `searcher_options` of the configuration.
        title: what it does, for the terminal.
        pool: whether it chooses from a pool, which a stage before scores; its configuration is a `PooledConfig`.
        scheduler: configuration -> the scheduler that ends trainings early; a run that goes on begins with a fresh one.
        reads: what of the configuration the scheduler depends on.
    """

    def plan(context: Context[Any], tuned: Folder) -> TrialPlan:
        config: PlainConfig = context.config
        problem = problem_of(context)

        def searcher() -> Any:
            return make(problem, config.search.budget, context.seed("search"), config.searcher_options)

        return search_plan(
            context,
            tuned,
            searcher,
            scheduler=None if scheduler is None else lambda: scheduler(config),
            fixed=getattr(searcher(), "depends_on_results", False),
        )

    trained = TuneStage[PlainConfig](
        name="search",
        title=title,
        reads=("network", "train", "search", *reads),
        depends=file_digests(f"pool/{POOL}") if pool else lambda context: {},
        plan=plan,
        finish=_write_found,
        search=True,
        extends=True,
        amount=lambda config: trainings(config.search.budget, config.train),
    )
    return Recipe(
        stages=(
            *([or_look_up(POOL_STAGE, pool_of_table, lambda config: "the metrics of the table")] if pool else ()),
            or_look_up(
                trained, search_of_table(make, problem_of, scheduler), lambda config: looked_up(config.search.budget)
            ),
            or_look_up(FINAL_STAGE, final_of_table, lambda config: looked_up(1)),
            or_look_up(BASELINE_STAGE, baseline_of_table, lambda config: looked_up(config.baseline)),
        ),
        measured=measured_plain,
        headlines=HEADLINES,
        headline=headline,
        sections=SECTIONS,
        listings=listings,
    )


def problem_of(context: Context[Any]) -> BenchProblem:
    """What the run searches."""
    config, space = context.config, get_space(context.run.space)
    metrics: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    if isinstance(space, TableSpace):
        table = table_of(config)
        metrics, costs = tuple(table.metrics), tuple(table.costs)
    elif isinstance(config, PooledConfig):
        scored = config.needed if config.pool.table is not None else config.scored.metrics
        metrics, costs = tuple(map(column_of, scored)), (*COSTS, *_further(config.cost_names))
    return BenchProblem(
        space=get_space(searched_space(context)),
        pool=(context.folder("pool") / POOL).uri,
        metrics=metrics,
        costs=costs,
        encoding=space.encoding if isinstance(space, TableSpace) else "tokens",
        objective=ACCURACY,
        mode="max",
        costs_of=run_costs(context) if has_costs(context) else None,
    )


def _further(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(column for column in map(cost_column, names) if column not in COSTS)


def _write_found(context: Context[PlainConfig], folder: Folder, run: TuneRun) -> None:
    write_state(folder, run)
    trials: pd.DataFrame = folder.read_parquet(TRIALS)  # those of a smaller budget too
    best = Trials(trials).best
    if best is None:
        raise ArchrayError(f"none of {count(len(trials), 'trial')} has a value: {run.failures}")
    name, value = trials["architecture"][best], float(trials[ACCURACY][best])
    folder.write_json(FOUND, {"architecture": name, "value": value, "number": best + 1, "metric": ACCURACY})
    context.say(f"found {name}  ({quantity_of(ACCURACY).told(value)})")
