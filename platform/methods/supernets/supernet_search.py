"""Stage 1 of GAEA: k supernets trained at the same time, each of which finds an architecture. Li et al. 2021, C.1.1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.result_log import read_results
from archray.platform.engine.stage import Context
from archray.platform.engine.trial_plan import TrialPlan
from archray.platform.engine.trial_tables import failure_reasons, reasons
from archray.platform.engine.tuning import TuneRun, TuneStage
from archray.platform.methods.supernets.search_seeds import ENTROPIES, FOUND_CELLS
from archray.platform.methods.supernets.supernet_config import SupernetSearchConfig
from archray.platform.methods.training_stages import trainings
from archray.platform.quantities import quantity_of
from archray.platform.run.layout import FOUND
from archray.plurals import count
from archray.seeds import first_seeds
from archray.trainables.tune.supernet_settings import SupernetSettings
from archray.trainables.tune.supernet_trainable import SupernetTrainable

METRIC, MODE = "shared_accuracy", "max"
READS = ("supernet", "search_seeds")


def settings_of(config: SupernetSearchConfig, **more: Any) -> dict[str, Any]:
    """What a `SupernetTrainable` is told by a configuration. more: fields of `SupernetSettings` over its own."""
    options = {**dict(config.supernet), "space": config.space, "data": config.data, **more}
    return SupernetSettings(**options).model_dump(mode="json")


def supernet_settings(context: Context[SupernetSearchConfig], **more: Any) -> dict[str, Any]:
    """As `settings_of`, with space and data as they hold in the run's folder."""
    return settings_of(context.config, space=context.run.space, data=context.run.data, **more)


def supernet_trials(context: Context[SupernetSearchConfig], *, metric: str = METRIC) -> TrialPlan:
    """A supernet for each search seed. metric: what the terminal shows of a trial, an accuracy."""
    count = context.config.search_seeds
    return TrialPlan(
        trainable=SupernetTrainable,
        settings=supernet_settings(context),
        metric=metric,
        mode=MODE,
        total=count,
        keys={"seed": tune.grid_search(first_seeds(context.seed("search"), count))},
    )


def supernets_amount(config: SupernetSearchConfig) -> str:
    return trainings(config.search_seeds, config.supernet.training, "supernet")


def write_entropies(context: Context[SupernetSearchConfig], folder: Folder, run: TuneRun) -> None:
    """Writes the entropies of every edge's weights, where something learns them."""
    options = context.config.supernet
    operations = {group.name: len(group.operations) for group in options.groups(context.run.space)}
    entropies = entropy_table(read_results(run.folder), run.trials, operations)
    if not entropies.empty and options.optimizer.name != "none":  # what nothing learns stays uniform
        folder.write_parquet(ENTROPIES, entropies)


def entropy_table(results: pd.DataFrame, trials: pd.DataFrame, operations: Mapping[str, int]) -> pd.DataFrame:
    """Entropies of every edge's weights, nats: `trial_id`, `seed`, `epoch`, `group`, `edge`, `entropy`, `operations`.

    results: a row per trial and epoch, with a list `entropies_GROUP` for each group. trials: a row per trial, with its
    seed. operations: group -> how many operations each of its edges weighs.
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


def write_found(context: Context[Any], folder: Folder, found: pd.DataFrame) -> None:
    """Writes what each search seed found, and the best of it.

    found: `trial_id`, `seed`, `architecture`, `shared_accuracy`, `mixture_accuracy` (see `quantities`), `failure`.
    Raises: ArchrayError if no seed found an architecture.
    """
    folder.write_parquet(FOUND_CELLS, found)
    usable = found[found[METRIC].notna() & found["architecture"].notna()]
    if usable.empty:
        raise ArchrayError(
            f"none of {count(len(found), 'search', 'searches')} found an architecture: {failure_reasons(found)}"
        )
    best = usable.sort_values(METRIC, ascending=False, kind="stable").iloc[0]
    value = float(best[METRIC])
    folder.write_json(FOUND, {"architecture": best["architecture"], "value": value, "metric": METRIC, METRIC: value})
    context.say(
        f"{count(usable['architecture'].nunique(), 'architecture')} found, the best of them "
        f"{best['architecture']}  ({quantity_of(METRIC).told(value)})"
    )


def _write_discretised(context: Context[SupernetSearchConfig], folder: Folder, run: TuneRun) -> None:
    write_entropies(context, folder, run)
    trials = run.trials
    found = pd.DataFrame(
        {
            "trial_id": trials["trial_id"],
            "seed": trials["seed"],
            "architecture": trials.get("architecture"),
            METRIC: trials.get(METRIC, math.nan),
            "mixture_accuracy": trials.get("mixture_accuracy", math.nan),
            "failure": reasons(trials),
        }
    )
    write_found(context, folder, found)


SEARCH_STAGE = TuneStage[SupernetSearchConfig](
    name="search",
    title="train supernets, and discretise them",
    reads=READS,
    plan=lambda context, tuned: supernet_trials(context),
    finish=_write_discretised,
    search=True,
    amount=supernets_amount,
)
