"""The stages of GAEA: k supernets, trained in parallel, and the selection among their architectures. Li 2021, C.1."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.run_costs import (
    constraints_of,
    describe,
    measured_bounds,
    run_costs,
    searched_space,
    with_costs,
)
from archray.platform.engine.stage import Context, Stage, Work
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import failure_reasons, reasons
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.recipe import Recipe
from archray.platform.methods.stages import ACCURACY, BASELINE_STAGE, FINAL_STAGE, training_amount, training_plan
from archray.platform.methods.supernets.config import SupernetSearchConfig
from archray.platform.methods.supernets.tables import ENTROPIES, FOUND_CELLS, SELECTED
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND
from archray.plurals import count
from archray.searchers.drop_worst import DropWorst
from archray.seeds import first_seeds
from archray.trainables.costs import BoundSettings, NetworkCosts, cost_column
from archray.trainables.costs.networks import EdgeCosts, edge_costs
from archray.trainables.spaces import ConstrainedSpace, get_space
from archray.trainables.tune.settings import SupernetSettings
from archray.trainables.tune.supernet_trainable import SupernetTrainable

METRIC = "shared_accuracy"
READS = ("supernet", "search_seeds")


def settings_of(config: SupernetSearchConfig, **more: Any) -> dict[str, Any]:
    """The settings of `SupernetTrainable` for a configuration. more: fields that override those settings."""
    options = {**dict(config.supernet), "space": config.space, "data": config.data, **more}
    return SupernetSettings(**options).model_dump(mode="json")


def supernet_settings(context: Context[SupernetSearchConfig], **more: Any) -> dict[str, Any]:
    """As `settings_of`, with space and data from the run's folder, the costs of edges, and the bounds."""
    config = context.config
    more = {"edge_costs": _edge_costs(context), "bounds": bounds_of(context), **more}
    if config.supernet.penalty.active:
        more["penalty"] = config.supernet.penalty.model_copy(update={"cost": cost_column(config.penalized)})
    return settings_of(config, space=context.run.space, data=context.run.data, **more)


def bounds_of(context: Context[Any]) -> BoundSettings | None:
    """The constraints of the run as a trial receives them; None if there are none."""
    texts = tuple(f"{bound.cost} {bound.relation} {bound.bound!r}" for bound in constraints_of(context))
    if not texts:
        return None
    return BoundSettings(constraints=texts, network=context.config.network, costs=context.config.costs)


def _edge_costs(context: Context[SupernetSearchConfig]) -> dict[str, EdgeCosts]:
    """Costs of edges by column, for the penalty and for the bounds on measured costs.

    A trial cannot measure costs, as other trials run at the same time.
    """
    config = context.config
    names = [*([config.penalized] if config.supernet.penalty.active else []), *measured_bounds(context)]
    if not names:
        return {}
    costs, space = run_costs(context), get_space(context.run.space)
    groups = config.supernet.groups(space)
    tables = {}
    for name in dict.fromkeys(names):
        column = cost_column(name)
        tables[column] = edge_costs(space, groups, partial(_cost, costs, column))
        context.say(f"computed {column} of each operation; {tables[column].base:.5g} for a network of skip connections")
    return tables


def _cost(costs: NetworkCosts, column: str, architecture: str) -> float:
    [name] = [name for name in costs.names if cost_column(name) == column]
    return costs(architecture, [name])[column]


def supernet_trials(
    context: Context[SupernetSearchConfig], *, metric: str = METRIC, reads_checkpoints: bool = False
) -> TrialPlan:
    """The plan of one supernet per search seed.

    Args:
        context: context of the stage.
        metric: the accuracy that the terminal shows.
        reads_checkpoints: field of the plan.
    """
    seeds = first_seeds(context.seed("search"), context.config.search_seeds)
    return TrialPlan(
        trainable=SupernetTrainable,
        settings=supernet_settings(context),
        metric=metric,
        mode="max",
        total=len(seeds),
        keys={"seed": tune.grid_search(seeds)},
        reads_checkpoints=reads_checkpoints,
    )


def supernets_amount(config: SupernetSearchConfig) -> Work:
    return training_amount(config.search_seeds, config.supernet.training, "supernet")


