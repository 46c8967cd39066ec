"""What a search for networks reads back: test accuracies of what was found, beside random architectures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from archray.platform.report.comparison import tested
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.run import Run


def tested_networks(run: Run[Any]) -> dict[str, Any]:
    """Test accuracies (fractions): of the final trainings, and of the random architectures trained the same way."""
    found, random = (tested(run, stage) for stage in ("final", "baseline"))
    return {
        "test_accuracy": _mean(found),
        "test_accuracy_std": float(found.std(ddof=1)) if len(found) > 1 else None,
        "random_test_accuracy": _mean(random),
        "random_architectures": len(random),
    }


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{100 * value:.2f} %"


def print_found(run: Run[Any], results: dict[str, Any], console: Console) -> None:
    """What was found, in a few lines. results: of the run's method."""
    found = run.found
    if found is None:
        console.print("nothing found yet")
        return
    names = found["members"] if "members" in found else [found["architecture"]]
    for label, name in zip(("found", *[""] * len(names)), names, strict=False):
        console.print(f"{label:<20}[bold]{name}[/bold]", soft_wrap=True, highlight=False)
    console.print(f"validation accuracy {percent(found.get('validation_accuracy', found['value']))} in the search")
    deviation = f" +- {percent(results['test_accuracy_std'])}" if results["test_accuracy_std"] is not None else ""
    console.print(f"test accuracy       [bold]{percent(results['test_accuracy'])}[/bold]{deviation}")
    if results.get("members_test_accuracy") is not None and len(names) > 1:
        console.print(f"members             {percent(results['members_test_accuracy'])}, the mean of each alone")
    if results.get("random_architectures"):
        console.print(
            f"random              {percent(results['random_test_accuracy'])}, the mean of "
            f"{results['random_architectures']} random architectures trained the same way",
            soft_wrap=True,
        )


def print_trials(trials: pd.DataFrame, title: str, by: str, console: Console) -> None:
    """Trials by their `architecture`, best first. by: an accuracy, the more the better."""
    if trials.empty:
        return
    reasons, values = failures(trials), numbers(trials, by)
    console.print(f"{title}, best first:")
    for row in values.sort_values(ascending=False).index:
        outcome = f"failed: {reasons[row]}" if reasons[row] else f"{percent(values[row]):>8}"
        console.print(f"    {outcome}  {trials['architecture'][row]}", soft_wrap=True, highlight=False, markup=False)
