"""Monte Carlo sampling: independent draws, of the posterior or of the uniform distribution. Shu 2022, Algorithm 5.2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from archray.searchers.arguments import IntArray
from archray.searchers.nesbs.architecture_posterior import Posterior
from archray.searchers.nesbs.samplers.ensemble_sampler import SAMPLERS, EnsembleSampler

DRAWS = (1, 15, 240, 3840)  # ensembles drawn at once, until one has no repeated member


@SAMPLERS.register("mc")
class MonteCarlo(EnsembleSampler):
    """Independent draws from the posterior (Algorithm 5.2)."""

    name: Literal["mc"] = "mc"

    def ensembles(self, posterior: Posterior, n: int, delta: float, rng: np.random.Generator) -> Iterator[IntArray]:
        return (choices for count in DRAWS for choices in posterior.draw((count, n), rng))


@SAMPLERS.register("uniform")
class Uniform(EnsembleSampler):
    """Independent draws from the choices that are possible, whatever their probability."""

    of_the_posterior = False

    name: Literal["uniform"] = "uniform"

    def ensembles(self, posterior: Posterior, n: int, delta: float, rng: np.random.Generator) -> Iterator[IntArray]:
        return MonteCarlo().ensembles(posterior.uniform(), n, delta, rng)
