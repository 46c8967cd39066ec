"""Searches for a set: several objectives, of which none can be bettered without another becoming worse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes

if TYPE_CHECKING:
    from archray.searchers.pareto.nsga2_search import NSGA2Search
    from archray.searchers.pareto.pool_search import ParetoPoolSearch

__all__ = ["NSGA2Search", "ParetoPoolSearch"]

__getattr__ = lazy_attributes(  # what needs Ray
    __name__,
    nsga2_search=("NSGA2Search",),
    pool_search=("ParetoPoolSearch",),
)
