"""How large a trained network is, in words: its parameters, and the multiply-adds of one image."""

from __future__ import annotations

import math

import pandas as pd

from archray.platform.report.columns import numbers
from archray.platform.report.quantity import significant

_MEASURES = {"parameters": "parameters", "multiply_adds": "multiply-adds"}


def network_size(trained: pd.DataFrame) -> str | None:
    """`3.3 M parameters, 545.2 M multiply-adds`, the mean over the rows; None if no row has either."""
    means = {words: float(numbers(trained, name).mean()) for name, words in _MEASURES.items()}
    return ", ".join(f"{millions(mean)} {words}" for words, mean in means.items() if math.isfinite(mean)) or None


def millions(number: float) -> str:
    """A large number: `545.2 M`; below a tenth of a million with two digits, `0.073 M`."""
    if number < 1e5:
        return f"{significant(number / 1e6, 2)} M"
    return f"{number / 1e6:,.1f} M".replace(",", "\N{NARROW NO-BREAK SPACE}")
