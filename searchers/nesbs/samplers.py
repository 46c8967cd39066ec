"""Ensemble samplers: Monte Carlo and SVGD with regularized diversity. Shu 2022, Alg. 5.2 and 5.3, Sec. 5.3.4.

SVGD-RD finds particles of high density whose distances grow with delta. Its sign follows from Eq. 5.5. The objective
over n particles is

    KL(q || p) + n delta E_{x, x' ~ q}[k(x, x')],   where the second term equals (delta / n) sum_ij k(x_i, x_j).

1. SVGD moves x_i against the first term (Eq. 2.8), along
   (1/n) sum_j [k(x_j, x_i) grad_{x_j} log p(x_j) + grad_{x_j} k(x_j, x_i)].
2. Against the second term, with x_j constant as in Appendix B.1 (which drops a factor 2), it moves along
   -(delta / n) sum_j grad_{x_i} k(x_j, x_i).
3. A kernel of x_j - x_i has grad_{x_i} k = -grad_{x_j} k. So the sum of both directions is

    phi(x_i) = (1/n) sum_j [k(x_j, x_i) grad_{x_j} log p(x_j) + (1 + delta) grad_{x_j} k(x_j, x_i)].

This is Eq. B.10; Proposition 5.1 prints the second term of SVGD with the other variable. At delta = 0 it is SVGD. With
delta > 0 particles repel each other more strongly, at delta = -1 not at all, and with delta < -1 they attract each
other.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from archray.errors import InvalidInput
from archray.plurals import count
from archray.registry import Registry
from archray.searchers.arguments import FloatArray, IntArray
from archray.searchers.nesbs.posterior import Posterior, first_particles, nearest_choices, relaxed_log_density_gradient
from archray.settings import RegisteredSettings

# SVGD with regularized diversity, Algorithm 5.3

DELTA_RANGE = (-2.0, 1.0)  # range of the diversity coefficient, section 5.3.4
ITERATIONS, STEP, MOMENTUM = 1000, 0.1, 0.9  # section 5.3.4
SMALLEST_MEDIAN = 1e-12  # of squared distances: the repulsion of closer particles, 1/distance, would be extreme


def median_bandwidth(squared: FloatArray) -> FloatArray:
    """Returns h = median / log n over the pairs of particles (Liu and Wang 2016), (..., n, n) -> (...).

    With this h, all other particles together have about the same weight in phi(x_i) as x_i itself. One particle has no
    pairs; its h is 1, which has no effect since k(x, x) = 1.

    Args:
        squared: (..., n, n) squared distances.
    """
    n = squared.shape[-1]
    if n == 1:
        return np.ones(squared.shape[:-2])
    rows, columns = np.triu_indices(n, 1)
    values, m = squared.reshape(*squared.shape[:-2], n * n)[..., rows * n + columns], len(rows)
    low, high = (m - 1) // 2, m // 2
    middle = np.partition(values, low if low == high else (low, high), axis=-1)  # much faster than np.median
    median = (middle[..., low] + middle[..., high]) / 2
    return np.maximum(median, SMALLEST_MEDIAN) / np.log(n)


def rbf(particles: FloatArray, bandwidth: float | None = None) -> tuple[FloatArray, FloatArray]:
    """Returns the kernel exp(-||x_i - x_j||^2 / h) and its h, (..., n, D) -> (..., n, n) and (...).

    bandwidth: h; None: `median_bandwidth` of each set of n particles.
    """
    centered = particles - particles.mean(-2, keepdims=True)  # reduces cancellation in the differences below
    gram = centered @ centered.swapaxes(-1, -2)
    norms = np.diagonal(gram, axis1=-2, axis2=-1)
    squared = norms[..., :, None] + norms[..., None, :]  # (..., n, n)
    squared -= 2.0 * gram
    np.maximum(squared, 0.0, out=squared)
    h = median_bandwidth(squared) if bandwidth is None else np.full(squared.shape[:-2], float(bandwidth))
    return np.exp(squared / -h[..., None, None]), h


def svgd_rd_direction(
    particles: FloatArray, gradient: FloatArray, delta: float, bandwidth: float | None = None
) -> FloatArray:
    """Returns phi(x_i) for every particle; the kernel's gradient treats h as constant, even if h is the median.

    With grad_{x_j} k(x_j, x_i) = (2/h) (x_i - x_j) k(x_j, x_i), and c = 2 (1 + delta) / h,

        n phi_i = sum_j k_ij (grad log p(x_j) - c x_j) + c x_i sum_j k_ij.

    Args:
        particles: (..., n, D); leading axes are independent sets.
        gradient: (..., n, D) gradient of log p at the particles.
        delta: the diversity coefficient.
        bandwidth: h of the kernel; None: `median_bandwidth`.

    Returns: (..., n, D)
    """
    kernel, h = rbf(particles, bandwidth)
    scaled = particles - particles.mean(-2, keepdims=True)  # phi does not change, and is more accurate
    scaled *= 2.0 * (1.0 + delta) / h[..., None, None]  # c x
    phi = kernel @ (gradient - scaled)
    scaled *= kernel.sum(-1, keepdims=True)
    phi += scaled
    phi /= particles.shape[-2]
    return phi


def svgd_rd(
    particles: FloatArray,
    gradient: Callable[[FloatArray], FloatArray],
    delta: float,
    iterations: int = ITERATIONS,
    bandwidth: float | None = None,
    step: float = STEP,
    momentum: float = MOMENTUM,
) -> FloatArray:
    """Runs Algorithm 5.3 on any number of independent sets of particles, (..., n, D) -> (..., n, D).

    An iteration is a step of SGD with momentum: v <- momentum v + phi, x <- x + step v.

    Args:
        particles: (..., n, D) the initial particles.
        gradient: the gradient of log p, (..., n, D) -> (..., n, D).
        delta: the diversity coefficient.
        iterations: L.
        bandwidth: h of the kernel; None: `median_bandwidth`.
        step, momentum: step size and momentum of SGD.
    """
    velocity = np.zeros_like(particles)
    for _ in range(iterations):
        velocity = momentum * velocity + svgd_rd_direction(particles, gradient(particles), delta, bandwidth)
        particles = particles + step * velocity
    return particles


# Samplers

SAMPLERS: "Registry[type[EnsembleSampler]]" = Registry("sampler")


class TooSharp(InvalidInput):
    """The posterior gives no ensemble of different members, in general or at one delta."""


class EnsembleSampler(RegisteredSettings):
    """Base class of ensemble samplers: settings and draws. A subclass registers under its `name`, defines `ensembles`.

    Example:
        ```python
        sampler = SVGDRD(iterations=100)
        members = sampler.sample(posterior, n=3, delta=0.5, rng=np.random.default_rng(0))
        ```
    """

    registry = SAMPLERS
    has_delta: ClassVar[bool] = False  # whether the sampler has a diversity coefficient
    of_the_posterior: ClassVar[bool] = True  # False: draws do not depend on the probabilities

    def ensembles(self, posterior: Posterior, n: int, delta: float, rng: np.random.Generator) -> Iterator[IntArray]:
        """Yields ensembles as (n, B) numbers of choices, up to the sampler's maximum number of attempts.

        delta: the diversity coefficient; 0 for a sampler without one.
        """
        raise NotImplementedError

    def sample(self, posterior: Posterior, n: int, delta: float | None, rng: np.random.Generator) -> list[str]:
        """Returns the first ensemble without a repeated member, as strings. Raises: TooSharp if there is none."""
        most, drawn = 0, 0
        for choices in self.ensembles(posterior, n, 0.0 if delta is None else delta, rng):
            drawn += 1
            choices = posterior.feasible(choices, rng)
            distinct = len({row.tobytes() for row in choices})
            if distinct == n:  # only then compare canonical forms, which takes longer
                members = [posterior.architecture(row) for row in choices]
                distinct = len({posterior.form(member) for member in members})
                if distinct == n:
                    return members
            most = max(most, distinct)
        mode = float(np.exp(posterior.log_probs.max(-1).sum()))
        at, advice = ("", "") if delta is None else (f" at delta {delta:g}", " or delta")
        raise TooSharp(
            f"ensemble_size: expected {count(n, 'different member')}, got {most} at most in "
            f"{count(drawn, 'ensemble')} of {self.name}{at}. The posterior is too sharp (probability {mode:.2g} of its "
            f"mode). Raise temperature{advice}, or lower ensemble_size."
        )


# Monte Carlo sampling, Algorithm 5.2

DRAWS = (1, 15, 240, 3840)  # numbers of ensembles to draw together, until one has no repeated member


@SAMPLERS.register("mc")
class MonteCarlo(EnsembleSampler):
    """Independent draws from the posterior (Algorithm 5.2)."""

    name: Literal["mc"] = "mc"

    def ensembles(self, posterior: Posterior, n: int, delta: float, rng: np.random.Generator) -> Iterator[IntArray]:
        return (choices for count in DRAWS for choices in posterior.draw((count, n), rng))


@SAMPLERS.register("uniform")
class Uniform(EnsembleSampler):
    """Independent uniform draws from the choices with a nonzero probability."""

    of_the_posterior = False

    name: Literal["uniform"] = "uniform"

    def ensembles(self, posterior: Posterior, n: int, delta: float, rng: np.random.Generator) -> Iterator[IntArray]:
        return MonteCarlo().ensembles(posterior.uniform(), n, delta, rng)


RUNS = (1, 3, 9)  # numbers of joint runs, until one has no repeated member; the first is nearly always enough


@SAMPLERS.register("svgd-rd")
class SVGDRD(EnsembleSampler):
    """The choices nearest to n particles of SVGD-RD in the relaxed posterior (Algorithm 5.3, Eq. 5.8-5.9).

    Attributes:
        iterations: L, the number of SVGD iterations.
        bandwidth: h of the kernel exp(-||x - x'||^2 / h); None: `median_bandwidth`.
        step, momentum: step size and momentum of the particles' SGD.

    Example:
        ```python
        search = NESBSSearch(posterior, sampler=SVGDRD(iterations=100), delta="bo")
        ```
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
        """Returns the choices at the particles of independent runs (Eq. 5.9), (..., n) -> (..., n, B).

        Members may repeat. The particles leave out decisions with one choice, whose coordinates would only affect the
        kernel.
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
