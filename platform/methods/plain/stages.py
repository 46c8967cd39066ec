"""Recipes of the plain searches: short training runs that one searcher suggests, and full training of the best.

On a table, lookups replace the training runs. A search then takes seconds and needs no Ray: it runs in this process,
and a stopped run restarts the search.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd
from ray.tune.schedulers import TrialScheduler

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.durable.replay import ResumedASHA
from archray.platform.engine.pool_scoring import POOL
from archray.platform.engine.run_costs import (
    feasible_rows,
    has_costs,
    joint_space,
    run_costs,
    searched_space,
    with_costs,
    with_decisions,
)
from archray.platform.engine.settings import distinct, exhausted, fewer
from archray.platform.engine.stage import Context, Stage, Work, file_digests
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods import searchers, stages
from archray.platform.methods.config import PooledConfig
from archray.platform.methods.method import MakeSearcher, SearchProblem
from archray.platform.methods.plain.config import AshaConfig, PlainConfig
from archray.platform.methods.plain.tables import Trials, searcher_options
from archray.platform.methods.recipe import Recipe
from archray.platform.run.layout import FOUND, TRIALS
from archray.plurals import count
from archray.searchers import RandomSearch, drive
from archray.trainables.costs import cost_column
from archray.trainables.proxies import column_of
from archray.trainables.spaces import TableSpace, get_space
from archray.trainables.tabular import OBJECTIVE, Table

RESULT = "result"  # the final result of an architecture in the table


LookUp = Callable[[Context[Any], Folder, Table], None]


@dataclass(frozen=True, kw_only=True)
class OrLookUp(Stage[PlainConfig]):
    """A stage that trains or scores, with a replacement for tables; see `or_look_up`."""

    stage: Stage[Any]
    look_up: LookUp

    def inputs(self, context: Context[PlainConfig]) -> dict[str, Any]:
        return self.stage.inputs(context)

    def requires_ray(self, context: Context[PlainConfig]) -> bool:
        return not context.config.on_table and self.stage.requires_ray(context)

    def execute(self, context: Context[PlainConfig], folder: Folder) -> None:
        if context.config.on_table:
            self.look_up(context, folder, table_of(context.config))
        else:
            self.stage.execute(context, folder)


def or_look_up(stage: Stage[Any], look_up: LookUp, amount: Callable[[Any], str]) -> OrLookUp:
    """Adds lookups to a stage.

    Args:
        stage: the stage, for a space.
        look_up: the work of the stage for a table.
        amount: function that describes the amount of work for a table.
    """

    def either(config: Any) -> str | Work:
        return amount(config) if config.on_table else stage.amount(config)

    return OrLookUp(name=stage.name, title=stage.title, stage=stage, look_up=look_up, amount=either)


def budget_of(config: Any, space: str) -> int:
    """Returns the number of training runs of a search: fewer than its budget if it trains a whole space or pool.

    Constraints are not considered.

    Args:
        config: a `PlainConfig`.
        space: name of the space of the configuration, or of the run, which has copies of the user's files.
    """
    budget: int = config.search.budget
    if not config.distinct:
        return budget
    pool = config.pool if isinstance(config, PooledConfig) else None
    return distinct(budget, with_decisions(get_space(space), config.training_decisions), pool)


def looked_up(number: int) -> str:
    """The amount of work of a stage: `8 lookups`."""
    return count(number, "lookup") if number else "none"


def table_of(config: PlainConfig) -> Table:
    """The table that a run searches. Raises: InvalidTable, InvalidInput."""
    space = get_space(config.space)
    assert isinstance(space, TableSpace)  # as `on_table` is true
    return Table(space.file)


def pool_of_table(context: Context[Any], folder: Folder, table: Table) -> None:
    """Writes metrics and costs of all networks of the table as a pool."""
    columns: Mapping[str, Any] = {**table.metrics, **table.costs}
    pool = pd.DataFrame({"architecture": table.architectures, **columns}).iloc[table.rows]
    context.say(f"read the metrics of {count(len(pool), 'architecture')} from the table")
    folder.write_parquet(POOL, feasible_rows(context, with_costs(context, pool.reset_index(drop=True))))


def search_of_table(
    context: Context[Any],
    folder: Folder,
    table: Table,
    *,
    make: MakeSearcher,
    scheduler: Callable[[Any], TrialScheduler] | None,
) -> None:
    """Runs the search of one searcher on a table. An extended search repeats its first lookups, which are free.

    Args:
        context: context of the stage.
        folder: folder of the stage.
        table: the table.
        make: function that makes the searcher.
        scheduler: function that makes the scheduler of a search that stops trials early; lookups are then by epoch.
    """
    config: PlainConfig = context.config
    problem = replace(problem_of(context), objective=OBJECTIVE, mode=table.mode)
    searcher = make(problem, config.search.budget, context.seed("search"), searcher_options(context.run))
    oracle = table.oracle()
    frame = drive(
        searcher,
        oracle if scheduler is None else oracle.by_epoch,
        config.resources.max_concurrent or 1,
        OBJECTIVE,
        table.mode,
        scheduler=None if scheduler is None else scheduler(config),
    ).drop(columns="value")
    if len(frame) < config.search.budget:
        requested = config.search.budget
        context.say(f"{count(len(frame), 'lookup')} (requested: {requested:,}): the search has no other suggestion")
    folder.write_parquet(TRIALS, with_costs(context, frame))
    trials = Trials(frame, table.mode)
    if trials.best is None:
        raise ArchrayError(f"none of {count(len(frame), 'lookup')} returned a value: {frame['failure'].iloc[0]}")
    _write_best(context, folder, trials, {"mode": table.mode})


def _write_best(context: Context[Any], folder: Folder, trials: Trials, more: Mapping[str, Any]) -> None:
    """Writes the best trial. At least one trial must have a value."""
    assert trials.best is not None
    name, value = trials.table["architecture"][trials.best], float(trials.values[trials.best])
    document: dict[str, Any] = {
        "architecture": name,
        "value": value,
        "number": trials.best + 1,
        "metric": trials.key,
    }
    if training := context.config.parts(name)[1]:
        document["training"] = training
    folder.write_json(FOUND, {**document, **more})
    context.say(f"best architecture {name}  ({trials.quantity.text(value)})")


def final_of_table(context: Context[Any], folder: Folder, table: Table) -> None:
    """Looks up the result of the best architecture; there is no network to write."""
    folder.write_parquet(TRIALS, with_costs(context, results_of_table(table, [str(context.run.architecture)])))
    context.say("looked up in the table; the run has no trained model")


def baseline_of_table(context: Context[Any], folder: Folder, table: Table) -> None:
    """Looks up the results of random architectures."""
    number = min(context.config.baseline, len(table.rows))
    if number == 0:
        context.say("skipped: baseline is 0")
        return
    if line := fewer(number, context.config.baseline, table.location):
        context.say(line)
    searcher = RandomSearch(
        searched_space(context), number, seed=context.seed("baseline"), metric=RESULT, mode=table.mode
    )
    sample = drive(searcher, lambda config: float(table.result[table.row(config["architecture"])]))
    results = results_of_table(table, sample["architecture"])
    results[OBJECTIVE] = table.objective[results["row"]]
    folder.write_parquet(TRIALS, with_costs(context, results))


def results_of_table(table: Table, architectures: Any) -> pd.DataFrame:
    """Final results and costs of architectures in the table, one row each."""
    rows = [table.row(name) for name in architectures]
    columns = {name: cost[rows] for name, cost in table.costs.items()}
    values = {"architecture": list(architectures), RESULT: table.result[rows], "row": rows, **columns}
    return pd.DataFrame(values | {"failure": None})


def plain_recipe(
    make: MakeSearcher,
    *,
    title: str,
    pool: bool = False,
    scheduler: Callable[[Any], TrialScheduler] | None = None,
    reads: tuple[str, ...] = (),
    report: str = "REPORT",
    baseline: Stage[Any] = stages.BASELINE_STAGE,
) -> Recipe[Any]:
    """The recipe of a search by one searcher.

    Args:
        make: function that makes the searcher (see `searchers`) with the `searcher_options` of the configuration.
        title: title of the search stage.
        pool: whether it selects from a pool, which an earlier stage scores; its configuration is a `PooledConfig`.
        scheduler: function from the configuration to the scheduler that stops trials early. A resumed run starts with a
            new scheduler.
        reads: paths in the configuration on which the scheduler depends.
        report: name of the report in `plain.report`.
        baseline: stage that trains networks for comparison.
    """

    def plan(context: Context[Any], tuned: Folder) -> TrialPlan:
        config: PlainConfig = context.config
        problem = problem_of(context)

        def searcher() -> Any:
            return make(problem, config.search.budget, context.seed("search"), searcher_options(context.run))

        budget = budget_of(config, context.run.space)
        if line := exhausted(budget, config.search.budget):
            context.say(line)
        search = stages.search_plan(
            context,
            tuned,
            searcher,
            scheduler=None if scheduler is None else lambda: scheduler(config),
            fixed=getattr(searcher(), "depends_on_results", False),
        )
        return replace(search, total=budget)

    trained = TuneStage[PlainConfig](
        name="search",
        title=title,
        reads=("network", "train", "search", *reads),
        depends=file_digests(f"pool/{POOL}") if pool else stages.decision_inputs,
        plan=plan,
        finish=_write_found,
        search=True,
        extends=True,
        amount=lambda config: stages.training_amount(budget_of(config, config.space), config.train),
    )
    scored = or_look_up(stages.POOL_STAGE, pool_of_table, lambda config: "the metrics of the table")
    return Recipe(
        stages=(
            *([scored] if pool else []),
            or_look_up(
                trained,
                partial(search_of_table, make=make, scheduler=scheduler),
                lambda config: looked_up(budget_of(config, config.space)),
            ),
            or_look_up(stages.FINAL_STAGE, final_of_table, lambda config: looked_up(1)),
            or_look_up(baseline, baseline_of_table, lambda config: looked_up(config.baseline)),
        ),
        report_at=f"archray.platform.methods.plain.report:{report}",
    )


def problem_of(context: Context[Any]) -> SearchProblem:
    """The search problem of a run."""
    config, space = context.config, get_space(context.run.space)
    metrics: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    if isinstance(space, TableSpace):
        table = table_of(config)
        metrics, costs = tuple(table.metrics), tuple(table.costs)
    elif isinstance(config, PooledConfig):
        scored = config.needed if config.pool.table is not None else config.scored.metrics
        metrics = tuple(map(column_of, scored))
        # Every pool contains `parameters`.
        costs = tuple(dict.fromkeys(["parameters", *map(cost_column, config.cost_names)]))
    return SearchProblem(
        space=get_space(joint_space(context)),
        pool=(context.folder("pool") / POOL).uri,
        metrics=metrics,
        costs=costs,
        encoding=space.encoding if isinstance(space, TableSpace) else "tokens",
        objective=stages.ACCURACY,
        mode="max",
        costs_of=run_costs(context) if has_costs(context) else None,
    )


def _write_found(context: Context[PlainConfig], folder: Folder, run: TuneRun) -> None:
    stages.write_state(folder, run)
    trials = Trials(folder.read_parquet(TRIALS))  # including the trials of a smaller budget
    if trials.best is None:
        raise ArchrayError(f"none of {count(len(trials.table), 'trial')} reported an accuracy: {run.failures}")
    _write_best(context, folder, trials, {})


def _rungs(config: AshaConfig) -> ResumedASHA:
    return ResumedASHA(
        time_attr="epoch",
        max_t=config.whole,
        grace_period=config.rungs.grace_period,
        reduction_factor=config.rungs.reduction_factor,
    )


RANDOM = plain_recipe(searchers.random_search, title="train random architectures")
EVOLUTION = plain_recipe(searchers.evolution, title="train mutations of good recent architectures")
LOCAL_SEARCH = plain_recipe(searchers.local_search, title="train neighbors of the best architecture so far")
REINFORCE = plain_recipe(searchers.reinforce, title="train architectures sampled from a policy, and update the policy")
ASHA = plain_recipe(
    searchers.random_search,
    title="train random architectures, and stop poor ones early",
    scheduler=_rungs,
    reads=("rungs",),
)
BOHB = plain_recipe(
    searchers.bohb,
    title="train architectures that a density model suggests, and stop poor ones early",
    scheduler=_rungs,
    reads=("rungs",),
)
ZERO_COST = plain_recipe(searchers.zero_cost, title="train the best architectures by the metric", pool=True)
ZERO_COST_EVOLUTION = plain_recipe(
    searchers.zero_cost_evolution, title="train the best architectures by the metric, then mutations", pool=True
)
RANK_SURROGATE = plain_recipe(
    searchers.rank_surrogate,
    title="train the best architectures by a surrogate of several metrics",
    pool=True,
    report="TRUST_REPORT",
)
ROBOT = plain_recipe(
    searchers.robot,
    title="train the best architectures by weighted metrics, and learn the weights",
    pool=True,
    report="TRUST_REPORT",
)
