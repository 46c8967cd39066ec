"""Repeats: whole runs with seeds of their own, one after another, in `repeat-00`, `repeat-01`, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from rich.console import Console

from archray.platform.methods.recipe import describe, recipe_of, write_report
from archray.platform.quantities import QUANTITIES
from archray.platform.run.heartbeat import lock
from archray.platform.run.layout import FOUND, MANIFEST, PROGRESS, REPEAT, TRIALS
from archray.platform.run.run import Run
from archray.platform.run_result import RunResult, over_repeats


def run_repeats(run: Run[Any], execute: Callable[[Run[Any]], RunResult], console: Console) -> RunResult:
    """Does every repeat, or what is left of it, and sums them up in the run's own folder.

    Repeat r is the run with the seed `seed + r`; it could be started alone with the same result.
    """
    results = []
    for number in range(run.config.repeats):
        config = run.config.model_copy(update={"seed": run.config.seed + number, "repeats": 1})
        console.print(f"[bold]repeat {number + 1}/{run.config.repeats}[/bold], seed {config.seed}")
        folder = run.folder / f"{REPEAT}{number:02d}"
        with lock(folder, f"archray, with {run.folder.name}"):
            if folder.exists(MANIFEST):
                repeat = Run.open(folder, lambda _: type(run.config), trust=run.trust, uses="state")
                repeat.amend(config)
            else:
                repeat = run.copy_to(folder, config)
            results.append(execute(repeat))
    trials = [repeat.folder.read_parquet(TRIALS).assign(repeat_seed=repeat.config.seed) for repeat in run.repeats]
    run.folder.write_parquet(TRIALS, pd.concat(trials, ignore_index=True))
    run.folder.write_json(
        FOUND,
        {**describe(run)["result"], "repeats": repeat_rows(run)},
    )
    write_report(run)
    progress = recipe_of(run).progress
    if progress is not None:
        run.folder.write_parquet(PROGRESS, progress(run))
    return over_repeats(str(run.folder), results, run.ended)


def repeat_rows(run: Run[Any]) -> list[dict[str, Any]]:
    """One row a repeat: its seed, what it found, and how good that is, by the keys of `quantities`."""
    kept = ("architecture", "members", *QUANTITIES)
    return [
        {"repeat": number, "seed": repeat.config.seed, **{key: ended[key] for key in kept if key in ended}}
        for number, repeat in enumerate(run.repeats)
        for ended in [repeat.ended]
    ]
