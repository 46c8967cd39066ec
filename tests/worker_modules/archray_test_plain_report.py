"""A synthetic run of a plain search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from archray_test_report import cells, write_repeats, write_run

from archray.platform.methods.pareto.stages import ObjectiveTable
from archray.platform.methods.plain.tables import Trials
from archray.platform.run.run import Run

EPOCHS = 3


def plain_run(place: str | Path, method: str = "evolution", *, repeats: int = 1, **content: Any) -> Run[Any]:
    """content: from `plain_content`."""
    if repeats == 1:
        tables, documents = plain_content(**content)
        return write_run(place, method, tables=tables, documents=documents)
    return write_repeats(place, method, [plain_content(seed=seed, **content) for seed in range(repeats)])


def pareto_run(place: str | Path) -> Run[Any]:
    """A run of nsga2 in which parameters are a cost."""
    tables, documents = plain_content()
    trials = tables["search", "trials.parquet"]
    costs = pd.DataFrame({"parameters": np.arange(len(trials)) % 5 * 1e3 + 1e4, "number": range(1, len(trials) + 1)})
    table = ObjectiveTable.of(Trials(trials.assign(parameters=costs["parameters"])), ("parameters",))
    further = {("pareto", "costs.parquet"): costs, ("pareto", "pareto.parquet"): table.front()}
    return write_run(place, "nsga2", tables={**tables, **further}, documents=documents)


def plain_content(
    trials: int = 12, *, seed: int = 0, rungs: bool = False
) -> tuple[dict[tuple[str, str], pd.DataFrame], dict[tuple[str, str], Any]]:
    """The tables and documents of a plain search whose trial 3 failed. rungs: two of three trials stopped early."""
    rng, names = np.random.default_rng(seed), cells(trials, seed)
    epochs = [1 if rungs and number % 3 else EPOCHS for number in range(trials)]
    values = rng.uniform(0.3, 0.8, trials)
    searched = pd.DataFrame(
        {
            "trial_id": [f"search-{number}" for number in range(trials)],
            "architecture": names,
            "seed": range(trials),
            "validation_accuracy": values,
            "epoch": epochs,
            "time_total_s": rng.uniform(1, 2, trials),
            "failure": [None] * trials,
        }
    )
    searched.loc[2, ["validation_accuracy", "failure"]] = [np.nan, "the training loss is nan in epoch 1"]
    full = searched[(searched["epoch"] == EPOCHS) & searched["failure"].isna()]
    best = full["validation_accuracy"].idxmax()
    found = {
        "architecture": names[best],
        "value": values[best],
        "number": int(best) + 1,
        "metric": "validation_accuracy",
    }
    curves = searched.loc[searched.index.repeat(searched["epoch"])]
    curves = curves.assign(epoch=curves.groupby("trial_id").cumcount() + 1, train_loss=rng.uniform(1, 2, len(curves)))
    final = pd.DataFrame(
        {"trial_id": "final-0", "seed": 0, "test_accuracy": [0.75], "parameters": 8e4, "failure": None}
    )
    tables = {
        ("search", "trials.parquet"): searched,
        ("search", "curves.parquet"): curves,
        ("final", "trials.parquet"): final,
        ("baseline", "trials.parquet"): final.assign(trial_id="baseline-0", architecture=names[0], test_accuracy=0.7),
    }
    return tables, {("search", "architecture.json"): found, ("", "architecture.json"): found}
