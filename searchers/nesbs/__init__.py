"""NESBS: ensembles sampled from a posterior over architectures. Shu 2022, ch. 5."""

from archray.searchers.nesbs.ensemble_sampling import TooSharp
from archray.searchers.nesbs.ensemble_search import NESBSSearch
from archray.searchers.nesbs.posterior import Posterior

__all__ = ["NESBSSearch", "Posterior", "TooSharp"]
