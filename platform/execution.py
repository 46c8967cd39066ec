"""Execution of a run: its stages in order, or its repeats (whole runs in `repeat-00`, `repeat-01`, ...); its report."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
from rich.console import Console

from archray.platform.engine.settings import TuneOptions
from archray.platform.engine.stage import Context, Stage, check_stages, connected, recorded, run_stages, write_summary
from archray.platform.methods.recipe import all_stages, describe, recipe_of, write_report
from archray.platform.quantities import QUANTITIES
from archray.platform.run.heartbeat import is_locked_elsewhere, lock
from archray.platform.run.layout import FOUND, MANIFEST, PROGRESS, REPEAT, TRIALS
from archray.platform.run.manifest import other_versions
from archray.platform.run.run import Run
from archray.platform.run.run_summary import RunSummary
from archray.platform.run_result import RunResult, over_repeats


def execute(run: Run[Any], tune_options: TuneOptions, console: Console, started: float | None = None) -> RunResult:
    """Executes the unfinished stages of a run.

    Args:
        started: time at which the work on the run started, see `RunRecord`; None for a repeat, which starts here.
    """
    if (versions := other_versions(run.manifest)) is not None:
        console.print(f"This run was started with {versions}.")
    if run.config.repeats > 1:
        with recorded(run.folder, _titles(run), partial(describe, run), started), connected(run, console):
            return _run_repeats(run, tune_options, console)
    context = Context(run, console, tune_options, started=started)
    run_stages(all_stages(recipe_of(run)), context, partial(describe, run))
    return RunResult.of(RunSummary.read(run.folder), context.grids, trust=run.trust)


def _run_repeats(run: Run[Any], tune_options: TuneOptions, console: Console) -> RunResult:
    """Executes the unfinished repeats, and summarizes all repeats in the run's folder.

    Repeat r is the run with the seed `seed + r`. A single run with that seed has the same result.
    """
    results = []
    for number in range(run.config.repeats):
        config = run.config.model_copy(update={"seed": run.config.seed + number, "repeats": 1})
        console.print(f"[bold]repeat {number + 1}/{run.config.repeats}[/bold], seed {config.seed}")
        folder = run.folder / f"{REPEAT}{number:02d}"
        with lock(folder, f"archray, with {run.folder.name}"):
            if folder.exists(MANIFEST):
                repeat = Run.open(folder, lambda _: type(run.config), trust=run.trust, uses="resume")
                repeat.amend(config)
            else:
                repeat = run.copy_to(folder, config)
            results.append(execute(repeat, tune_options, console))
    trials = [repeat.folder.read_parquet(TRIALS).assign(repeat_seed=repeat.config.seed) for repeat in run.repeats]
    run.folder.write_parquet(TRIALS, pd.concat(trials, ignore_index=True))
    # a row per repeat: seed, result, and measures by the keys of `quantities`
    keys = ("architecture", "members", *QUANTITIES)
    rows = [
        {"repeat": number, "seed": repeat.config.seed, **{key: ended[key] for key in keys if key in ended}}
        for number, repeat in enumerate(run.repeats)
        for ended in [repeat.ended]
    ]
    run.folder.write_json(FOUND, {**describe(run)["result"], "repeats": rows})
    write_report(run)
    progress = recipe_of(run).report.progress
    if progress is not None:
        run.folder.write_parquet(PROGRESS, progress(run))
    return over_repeats(str(run.folder), results, run.ended)


def rewrite_report(run: Run[Any]) -> str:
    """Implements `archray.report`."""
    for part in (*run.repeats, run):
        check_stages(_stages(part), Context(part, Console()))
    if is_locked_elsewhere(run.folder):
        return write_report(run)
    with lock(run.folder, "archray report"):
        for part in (*run.repeats, run):
            write_summary(part.folder, _titles(part), partial(describe, part), ended=bool(part.ended))
        return write_report(run)


def _titles(run: Run[Any]) -> dict[str, str]:
    return {stage.name: stage.title for stage in _stages(run)}


def _stages(run: Run[Any]) -> Sequence[Stage[Any]]:
    """Returns the stages of a run; empty for a run with several repeats."""
    return all_stages(recipe_of(run)) if run.config.repeats == 1 else ()
