"""The columns of a run's tables as a page needs them: finite numbers, booleans, reasons of failures."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from archray.platform.quantities import as_float


def finite_values(values: Iterable[float]) -> np.ndarray:
    """The finite numbers among `values`, in order."""
    return np.array([number for number in map(as_float, values) if not math.isnan(number)], dtype=float)


def numbers(frame: pd.DataFrame, column: str) -> pd.Series:
    """`column` as floats, one per row of `frame`; NaN where it is missing, infinite, or no number."""
    values = pd.to_numeric(frame.get(column, pd.Series(math.nan, index=frame.index)), errors="coerce").astype(float)
    return values.where(np.isfinite(values))


def flags(frame: pd.DataFrame, column: str) -> pd.Series:
    """`column` as booleans, one per row of `frame`; false where it is missing."""
    return frame.get(column, pd.Series(False, index=frame.index)).eq(True)


def failures(frame: pd.DataFrame) -> pd.Series:
    """The reason of each row's failure, None where there is none; an empty string is none.

    `failure` is a result's own reason, `error` that of a trial that Tune gave up.
    """
    told = frame.reindex(columns=["failure", "error"]).itertuples(index=False)
    reasons = [next((str(text) for text in row if pd.notna(text) and str(text).strip()), None) for row in told]
    return pd.Series(reasons, index=frame.index, dtype=object)
