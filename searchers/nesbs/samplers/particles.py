"""Ensembles of SVGD with regularized diversity, from fresh particles each. Shu 2022, Algorithm 5.3, section 5.3.4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field

from archray.searchers.arguments import FloatArray, IntArray
from archray.searchers.nesbs.architecture_posterior import (
    Posterior,
    first_particles,
    nearest_choices,
    relaxed_log_density_gradient,
)
from archray.searchers.nesbs.samplers.ensemble_sampler import SAMPLERS, EnsembleSampler
from archray.searchers.nesbs.svgd_rd import ITERATIONS, MOMENTUM, STEP, svgd_rd

RUNS = (1, 3, 9)  # runs at once, until one has no repeated member; the first is nearly always enough


@SAMPLERS.register("svgd-rd")
class SVGDRD(EnsembleSampler):
    """The choices nearest to n particles of SVGD-RD in the relaxed posterior (Algorithm 5.3, Eq. 5.8-5.9).

    Attributes:
        iterations: L.
        bandwidth: h of the kernel exp(-||x - x'||^2 / h); None: `median_bandwidth`.
        step, momentum: of the particles' SGD.
    """

    has_delta = True

    name: Literal["svgd-rd"] = "svgd-rd"
    iterations: int = Field(ITERATIONS, ge=1)
    bandwidth: float | None = Field(None, gt=0, allow_inf_nan=False)
    step: float = Field(STEP, gt=0, allow_inf_nan=False)
    momentum: float = Field(MOMENTUM, ge=0, lt=1)

    def ensembles(self, posterior: Posterior, n: int, delta: float, rng: np.random.Generator) -> Iterator[IntArray]:
        return (choices for count in RUNS for choices in self.evolve(posterior, (count, n), delta, rng))

    def evolve(self, posterior: Posterior, shape: tuple[int, ...], delta: float, rng: np.random.Generator) -> IntArray:
        """Choices at the particles of independent runs, repeated members and all (Eq. 5.9). (..., n) -> (..., n, B).

        Decisions with one choice are left out of the particles: there is nothing to sample, and their coordinates
        would only take part in the kernel.
        """
        choices = posterior.draw(shape, rng)  # (..., n, B)
        free = posterior.sizes > 1
        sizes, log_probs = posterior.sizes[free], posterior.log_probs[free]
        if not len(sizes):
            return choices
        block = log_probs.shape

        def gradient(flat: FloatArray) -> FloatArray:
            return relaxed_log_density_gradient(flat.reshape(*shape, *block), log_probs, sizes).reshape(flat.shape)

        particles = first_particles(choices[..., free], sizes, block[1], rng).reshape(*shape, -1)  # (..., n, B C)
        particles = svgd_rd(particles, gradient, delta, self.iterations, self.bandwidth, self.step, self.momentum)
        choices[..., free] = nearest_choices(particles.reshape(*shape, *block), log_probs)
        return choices