def write_entropies(context: Context[SupernetSearchConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the entropies of the weights of every edge, if the search learns weights."""
    options = context.config.supernet
    operations = {group.name: len(group.operations) for group in options.groups(context.run.space)}
    entropies = entropy_table(run.epochs, run.trials, operations)
    if not entropies.empty and options.optimizer.name != "none":  # otherwise weights stay uniform
        folder.write_parquet(ENTROPIES, entropies)


def entropy_table(results: pd.DataFrame, trials: pd.DataFrame, operations: Mapping[str, int]) -> pd.DataFrame:
    """Entropies of the weights of every edge in nats.

    Args:
        results: a row per trial and epoch, with a list `entropies_GROUP` for each group.
        trials: a row per trial, with its seed.
        operations: group -> number of operations per edge.

    Returns: `trial_id`, `seed`, `epoch`, `group`, `edge`, `entropy`, `operations`.
    """
    if results.empty:  # every trial stopped before its first epoch
        return pd.DataFrame()
    results = results.merge(trials[["trial_id", "seed"]], on="trial_id")
    keys = ["trial_id", "seed", "epoch"]
    long = [
        results[keys].assign(group=name.removeprefix("entropies_"), entropy=results[name])
        for name in results.columns
        if name.startswith("entropies_")
    ]
    if not long:
        return pd.DataFrame()
    table = pd.concat(long, ignore_index=True)
    table["edge"] = table["entropy"].map(lambda edges: list(range(len(edges))))
    table = table.explode(["edge", "entropy"], ignore_index=True).astype({"edge": "int64", "entropy": "float64"})
    table["operations"] = table["group"].map(operations).astype("Int64")
    return table[[*keys, "group", "edge", "entropy", "operations"]]


def write_found(context: Context[Any], folder: Folder, cells: pd.DataFrame, metric: str = METRIC) -> None:
    """Writes the architecture of each search seed, and the best one.

    Args:
        context: context of the stage.
        folder: folder of the stage.
        cells: `trial_id`, `seed`, `architecture`, `failure`, and other columns (see `quantities`) including `metric`.
        metric: the column that ranks the architectures; larger is better.

    Raises: ArchrayError if no seed found an architecture.
    """
    cells = _that_meet(context, cells)
    folder.write_parquet(FOUND_CELLS, cells)
    usable = cells[cells[metric].notna() & cells["architecture"].notna()]
    if usable.empty:
        raise ArchrayError(
            f"none of {count(len(cells), 'search', 'searches')} found an architecture: {failure_reasons(cells)}"
        )
    best = usable.sort_values(metric, ascending=False, kind="stable").iloc[0]
    value = float(best[metric])
    folder.write_json(FOUND, {"architecture": best["architecture"], "value": value, "metric": metric, metric: value})
    context.say(
        f"found {count(usable['architecture'].nunique(), 'architecture')}; the best is {best['architecture']}  "
        f"({quantity_of(metric).text(value)})"
    )


def _that_meet(context: Context[Any], cells: pd.DataFrame) -> pd.DataFrame:
    """The cells with a failure for each architecture that violates the constraints, and with columns of costs."""
    space = searched_space(context)
    if isinstance(space, ConstrainedSpace):
        strings = cells["architecture"].map(lambda name: isinstance(name, str))
        violations = [
            row for row in cells.index[strings] if not space.meets(space.decode(cells.loc[row, "architecture"]))
        ]
        for row in violations:
            name = str(cells.loc[row, "architecture"])
            cells.loc[row, "failure"] = f"{name} violates {space.description}: it has {describe(space, name)}"
        cells.loc[violations, "architecture"] = None
    return with_costs(context, cells)


def _write_discretized(context: Context[SupernetSearchConfig], folder: Folder, run: TuneRun) -> None:
    write_entropies(context, folder, run)
    trials = run.trials
    cells = pd.DataFrame(
        {
            "trial_id": trials["trial_id"],
            "seed": trials["seed"],
            "architecture": trials.get("architecture"),
            METRIC: trials.get(METRIC, math.nan),
            "mixture_accuracy": trials.get("mixture_accuracy", math.nan),
            **{name: trials[name] for name in ("expected_cost", "cost_weight") if name in trials},
            "failure": reasons(trials),
        }
    )
    write_found(context, folder, cells)


SEARCH_STAGE = TuneStage[SupernetSearchConfig](
    name="search",
    title="train supernets and discretize them",
    reads=READS,
    plan=lambda context, tuned: supernet_trials(context),
    finish=_write_discretized,
    search=True,
    amount=supernets_amount,
)


# The selection: all architectures start the full schedule, and the worst stop early. Li et al. 2021, C.1.2-C.1.3.

SELECTION = "selection_accuracy"


def _architectures(context: Context[SupernetSearchConfig]) -> list[str]:
    """The distinct architectures of the search seeds, in the order of the seeds."""
    table = context.run.table("search", FOUND_CELLS)
    return list(dict.fromkeys(table.loc[table["failure"].isna(), "architecture"].dropna()))


def _trials(context: Context[SupernetSearchConfig], tuned: Folder) -> TrialPlan | None:
    config, architectures = context.config, _architectures(context)
    if len(architectures) == 1:
        context.say("skipped: the search found one architecture")
        tuned.parent.write_json(FOUND, context.folder("search").read_json(FOUND))
        return None
    count, keep = len(architectures), config.selection.keep

    def drop_worst() -> DropWorst:
        return DropWorst(trials=count, keep=keep, at=config.selection.epoch, time_attr="epoch")

    return training_plan(
        context,
        config.final,
        test=False,
        total=count,
        keys={"architecture": tune.grid_search(architectures), "seed": context.seed("selection")},
        scheduler=drop_worst if keep < count else None,
        limited=False,
    )


def _select(context: Context[SupernetSearchConfig], folder: Folder, run: TuneRun) -> None:
    selection = selection_table(run.trials, run.curves, context.config)
    folder.write_parquet(SELECTED, selection)
    usable = selection[selection["kept"] & selection[SELECTION].notna()]
    if usable.empty:
        raise ArchrayError(f"training failed for all of {count(len(selection), 'architecture')}: {run.failures}")
    best = usable.iloc[0]  # the table is sorted
    value, name = float(best[SELECTION]), best["architecture"]
    cells = context.run.table("search", FOUND_CELLS)
    before = context.folder("search").read_json(FOUND)["metric"]  # the metric that compares the search seeds
    at_search = float(cells.loc[cells["architecture"] == name, before].max())
    document = {"architecture": name, "value": value, "metric": SELECTION, SELECTION: value, before: at_search}
    folder.write_json(FOUND, document)
    context.say(
        f"selected {name}  ({quantity_of(SELECTION).text(value)}; {len(usable)} of {len(selection)} trained to the end)"
    )


def selection_table(trials: pd.DataFrame, curves: pd.DataFrame, config: SupernetSearchConfig) -> pd.DataFrame:
    """A row per architecture: `architecture`, `epochs` (number of trained epochs), `accuracy_at_cut` (at the epoch of
    the selection), `selection_accuracy` (after the last epoch), `kept` (trained to the end), `failure`."""
    at_cut = curves[curves["epoch"] == config.selection.epoch].set_index("trial_id")[ACCURACY]
    return pd.DataFrame(
        {
            "architecture": trials["architecture"],
            "epochs": trials["epoch"],
            "accuracy_at_cut": trials["trial_id"].map(at_cut),
            SELECTION: trials[ACCURACY],
            "kept": (trials["epoch"] == config.final.epochs),
            "failure": reasons(trials),
        }
    ).sort_values(SELECTION, ascending=False, kind="stable", ignore_index=True)


def selection_amount(number: int, config: Any) -> Work:
    """The amount of work of a selection among `number` architectures."""
    epochs, keep = count(config.selection.epoch, "epoch"), config.selection.keep
    work = training_amount(number, config.final)
    return replace(work, text=f"at most {work}; only the best {keep} continue after {epochs}")


SELECTION_STAGE = TuneStage[SupernetSearchConfig](
    name="selection",
    title="start to train the found architectures, and stop the worst",
    reads=("network", "final", "selection"),
    depends=lambda context: {"found": _architectures(context)},
    plan=_trials,
    finish=_select,
    amount=lambda config: selection_amount(config.search_seeds, config),
)


def supernet_recipe(search: Stage[Any]) -> Recipe[Any]:
    """The recipe with the three stages of GAEA. search: the first stage, which calls `write_found`."""
    return Recipe(
        stages=(search, SELECTION_STAGE, FINAL_STAGE, BASELINE_STAGE),
        report_at="archray.platform.methods.supernets.report:REPORT",
    )


LEARNED = supernet_recipe(SEARCH_STAGE)
