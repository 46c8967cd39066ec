"""Numbers in words: durations, sizes, with a dash where there is none. Loads nothing."""

from __future__ import annotations

import math

MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def as_float(value: object) -> float:
    """`value` as a float, NaN if it is none or not finite."""
    try:
        number = float(value)  # type: ignore[arg-type]  # anything a frame may hold
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


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
