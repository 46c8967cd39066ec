"""The trials of a search that no other betters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from archray.searchers.arguments import FloatArray
from archray.searchers.ledger import Record
from archray.searchers.pareto.dominance import non_dominated


def front_of(
    history: pd.DataFrame, records: Sequence[Record], vector: Callable[[Record], FloatArray | None]
) -> pd.DataFrame:
    """The rows of a history whose records no other betters, the best by the metric first.

    vector: the objectives of a record as losses; None for one that takes no part.
    """
    vectors = [(row, losses) for row, record in enumerate(records) if (losses := vector(record)) is not None]
    if not vectors:
        return history.iloc[:0]
    points = np.array([losses for _, losses in vectors])
    places = non_dominated(points)
    places = places[np.argsort(points[places, 0], kind="stable")]
    return history.iloc[[vectors[place][0] for place in places]].reset_index(drop=True)
