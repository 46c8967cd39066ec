"""NESBS: ensembles sampled from a posterior over architectures. Shu 2022, ch. 5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archray.registry import lazy_attributes
from archray.searchers.nesbs.posterior import Posterior
from archray.searchers.nesbs.samplers import EnsembleSampler, TooSharp

if TYPE_CHECKING:
    from archray.searchers.nesbs.ensemble_search import NESBSSearch

__all__ = ["EnsembleSampler", "NESBSSearch", "Posterior", "TooSharp"]

__getattr__ = lazy_attributes(__name__, ensemble_search=("NESBSSearch",))  # what needs Ray
