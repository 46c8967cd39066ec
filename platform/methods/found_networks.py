"""What a search for networks lists: its trials, best first."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from archray.platform.report.table_columns import failures, numbers
from archray.platform.run.listing import Listing


def list_trials(trials: pd.DataFrame, title: str, by: str) -> Sequence[Listing]:
    """Trials by their `architecture`, best first. by: an accuracy, the more the better. Nothing of no trials."""
    if trials.empty:
        return ()
    reasons, values = failures(trials), numbers(trials, by)
    order = values.sort_values(ascending=False).index
    rows = [{by: values[row], "architecture": trials["architecture"][row], "failure": reasons[row]} for row in order]
    return (Listing.of(f"{title}, best first", rows),)
