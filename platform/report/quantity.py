"""Numbers as a page shows them: read from a table's columns, finite or missing, and written in words or percent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Quantity:
    """A metric as it is shown: `label` in words, values times `factor` in `unit`, with `digits` decimals."""

    label: str
    unit: str
    factor: float
    digits: int

    @classmethod
    def of(cls, metric: str) -> Quantity:
        """The quantity of a metric's name; whatever ends in `accuracy` or `error` is a fraction, shown in percent."""
        label = metric.replace("_", " ").replace("train ", "training ")
        if metric.endswith(("accuracy", "error")):
            return cls(label, "%", 100.0, 2)
        return cls(label, "", 1.0, 4)

    @property
    def axis(self) -> str:
        """The label of an axis."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def heading(self) -> str:
        """The heading of a column: the label of an axis with a capital."""
        return self.axis[:1].upper() + self.axis[1:]

    def show(self, value: object) -> str:
        """One value with its unit."""
        text = self.bare(value)
        return text if text == MISSING or not self.unit else f"{text} {self.unit}"

    def bare(self, value: object) -> str:
        """One value without its unit, for a column or axis that names it."""
        number = as_float(value)
        return MISSING if math.isnan(number) else signed(f"{number * self.factor:.{self.digits}f}")

    def spread(self, values: Iterable[float]) -> str:
        """`mean ± standard deviation unit`; the mean alone if there is one value. NaN are left out."""
        finite = finite_values(values)
        if finite.size == 0:
            return MISSING
        if finite.size == 1:
            return self.show(finite[0])
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.bare(finite.mean())} ± {self.bare(finite.std(ddof=1))}{unit}"


def as_float(value: object) -> float:
    """`value` as a float, NaN if it is none or not finite."""
    try:
        number = float(value)  # type: ignore[arg-type]  # anything a frame may hold
    except (TypeError, ValueError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def finite_values(values: Iterable[float]) -> np.ndarray:
    """The finite numbers among `values`, in order."""
    return np.array([number for number in map(as_float, values) if not math.isnan(number)], dtype=float)


def signed(text: str) -> str:
    """A formatted number with a true minus sign, and its thousands set apart."""
    return text.replace("-", MINUS).replace(",", "\N{NARROW NO-BREAK SPACE}")


def significant(value: object, digits: int = 3) -> str:
    """A number of unknown size: `0.0123`, `42`, `1.2 × 10⁶`."""
    number = as_float(value)
    if math.isnan(number):
        return MISSING
    if number == 0:
        return "0"
    exponent = math.floor(math.log10(abs(number)))
    if -4 < exponent < 6:
        decimals = max(digits - 1 - exponent, 0)
        return signed(f"{number:,.{decimals}f}")
    return f"{signed(f'{number / 10**exponent:.{digits - 1}f}')} × {power_of_ten(exponent)}"


def power_of_ten(exponent: int) -> str:
    """`10⁻³`, in Unicode: it stays text in a plot and takes the page's font."""
    return "10" + str(exponent).translate(_SUPERSCRIPTS)


def whole_number(value: object) -> str:
    """A count in a table: `15 625`."""
    number = as_float(value)
    return MISSING if math.isnan(number) else signed(f"{number:,.0f}")


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 trial`, `8 trials`, `15 625 architectures`."""
    return f"{signed(f'{number:,}')} {one if number == 1 else many or one + 's'}"


def duration(seconds: object) -> str:
    """`42 s`, `5 min 03 s`, `2 h 07 min`."""
    number = as_float(seconds)
    if math.isnan(number) or number < 0:
        return MISSING
    whole = round(number)
    if number < 10:
        return f"{number:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


# The columns of a table


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
