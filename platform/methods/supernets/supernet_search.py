"""Stage 1 of GAEA: k supernets trained at the same time, each of which finds an architecture. Li et al. 2021, C.1.1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from ray import tune
from ray.tune import ResultGrid

from archray.cluster.resources import concurrency
from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.result_log import read_results
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import TrialPlan, run_trials
from archray.platform.methods.supernets.supernet_config import SupernetSearchConfig, supernet_config
from archray.platform.methods.training_stages import failure_reasons, write_tables
from archray.platform.run.run import digest
from archray.seeds import first_seeds, stage_seed
from archray.trainables.supernets.networks import groups
from archray.trainables.tune.supernet_settings import SupernetSettings
from archray.trainables.tune.supernet_trainable import SupernetTrainable

FOUND, ENTROPIES = "found.parquet", "entropies.parquet"
METRIC, MODE = "discretised_accuracy", "max"


def settings_of(config: SupernetSearchConfig, **more: Any) -> dict[str, Any]:
    """What a `SupernetTrainable` is told by a configuration. more: fields of `SupernetSettings` over its own."""
    options = {name: getattr(config.supernet, name) for name in type(config.supernet).model_fields}
    return SupernetSettings(**{**options, "space": config.space, "data": config.data, **more}).model_dump(mode="json")


def supernet_settings(context: Context, **more: Any) -> dict[str, Any]:
    """What every `SupernetTrainable` of the run is told: space and data as they hold in its folder."""
    run = context.run
    return settings_of(supernet_config(run), space=run.space, data=run.data, **more)


def supernet_inputs(context: Context) -> dict[str, Any]:
    """What the training of the supernets depends on."""
    config = supernet_config(context.run)
    return {
        "space": context.run.space,
        "data": context.run.manifest["data_checksum"],
        "supernet": config.supernet.model_dump(mode="json"),
        "search_seeds": config.search_seeds,
        "seed": config.seed,
    }


def train_supernets(context: Context, folder: Folder, *, metric: str = METRIC) -> tuple[pd.DataFrame, ResultGrid]:
    """Trains a supernet for each search seed, and writes the tables of the trials.

    metric: what the terminal shows of a trial, an accuracy.
    Returns: the table of the trials, and Tune's results with the last checkpoint of each.
    """
    config = supernet_config(context.run)
    seeds = first_seeds(stage_seed(config.seed, "search"), config.search_seeds)
    plan = TrialPlan(
        trainable=SupernetTrainable,
        settings=supernet_settings(context),
        metric=metric,
        mode=MODE,
        total=config.search_seeds,
        cpus=config.resources.cpus_per_trial,
        gpus=config.resources.gpus(),
        concurrency=concurrency(config.resources),
        keys={"seed": tune.grid_search(seeds)},
    )
    tuned = folder / f"tune-{digest(supernet_inputs(context))}"
    results = run_trials(tuned, plan, context, search=True)
    context.grids["search"] = results
    trials = write_tables(folder, tuned, results)
    entropies = entropy_table(read_results(tuned), trials, _operations(context))
    if not entropies.empty and config.supernet.optimizer.name != "none":  # what nothing learns stays uniform
        folder.write_parquet(ENTROPIES, entropies)
    return trials, results


def _operations(context: Context) -> dict[str, int]:
    options = supernet_config(context.run).supernet
    known = groups(context.run.space, partial_channels=options.partial_channels, none=options.none)
    return {group.name: len(group.operations) for group in known}


def entropy_table(results: pd.DataFrame, trials: pd.DataFrame, operations: Mapping[str, int]) -> pd.DataFrame:
    """The entropy of every edge's weights, in nats: `trial_id`, `seed`, `epoch`, `group`, `edge`, `entropy`.

    Args:
        results: a row per trial and epoch, with a list `entropies_GROUP` for each group.
        trials: a row per trial, with its seed.
        operations: group -> how many operations each of its edges weighs, which becomes a column; some may be unknown.
    """
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


def write_found(context: Context, folder: Folder, found: pd.DataFrame) -> None:
    """Writes what each search seed found, and the best of it.

    found: `trial_id`, `seed`, `architecture`, `value` (validation accuracy with shared weights),
        `validation_accuracy` (of the mixture), `failure`.
    Raises: ArchrayError if no seed found an architecture.
    """
    folder.write_parquet(FOUND, found)
    usable = found[found["value"].notna() & found["architecture"].notna()]
    if usable.empty:
        raise ArchrayError(f"none of the {len(found)} searches found an architecture: {failure_reasons(found)}")
    best = usable.sort_values("value", ascending=False, kind="stable").iloc[0]
    told = {"architecture": best["architecture"], "value": float(best["value"]), "metric": METRIC}
    folder.write_json("architecture.json", told)
    context.console.print(
        f"    {usable['architecture'].nunique()} architectures found, the best with shared weights "
        f"{best['architecture']}  (validation accuracy {best['value']:.4f})",
        soft_wrap=True,
    )


def _search(context: Context, folder: Folder) -> None:
    trials, _ = train_supernets(context, folder)
    missing = trials.reindex(columns=["failure", "error"])
    found = pd.DataFrame(
        {
            "trial_id": trials["trial_id"],
            "seed": trials["seed"],
            "architecture": trials.get("architecture"),
            "value": trials.get(METRIC, math.nan),
            "validation_accuracy": trials.get("validation_accuracy", math.nan),
            "failure": missing["failure"].fillna(missing["error"]),
        }
    )
    write_found(context, folder, found)


def search_stage() -> Stage:
    return Stage("search", "train supernets, and discretise them", supernet_inputs, _search)
