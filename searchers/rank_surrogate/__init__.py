"""A search over a pool with several metrics: a Gaussian process on their ranks and on the architectures themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes

if TYPE_CHECKING:
    from archray.searchers.rank_surrogate.robot_search import RoBoTSearch
    from archray.searchers.rank_surrogate.search import RankSurrogateSearch

__all__ = ["RankSurrogateSearch", "RoBoTSearch"]

__getattr__ = lazy_attributes(  # what needs Ray
    __name__,
    search=("RankSurrogateSearch",),
    robot_search=("RoBoTSearch",),
)
