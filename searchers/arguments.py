"""Checks of arguments that several searchers take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from archray.errors import InvalidInput


def check_whole_number(name: str, value: Any, least: int = 1) -> None:
    """Raises: InvalidInput if `value` is no whole number of `least` or more."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InvalidInput(f"{name}: expected a whole number of {least} or more, got {value!r}")


def check_metric_mode(metric: Any, mode: Any) -> None:
    """Raises: InvalidInput if `metric` is neither a name nor None, or `mode` neither min nor max nor None."""
    if metric is not None and not isinstance(metric, str):
        raise InvalidInput(f"metric: expected the name of one metric, got {metric!r}")
    if mode is not None and mode not in ("min", "max"):
        raise InvalidInput(f"mode: expected 'min' or 'max', got {mode!r}")


def is_number(value: Any) -> bool:
    """Whether `value` is a real number, NaN and infinities included; True and False are none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_finite_number(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
