"""NESBS: ensembles sampled from a posterior over architectures. Shu 2022, ch. 5."""

from archray.searchers.nesbs.ensemble_search import NESBSSearch
from archray.searchers.nesbs.posterior import Posterior
from archray.searchers.nesbs.samplers import EnsembleSampler, TooSharp

__all__ = ["EnsembleSampler", "NESBSSearch", "Posterior", "TooSharp"]
