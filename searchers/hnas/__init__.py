"""HNAS: the search over (mu, nu) and the objective that it tunes. Shu 2022, ch. 7."""

from archray.searchers.hnas.mu_nu_search import HNASSearch
from archray.searchers.hnas.scored_pool import Pool, PoolFile, build_pool

__all__ = ["HNASSearch", "Pool", "PoolFile", "build_pool"]
