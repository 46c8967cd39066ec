"""Repeats: whole runs with seeds of their own, one after another, in `repeat-00`, `repeat-01`, ..."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from archray.platform.methods.report_stage import PROGRESS, REPORT, percent, read_table
from archray.platform.report.page import render
from archray.platform.report.view import RunView
from archray.platform.run.run import Run

if TYPE_CHECKING:
    from archray.platform.api import SearchResult


def repeat_runs(run: Run) -> list[Run]:
    """The repeats of a run that have begun."""
    return [Run.open(run.folder / name) for name in run.folder.folders() if name.startswith("repeat-")]


def run_repeats(run: Run, execute: Callable[[Run], SearchResult], console: Console) -> SearchResult:
    """Does every repeat, or what is left of it, and sums them up in the run's own folder.

    Repeat r is the run with the seed `seed + r`; it could be started alone with the same result.
    """
    results = []
    for number in range(run.config.repeats):
        config = run.config.model_copy(update={"seed": run.config.seed + number, "repeats": 1})
        console.print(f"[bold]repeat {number + 1}/{run.config.repeats}[/bold], seed {config.seed}")
        results.append(execute(_repeat(run, number, config)))
    runs = repeat_runs(run)
    best = max(results, key=lambda result: -math.inf if (value := result.validation_accuracy) is None else value)
    table = repeat_table(runs)
    run.folder.write_parquet("trials.parquet", pd.concat([_trials(r) for r in runs], ignore_index=True))
    run.folder.write_json(
        "architecture.json",
        {
            **({"members": list(best.members)} if best.members else {"architecture": best.architecture}),
            "value": best.validation_accuracy,
            "test_accuracy": best.test_accuracy,
            "repeats": table.to_dict("records"),
        },
    )
    view = write_repeats_report(run)
    if not view.progress.empty:
        run.folder.write_parquet(PROGRESS, view.progress)
    return replace(best, path=str(run.folder), repeats=tuple(results))


def write_repeats_report(run: Run) -> RunView:
    """One report over all repeats, on the figures of the repeat with the best validation; returns what it shows."""
    from archray.platform.methods import get_method

    runs = repeat_runs(run)
    table = repeat_table(runs)
    best = runs[int(table["value"].astype(float).fillna(-math.inf).argmax())]
    method = get_method(run.config.method)
    repeats = [
        {
            **{str(k): v for k, v in row.items()},
            "test_accuracy": _tested(r, "final"),
            "baseline": _tested(r, "baseline"),
        }
        for row, r in zip(table.to_dict("records"), runs, strict=True)
    ]
    views = [method.view(repeat) for repeat in runs]
    view = replace(
        method.view(best),
        manifest=run.manifest,
        repeats=repeats,
        progress=_pooled([each.progress for each in views]),
        correlation=_pooled([each.correlation for each in views]),
        rounds=_pooled([each.rounds for each in views]),
        ensembles=_pooled([each.ensembles for each in views]),
        diversity=_pooled([each.diversity for each in views]),
    )
    run.folder.write_bytes(REPORT, render(view, method.sections).encode())
    return view


def _pooled(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The tables of all repeats, with a column `repeat`."""
    return pd.concat([table.assign(repeat=number) for number, table in enumerate(tables)], ignore_index=True)


def repeat_table(runs: list[Run]) -> pd.DataFrame:
    """One row a repeat: its seed, what it found, and how good that is (fractions)."""
    rows: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        told = run.folder.read_json("architecture.json") if run.folder.exists("architecture.json") else {}
        row = {key: told.get(key) for key in ("architecture", "value", "test_accuracy", "random_test_accuracy")}
        if "members" in told:  # its value is a loss
            row |= {"architecture": " + ".join(told["members"]), "value": told["validation_accuracy"]}
        rows.append({"repeat": number, "seed": run.config.seed, **row})
    return pd.DataFrame(rows)


def print_repeats(runs: list[Run], console: Console) -> None:
    """What each repeat found, and the mean over them."""
    table = Table("repeat", "seed", "architecture", "validation", "test", "random", box=None)
    found = repeat_table(runs)
    for row in found.to_dict("records"):
        accuracies = [percent(row[key]) for key in ("value", "test_accuracy", "random_test_accuracy")]
        table.add_row(str(row["repeat"]), str(row["seed"]), row["architecture"] or "not done yet", *accuracies)
    console.print(table)
    tested = found["test_accuracy"].dropna().astype(float)
    if len(tested) > 1:
        console.print(f"test accuracy {percent(tested.mean())} +- {percent(tested.std())} over {len(tested)} repeats")


def _repeat(run: Run, number: int, config: Any) -> Run:
    """The run of one repeat: opened if it was begun, else made of the parent's files."""
    folder = run.folder / f"repeat-{number:02d}"
    if folder.exists("manifest.json"):
        repeat = Run.open(folder)
        repeat.amend(config)
        return repeat
    manifest = {**run.manifest, "config": config.model_dump(mode="json"), "amended": []}
    return run.copy_to(folder, manifest, config)


def _trials(run: Run) -> pd.DataFrame:
    return read_table(run.folder, "trials.parquet").assign(repeat_seed=run.config.seed)


def _tested(run: Run, stage: str) -> list[float]:
    table = read_table(run.folder / stage, "trials.parquet")
    return table["test_accuracy"].dropna().tolist() if "test_accuracy" in table else []
