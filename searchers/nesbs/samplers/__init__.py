"""Ensemble samplers: how ensembles are drawn from a posterior. A file that is put here registers its own."""

from archray.registry import import_modules
from archray.searchers.nesbs.samplers.ensemble_sampler import SAMPLERS, EnsembleSampler, TooSharp

import_modules(__name__)

__all__ = ["SAMPLERS", "EnsembleSampler", "TooSharp"]
