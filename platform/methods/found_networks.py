"""What a search for networks reads back: test accuracies of what was found, beside random architectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from archray.platform.report.comparison import tested
from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.listing import Listing
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


def list_trials(trials: pd.DataFrame, title: str, by: str) -> Sequence[Listing]:
    """Trials by their `architecture`, best first. by: an accuracy, the more the better. Nothing of no trials."""
    if trials.empty:
        return ()
    reasons, values = failures(trials), numbers(trials, by)
    order = values.sort_values(ascending=False).index
    rows = [{by: values[row], "architecture": trials["architecture"][row], "failure": reasons[row]} for row in order]
    return (Listing.of(f"{title}, best first", rows),)
