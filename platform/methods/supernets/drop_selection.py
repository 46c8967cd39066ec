"""Stage 2 of GAEA: what was found begins the full schedule, and the worst are dropped. Li et al. 2021, C.1.2-C.1.3."""

from __future__ import annotations

from typing import Any

import pandas as pd
from ray import tune

from archray.errors import ArchrayError
from archray.files import Folder
from archray.platform.engine.stage import Context, Stage
from archray.platform.engine.tuning import run_trials
from archray.platform.methods.supernets.supernet_config import SupernetSearchConfig, supernet_config
from archray.platform.methods.supernets.supernet_search import FOUND
from archray.platform.methods.training_stages import (
    METRIC,
    failure_reasons,
    training_inputs,
    trial_plan,
    write_tables,
)
from archray.platform.run.run import digest
from archray.searchers.drop_worst import DropWorst
from archray.seeds import stage_seed

SELECTED = "selected.parquet"


def _found(context: Context) -> list[str]:
    """The distinct architectures that the search seeds found, in the order of the seeds."""
    table = context.folder("search").read_parquet(FOUND)
    return list(dict.fromkeys(table.loc[table["value"].notna(), "architecture"].dropna()))


def _inputs(context: Context) -> dict[str, Any]:
    config = supernet_config(context.run)
    return {
        **training_inputs(context, config.final),
        "found": _found(context),
        "selection": config.selection.model_dump(mode="json"),
    }


def _select(context: Context, folder: Folder) -> None:
    config = supernet_config(context.run)
    architectures = _found(context)
    if len(architectures) == 1:
        context.console.print("    one architecture was found; there is nothing to select from")
        found = context.folder("search").read_json("architecture.json")
        folder.write_json("architecture.json", found)
        return
    plan = trial_plan(
        context,
        config.final,
        total=len(architectures),
        test=False,
        concurrency=None,  # a paused trial counts as one in flight: a limit would keep the others from starting
        keys={"architecture": tune.grid_search(architectures), "seed": stage_seed(config.seed, "selection")},
        scheduler=_scheduler(config, len(architectures)),
    )
    tuned = folder / f"tune-{digest(_inputs(context))}"
    results = run_trials(tuned, plan, context)
    context.grids["selection"] = results
    trials = write_tables(folder, tuned, results)
    selected = selection_table(trials, folder.read_parquet("curves.parquet"), config)
    folder.write_parquet(SELECTED, selected)
    usable = selected[selected["kept"] & selected[METRIC].notna()]
    if usable.empty:
        raise ArchrayError(f"none of the {len(architectures)} architectures was trained: {failure_reasons(trials)}")
    best = usable.iloc[0]  # the table is sorted
    folder.write_json(
        "architecture.json", {"architecture": best["architecture"], "value": float(best[METRIC]), "metric": METRIC}
    )
    context.console.print(
        f"    selected {best['architecture']}  ({METRIC} {best[METRIC]:.4f}; {len(usable)} of {len(architectures)} "
        "trained to the end)",
        soft_wrap=True,
    )


def _scheduler(config: SupernetSearchConfig, count: int) -> Any:
    """Makes the scheduler; None where all are kept."""
    if config.selection.keep >= count:
        return None
    return lambda: DropWorst(trials=count, keep=config.selection.keep, at=config.selection.epoch, time_attr="epoch")


def selection_table(trials: pd.DataFrame, curves: pd.DataFrame, config: SupernetSearchConfig) -> pd.DataFrame:
    """A row per architecture: `architecture`, `epochs` that it was trained, `value` at the epoch of the selection,
    `validation_accuracy` after its last epoch, `kept` (trained to the end), `failure`."""
    at_cut = curves[curves["epoch"] == config.selection.epoch].set_index("trial_id")[METRIC]
    reasons = trials.reindex(columns=["failure", "error"])
    return pd.DataFrame(
        {
            "architecture": trials["architecture"],
            "epochs": trials["epoch"],
            "value": trials["trial_id"].map(at_cut),
            METRIC: trials[METRIC],
            "kept": (trials["epoch"] == config.final.epochs),
            "failure": reasons["failure"].fillna(reasons["error"]),
        }
    ).sort_values(METRIC, ascending=False, kind="stable", ignore_index=True)


def selection_stage() -> Stage:
    return Stage("selection", "begin to train what was found, and drop the worst", _inputs, _select)
