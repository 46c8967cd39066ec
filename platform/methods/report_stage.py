"""What a run found, read back from its folder: the last stage writes it down, `show` prints it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pandas as pd
from rich.console import Console

from archray.files import Folder
from archray.platform.engine.stage import DONE, Context, Stage
from archray.platform.methods.training_stages import found_in
from archray.platform.report.page import render
from archray.platform.report.view import RunView, decided
from archray.platform.run.run import Run
from archray.trainables.spaces import get_space

TRAINING_STAGES = ("search", "selection", "final", "baseline")
PROGRESS = "progress.parquet"
REPORT = "report.html"
ENSEMBLE = "ensemble.json"  # of the final stage of a search for an ensemble


def read_table(folder: Folder, name: str) -> pd.DataFrame:
    """A Parquet table, empty where a stage has not written it yet."""
    return folder.read_parquet(name) if folder.exists(name) else pd.DataFrame()


def stage_tables(run: Run, name: str) -> pd.DataFrame:
    """The tables called `name` of all stages that train, with a column `stage`."""
    frames = []
    for stage in TRAINING_STAGES:
        table = read_table(run.folder / stage, name)
        if not table.empty:
            frames.append(table.assign(stage=stage))
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def found(run: Run) -> dict[str, Any] | None:
    """What the search found: `architecture`, or `members`, and the value it was chosen for; None before it ends."""
    place = found_in(run)
    return place.read_json("architecture.json") if place.exists("architecture.json") else None


def run_view(run: Run) -> RunView:
    """What the report of any method with standalone trainings shows."""
    chosen = found(run) or {}
    architecture = chosen.get("architecture")
    members = tuple(chosen.get("members", ()))
    space = get_space(run.space)
    return RunView(
        method=run.config.method,
        space=run.config.space,
        data=run.config.data.name,
        manifest=run.manifest,
        architecture=architecture,
        members=members,
        decisions=decided(space, architecture) if architecture else (),
        member_decisions=tuple(decided(space, member) for member in members),
        seed=run.config.seed,
        seconds=seconds(run),
        started=f"{datetime.fromisoformat(run.manifest['created']):%Y-%m-%d %H:%M} UTC",
        baseline=read_table(run.folder / "baseline", "trials.parquet"),
        final=read_table(run.folder / "final", "trials.parquet"),
        curves=stage_tables(run, "curves.parquet"),
    )


def seconds(run: Run) -> float:
    """The time that the stages that are done took, all together."""
    stages = [run.folder / name for name in run.folder.folders()]
    return float(sum(stage.read_json(DONE)["seconds"] for stage in stages if stage.exists(DONE)))


def report_stage(stages: Sequence[str] = ("search", "final", "baseline")) -> Stage:
    """The last stage: what was found, the table of all trials, the model and the report, in the run's folder.

    stages: those whose outputs the report shows.
    """

    def inputs(context: Context) -> dict[str, Any]:
        run = context.run
        done = {name: (run.folder / name).read_json(DONE)["outputs"] for name in stages}
        return {"done": done, "config": run.manifest["config"]}

    return Stage("report", "write what was found, and why", inputs, _write_results, needs_ray=False)


def _write_results(context: Context, folder: Folder) -> None:
    run = context.run
    chosen = found(run)
    assert chosen is not None  # the search stage is done
    model = run.folder / "final" / "model"
    for name in model.files():
        (run.folder / "model").write_bytes(name, model.read_bytes(name))
    run.folder.write_parquet("trials.parquet", stage_tables(run, "trials.parquet"))
    view = write_report(run)
    if not view.progress.empty:
        run.folder.write_parquet(PROGRESS, view.progress)
    run.folder.write_json("architecture.json", {**chosen, **summary(run)})


def write_report(run: Run) -> RunView:
    """Writes `report.html`; returns what it shows."""
    from archray.platform.methods import get_method

    method = get_method(run.config.method)
    view = method.view(run)
    run.folder.write_bytes(REPORT, render(view, method.sections).encode())
    return view


def summary(run: Run) -> dict[str, Any]:
    """Test accuracies (fractions): of the final trainings, and of the random architectures trained the same way."""
    tested = {
        stage: read_table(run.folder / stage, "trials.parquet").get("test_accuracy", pd.Series(dtype=float)).dropna()
        for stage in ("final", "baseline")
    }
    return {
        "test_accuracy": _mean(tested["final"]),
        "test_accuracy_std": _deviation(tested["final"]),
        "random_test_accuracy": _mean(tested["baseline"]),
        "random_architectures": len(tested["baseline"]),
        **ensemble_summary(run.folder / "final"),
    }


def ensemble_summary(final: Folder) -> dict[str, Any]:
    """The test accuracy of the ensemble in the folder of the final stage, and of its members; empty without one."""
    if not final.exists(ENSEMBLE):
        return {}
    told = final.read_json(ENSEMBLE)
    mean = None if told["ate"] is None else 1 - told["ate"]
    return {"test_accuracy": 1 - told["test_error"], "test_accuracy_std": None, "members_test_accuracy": mean}


def _mean(values: pd.Series) -> float | None:
    return float(values.mean()) if len(values) else None


def _deviation(values: pd.Series) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 else None


def percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.2f} %"


def print_found(run: Run, console: Console) -> None:
    """What was found, in a few lines."""
    chosen = found(run)
    if chosen is None:
        console.print("nothing found yet")
        return
    told = summary(run)
    names = chosen["members"] if "members" in chosen else [chosen["architecture"]]
    for label, name in zip(("found", *[""] * len(names)), names, strict=False):
        console.print(f"{label:<20}[bold]{name}[/bold]", soft_wrap=True, highlight=False)
    console.print(f"validation accuracy {percent(chosen.get('validation_accuracy', chosen['value']))} in the search")
    deviation = f" +- {percent(told['test_accuracy_std'])}" if told["test_accuracy_std"] is not None else ""
    console.print(f"test accuracy       [bold]{percent(told['test_accuracy'])}[/bold]{deviation}")
    if told.get("members_test_accuracy") is not None and len(names) > 1:
        console.print(f"members             {percent(told['members_test_accuracy'])}, the mean of each alone")
    if told["random_architectures"]:
        console.print(
            f"random              {percent(told['random_test_accuracy'])}, the mean of "
            f"{told['random_architectures']} random architectures trained the same way",
            soft_wrap=True,
        )


def print_trials(run: Run, console: Console) -> None:
    """The trials of the search, best first."""
    trials = read_table(run.folder / "search", "trials.parquet")
    if trials.empty:
        return
    console.print("trials of the search, best first:")
    for row in trials.sort_values("validation_accuracy", ascending=False).to_dict("records"):
        failure = row.get("failure") or row.get("error")
        outcome = f"failed: {failure}" if isinstance(failure, str) else f"{percent(row['validation_accuracy']):>8}"
        console.print(f"    {outcome}  {row['architecture']}", soft_wrap=True, highlight=False, markup=False)
