"""Ensemble samplers: Monte Carlo and SVGD with regularized diversity. Shu 2022, Alg. 5.2 and 5.3, Sec. 5.3.4."""

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from archray.errors import InvalidInput
from archray.plurals import count
from archray.registry import Registry
from archray.searchers.arguments import FloatArray, IntArray
from archray.searchers.nesbs.posterior import Posterior, first_particles, nearest_choices, relaxed_log_density_gradient
from archray.searchers.nesbs.svgd_rd import ITERATIONS, MOMENTUM, STEP, svgd_rd
from archray.settings import RegisteredSettings

SAMPLERS: "Registry[type[EnsembleSampler]]" = Registry("sampler")


class TooSharp(InvalidInput):
    """A posterior that gives no ensemble of different members, or none at this delta."""


class EnsembleSampler(RegisteredSettings):
    """The settings of a sampler, which draws. A subclass registers itself, by its `name`, and says `ensembles`."""

    registry = SAMPLERS
    has_delta: ClassVar[bool] = False  # whether it takes a coefficient of diversity
    of_the_posterior: ClassVar[bool] = True  # False: it draws the same whatever was learnt

    def ensembles(self, posterior: Posterior, n: int, delta: float, rng: np.random.Generator) -> Iterator[IntArray]:
        """One ensemble after another, as long as it makes sense to draw again: (n, B) numbers of choices each.

        Args:
            delta: the diversity asked for; 0 for a sampler without.
        """
        raise NotImplementedError

    def sample(self, posterior: Posterior, n: int, delta: float | None, rng: np.random.Generator) -> list[str]:
        """The first ensemble without a repeated member, as strings.

        Raises: TooSharp if there is none.
        """
        most, drawn = 0, 0
        for choices in self.ensembles(posterior, n, 0.0 if delta is None else delta, rng):
            drawn += 1
            choices = posterior.feasible(choices, rng)
            distinct = len({row.tobytes() for row in choices})
            if distinct == n:  # spelling architectures and finding their canonical forms takes longer
                members = [posterior.architecture(row) for row in choices]
                distinct = len({posterior.form(member) for member in members})
                if distinct == n:
                    return members
            most = max(most, distinct)
        mode = float(np.exp(posterior.log_probs.max(-1).sum()))
        at, advice = ("", "") if delta is None else (f" at delta {delta:g}", " or delta")
        raise TooSharp(
            f"ensemble_size: expected a posterior that gives {count(n, 'different member')}, got {most} at most in "
            f"{count(drawn, 'ensemble')} by {self.name}{at}; it is too sharp (probability {mode:.2g} of its mode): "
            f"raise temperature{advice}, or lower ensemble_size"
        )


# Monte Carlo sampling, Algorithm 5.2

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


# SVGD with regularized diversity, Algorithm 5.3

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
