"""HNAS: the search over (mu, nu) and the objective that it tunes. Shu 2022, ch. 7."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes

if TYPE_CHECKING:
    from archray.searchers.hnas.mu_nu_search import HNASSearch
    from archray.searchers.hnas.objective import Pool, build_pool, load_pool

__all__ = ["HNASSearch", "Pool", "build_pool", "load_pool"]

__getattr__ = lazy_attributes(  # what needs Ray, and what reads tables
    __name__,
    mu_nu_search=("HNASSearch",),
    objective=("Pool", "build_pool", "load_pool"),
)
