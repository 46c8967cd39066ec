"""The last stage of every run: what was found, all trials in one table, the model and the report."""

from __future__ import annotations

from typing import Any

import pandas as pd

from archray.files import Folder
from archray.platform.engine.stage import Context, Stage, WorkStage
from archray.platform.methods.method import Method, get_method
from archray.platform.report.page import render
from archray.platform.run.layout import DONE, FOUND, MODEL, PROGRESS, REPORT, TRIALS
from archray.platform.run.run import Run

TRAINING_STAGES = ("search", "selection", "final", "baseline")  # whose trials stand in the run's own table


def all_stages(method: Method[Any]) -> tuple[Stage[Any], ...]:
    """The stages of a method and the report."""
    return (*method.stages, report_stage(method))


def report_stage(method: Method[Any]) -> Stage[Any]:
    """Writes what the run shows. It depends on all that the other stages wrote, and on the whole configuration."""

    def depends(context: Context[Any]) -> dict[str, Any]:
        run = context.run
        done = {stage.name: (run.folder / stage.name).read_json(DONE)["outputs"] for stage in method.stages}
        return {"done": done, "config": run.manifest["config"]}

    def work(context: Context[Any], folder: Folder) -> None:
        run = context.run
        (run.folder / MODEL).copy_from(run.folder / "final" / MODEL)
        run.folder.write_parquet(TRIALS, all_trials(run))
        write_report(run)
        if method.progress is not None:
            run.folder.write_parquet(PROGRESS, method.progress(run))
        run.folder.write_json(FOUND, {**(run.found or {}), **method.results(run)})

    return WorkStage(name="report", title="write what was found, and why", depends=depends, work=work, needs_ray=False)


def all_trials(run: Run[Any]) -> pd.DataFrame:
    """The trials of all stages that search or train, with a column `stage`."""
    tables = [(stage, run.table(stage, TRIALS)) for stage in TRAINING_STAGES]
    shown = [table.assign(stage=stage) for stage, table in tables if not table.empty]
    return pd.concat(shown, ignore_index=True) if shown else pd.DataFrame()


def write_report(run: Run[Any]) -> str:
    """Writes `report.html`, also of a run that has not ended, or of repeats; returns where it lies."""
    method = get_method(run.config.method)
    run.folder.write_bytes(REPORT, render(run, method.headline(run), method.sections).encode())
    return f"{run.folder}/{REPORT}"
