"""Repeats: whole runs with seeds of their own, one after another, in `repeat-00`, `repeat-01`, ..."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd
from rich.console import Console

from archray.platform.methods.recipe import recipe_of, write_report
from archray.platform.run.layout import FOUND, MANIFEST, PROGRESS, REPEAT, TRIALS
from archray.platform.run.run import Run
from archray.platform.run_result import RunResult, best_of


def run_repeats(run: Run[Any], execute: Callable[[Run[Any]], RunResult], console: Console) -> RunResult:
    """Does every repeat, or what is left of it, and sums them up in the run's own folder.

    Repeat r is the run with the seed `seed + r`; it could be started alone with the same result.
    """
    results = []
    for number in range(run.config.repeats):
        config = run.config.model_copy(update={"seed": run.config.seed + number, "repeats": 1})
        console.print(f"[bold]repeat {number + 1}/{run.config.repeats}[/bold], seed {config.seed}")
        folder = run.folder / f"{REPEAT}{number:02d}"
        if folder.exists(MANIFEST):
            repeat = Run.open(folder, lambda _: type(run.config))
            repeat.amend(config)
        else:
            repeat = run.copy_to(folder, config)
        results.append(execute(repeat))
    best = best_of(results)
    trials = [repeat.folder.read_parquet(TRIALS).assign(repeat_seed=repeat.config.seed) for repeat in run.repeats]
    run.folder.write_parquet(TRIALS, pd.concat(trials, ignore_index=True))
    run.folder.write_json(
        FOUND,
        {
            **({"members": list(best.members)} if best.members else {"architecture": best.architecture}),
            "value": best.validation_accuracy,
            "test_accuracy": best.test_accuracy,
            "repeats": repeat_table(run).to_dict("records"),
        },
    )
    write_report(run)
    progress = recipe_of(run).progress
    if progress is not None:
        run.folder.write_parquet(PROGRESS, progress(run))
    return replace(best, path=str(run.folder), repeats=tuple(results))


def repeat_table(run: Run[Any]) -> pd.DataFrame:
    """One row a repeat: its seed, what it found, and how good that is (fractions)."""
    rows: list[dict[str, Any]] = []
    for number, repeat in enumerate(run.repeats):
        ended = repeat.ended
        row = {key: ended.get(key) for key in ("architecture", "value", "test_accuracy", "random_test_accuracy")}
        if "members" in ended:  # its value is a loss
            row |= {"architecture": " + ".join(ended["members"]), "value": ended["validation_accuracy"]}
        rows.append({"repeat": number, "seed": repeat.config.seed, **row})
    return pd.DataFrame(rows)
