"""A search over a pool with several metrics: a Gaussian process on their ranks and on the architectures themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes

if TYPE_CHECKING:
    from archray.searchers.rank_surrogate.rank_surrogate_search import RankSurrogateSearch

__all__ = ["RankSurrogateSearch"]

__getattr__ = lazy_attributes(__name__, rank_surrogate_search=("RankSurrogateSearch",))  # what needs Ray
