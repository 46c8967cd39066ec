"""A plain search on a table: its answers stand in the place of trainings, in the search and in the end.

Nothing is trained and Ray is not needed: the searcher is driven in this process, in seconds, and a run that was stopped
in the middle of it does it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from ray.tune.schedulers import TrialScheduler

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.bench.bench_problem import BenchProblem, MakeSearcher
from archray.platform.engine.pool_scoring import POOL
from archray.platform.engine.run_costs import feasible_rows, searched_space, with_costs
from archray.platform.engine.stage import Context, Stage
from archray.platform.methods.plain.plain_config import PlainConfig
from archray.platform.methods.plain.plain_tables import Trials
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND, TRIALS
from archray.plurals import count
from archray.searchers import RandomSearch, drive
from archray.trainables.spaces import get_space
from archray.trainables.spaces.table_space import TableSpace
from archray.trainables.tabular import OBJECTIVE, Table

RESULT = "result"  # what the table says in the end


@dataclass(frozen=True, kw_only=True)
class OrLookUp(Stage[PlainConfig]):
    """A stage that trains or scores, and what it does where the space is a table."""

    stage: Stage[Any]
    look_up: Callable[[Context[Any], Folder, Table], None]

    def inputs(self, context: Context[PlainConfig]) -> dict[str, Any]:
        return self.stage.inputs(context)

    def requires_ray(self, context: Context[PlainConfig]) -> bool:
        return not context.config.on_table and self.stage.requires_ray(context)

    def execute(self, context: Context[PlainConfig], folder: Folder) -> None:
        if context.config.on_table:
            self.look_up(context, folder, table_of(context.config))
        else:
            self.stage.execute(context, folder)


def or_look_up(
    stage: Stage[Any], look_up: Callable[[Context[Any], Folder, Table], None], amount: Callable[[Any], str]
) -> OrLookUp:
    """look_up: what it does on a table. amount: how much that is, as of any stage."""

    def told(config: PlainConfig) -> str:
        return (amount if config.on_table else stage.amount)(config)

    return OrLookUp(name=stage.name, title=stage.title, stage=stage, look_up=look_up, amount=told)


def looked_up(number: int) -> str:
    """`8 architectures looked up`: how much a stage does."""
    return f"{count(number, 'architecture')} looked up" if number else "none"


def table_of(config: PlainConfig) -> Table:
    """The table that a run searches. Raises: InvalidTable, InvalidInput."""
    space = get_space(config.space)
    assert isinstance(space, TableSpace)  # `on_table` says so
    return Table(space.file)


# The stages


def pool_of_table(context: Context[Any], folder: Folder, table: Table) -> None:
    """Metrics and costs of every network of the table, as a pool."""
    columns: Mapping[str, Any] = {**table.metrics, **table.costs}
    pool = pd.DataFrame({"architecture": table.architectures, **columns}).iloc[table.rows]
    context.say(f"{count(len(pool), 'architecture')}, their metrics taken from the table")
    folder.write_parquet(POOL, feasible_rows(context, with_costs(context, pool.reset_index(drop=True))))


def search_of_table(
    make: MakeSearcher,
    problem: Callable[[Context[Any]], BenchProblem],
    scheduler: Callable[[Any], TrialScheduler] | None = None,
) -> Any:
    """The search by one searcher, driven. The whole of an extended one: the look-ups of before cost nothing.

    scheduler: of what ends trainings early, which are then told epoch by epoch.
    """

    def look_up(context: Context[Any], folder: Folder, table: Table) -> None:
        config: PlainConfig = context.config
        asked = replace(problem(context), objective=OBJECTIVE, mode=table.mode)
        searcher = make(asked, config.search.budget, context.seed("search"), config.searcher_options)
        at_a_time = config.resources.max_concurrent or 1
        oracle = table.oracle()
        told = oracle if scheduler is None else oracle.by_epoch
        ending = None if scheduler is None else scheduler(config)
        frame = drive(searcher, told, at_a_time, OBJECTIVE, table.mode, scheduler=ending).drop(columns="value")
        folder.write_parquet(TRIALS, with_costs(context, frame))
        trials = Trials(frame, table.mode)
        if (best := trials.best) is None:
            raise ArchrayError(f"none of {count(len(frame), 'look-up')} has a value: {frame['failure'].iloc[0]}")
        name, value = frame["architecture"][best], float(trials.values[best])
        found = {"architecture": name, "value": value, "number": best + 1, "metric": OBJECTIVE, "mode": table.mode}
        folder.write_json(FOUND, found)
        context.say(f"found {name}  ({quantity_of(OBJECTIVE).told(value)})")

    return look_up


def final_of_table(context: Context[Any], folder: Folder, table: Table) -> None:
    """What the table says of what was found; there is no network to write."""
    folder.write_parquet(TRIALS, with_costs(context, results_of_table(table, [str(context.run.architecture)])))
    context.say("looked up in the table: nothing is trained, and there is no model")


def baseline_of_table(context: Context[Any], folder: Folder, table: Table) -> None:
    """What the table says of random architectures."""
    number = min(context.config.baseline, len(table.rows))
    if number == 0:
        context.say("none asked for")
        return
    searcher = RandomSearch(
        searched_space(context), number, seed=context.seed("baseline"), metric=RESULT, mode=table.mode
    )
    drawn = drive(searcher, lambda config: float(table.result[table.row(config["architecture"])]))
    folder.write_parquet(TRIALS, with_costs(context, results_of_table(table, drawn["architecture"])))


def results_of_table(table: Table, architectures: Any) -> pd.DataFrame:
    """What the table says of architectures in the end, and its costs: a row each."""
    rows = [table.row(name) for name in architectures]
    columns = {name: cost[rows] for name, cost in table.costs.items()}
    told = {"architecture": list(architectures), RESULT: table.result[rows], "row": rows, **columns}
    return pd.DataFrame(told | {"failure": None})
