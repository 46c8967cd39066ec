"""Rows that a run shows in the terminal and keeps in `summary.json`: the trials of its search, best first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ConfigDict

KEPT_ROWS = 1000  # of a listing; a search with shared weights scores any number of architectures


@dataclass(frozen=True)
class Listing:
    """Rows with the same keys, in the order in which they are shown.

    Attributes:
        title: what they are, and how they are sorted.
        rows: the first of them. A key is a quantity's, or `architecture`, `failure`, ...; None where there is no value.
        count: how many there are in all.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    title: str
    rows: Sequence[Mapping[str, Any]]
    count: int

    @classmethod
    def of(cls, title: str, rows: Sequence[Mapping[str, Any]]) -> Listing:
        return cls(title, [plain(dict(row)) for row in rows[:KEPT_ROWS]], len(rows))


def plain(value: Any) -> Any:
    """A value as JSON has it: numbers of NumPy as Python's, and null for what is missing or not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "tolist"):  # of NumPy, whose scalars are no Python numbers
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if value != value else str(value)  # pandas' NaT is not equal to itself
