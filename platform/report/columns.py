"""Columns of a table as they can be shown: finite numbers, flags, and why rows failed."""

from __future__ import annotations

import pandas as pd


def numbers(frame: pd.DataFrame, column: str) -> pd.Series:
    """`column` as floats, one per row of `frame`; NaN where it is missing, infinite, or no number."""
    if column not in frame:
        return pd.Series(float("nan"), index=frame.index, dtype=float)
    values = pd.to_numeric(frame[column], errors="coerce").astype(float)
    return values.where(values.abs() != float("inf"))


def failures(frame: pd.DataFrame) -> pd.Series:
    """The reason of each row's failure, None where there is none; an empty string is none.

    `failure` is a result's own reason, `error` that of a trial that Tune gave up.
    """
    columns = [frame[name].tolist() for name in ("failure", "error") if name in frame]
    given = [[str(v) for v in row if pd.notna(v) and str(v).strip()] for row in zip(*columns, strict=True)]
    reasons = [row[0] if row else None for row in given] or [None] * len(frame)
    return pd.Series(reasons, index=frame.index, dtype=object)


def is_repeat(frame: pd.DataFrame) -> pd.Series:
    """Which rows were answered with a value that was known already, without a training."""
    return flags(frame, "repeat")


def flags(frame: pd.DataFrame, column: str) -> pd.Series:
    """`column` as booleans, one per row of `frame`; false where it is missing."""
    if column not in frame:
        return pd.Series(False, index=frame.index)
    return frame[column].map(lambda value: bool(value) if pd.notna(value) else False).astype(bool)
