"""What a search for networks lists: its trials, best first."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd

from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.listing import Listing


def list_trials(
    trials: pd.DataFrame, title: str, by: str, chosen: Collection[str | None] = (), *, least_first: bool = False
) -> Sequence[Listing]:
    """Trials by their `architecture`, best first. Nothing of no trials.

    by: the more the better, unless `least_first`. chosen: what the search chose, marked, and first among equals.
    """
    if trials.empty:
        return ()
    reasons, values = failures(trials), numbers(trials, by)
    names = trials["architecture"]
    order = (
        pd.DataFrame({"value": values if least_first else -values, "other": ~names.isin(chosen)})
        .sort_values(["value", "other"])
        .index
    )
    rows = [
        {
            "outcome": "chosen" if names[row] in chosen else "",
            by: values[row],
            "architecture": names[row],
            "failure": reasons[row],
        }
        for row in order
    ]
    return (Listing.of(f"{title}, best first", rows),)
