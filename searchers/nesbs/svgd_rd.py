"""SVGD with regularized diversity: particles of high density, as far apart as delta says. Shu 2022, Alg. 5.3.

The sign, derived from Eq. 5.5. The objective over n particles is

    KL(q || p) + n delta E_{x, x' ~ q}[k(x, x')],   of which the second term is (delta / n) sum_ij k(x_i, x_j).

1. SVGD moves x_i against the first term (Eq. 2.8), along
   (1/n) sum_j [k(x_j, x_i) grad_{x_j} log p(x_j) + grad_{x_j} k(x_j, x_i)].
2. Against the second term, x_j held constant as in Appendix B.1 (which drops a factor 2), it moves along
   -(delta / n) sum_j grad_{x_i} k(x_j, x_i).
3. A kernel of x_j - x_i has grad_{x_i} k = -grad_{x_j} k. So both add up to

    phi(x_i) = (1/n) sum_j [k(x_j, x_i) grad_{x_j} log p(x_j) + (1 + delta) grad_{x_j} k(x_j, x_i)].

This is Eq. B.10; Proposition 5.1 prints the second term of SVGD with the other variable. delta = 0 is SVGD, delta > 0
repels more, delta = -1 not at all, delta < -1 attracts.
"""

from collections.abc import Callable

import numpy as np

from archray.searchers.arguments import FloatArray

DELTA_RANGE = (-2.0, 1.0)  # of the coefficient of diversity, section 5.3.4
ITERATIONS, STEP, MOMENTUM = 1000, 0.1, 0.9  # section 5.3.4
SMALLEST_MEDIAN = 1e-12  # of squared distances: particles this close would be thrown apart by a repulsion of 1/distance


def median_bandwidth(squared: FloatArray) -> FloatArray:
    """h = median / log n over the pairs of different particles, as Liu and Wang (2016) choose it.

    All other particles together then weigh about as much in phi(x_i) as x_i itself. One particle has no pairs: its h
    is 1, and plays no part, since k(x, x) = 1. Squared distances (..., n, n) -> (...).
    """
    n = squared.shape[-1]
    if n == 1:
        return np.ones(squared.shape[:-2])
    rows, columns = np.triu_indices(n, 1)
    values, m = squared.reshape(*squared.shape[:-2], n * n)[..., rows * n + columns], len(rows)
    # np.median takes longer than the whole rest of an iteration
    middle = (
        np.partition(values, (m - 1) // 2, axis=-1) if m % 2 else np.partition(values, (m // 2 - 1, m // 2), axis=-1)
    )
    median = (middle[..., (m - 1) // 2] + middle[..., m // 2]) / 2
    return np.maximum(median, SMALLEST_MEDIAN) / np.log(n)


def rbf(particles: FloatArray, bandwidth: float | None = None) -> tuple[FloatArray, FloatArray]:
    """The kernel exp(-||x_i - x_j||^2 / h) and its h, (..., n, D) -> (..., n, n) and (...).

    bandwidth: h; None: `median_bandwidth`, for each set of n apart.
    """
    centred = particles - particles.mean(-2, keepdims=True)  # or the difference below would lose close particles
    gram = centred @ centred.swapaxes(-1, -2)
    norms = np.diagonal(gram, axis1=-2, axis2=-1)
    squared = norms[..., :, None] + norms[..., None, :]  # (..., n, n)
    squared -= 2.0 * gram
    np.maximum(squared, 0.0, out=squared)
    h = median_bandwidth(squared) if bandwidth is None else np.full(squared.shape[:-2], float(bandwidth))
    return np.exp(squared / -h[..., None, None]), h


def svgd_rd_direction(
    particles: FloatArray, gradient: FloatArray, delta: float, bandwidth: float | None = None
) -> FloatArray:
    """phi(x_i) for every particle. h is held constant in the kernel's gradient, also where it is the median.

    With grad_{x_j} k(x_j, x_i) = (2/h) (x_i - x_j) k(x_j, x_i), and c = 2 (1 + delta) / h,

        n phi_i = sum_j k_ij (grad log p(x_j) - c x_j) + c x_i sum_j k_ij.

    Args:
        particles: (..., n, D); leading axes are independent sets.
        gradient: (..., n, D) of log p at the particles.
        delta: the diversity coefficient.
        bandwidth: of the kernel; None: the median.

    Returns: (..., n, D)
    """
    kernel, h = rbf(particles, bandwidth)
    scaled = particles - particles.mean(-2, keepdims=True)  # phi is the same anywhere, and more exact here
    scaled *= 2.0 * (1.0 + delta) / h[..., None, None]  # c x
    phi = kernel @ (gradient - scaled)
    scaled *= kernel.sum(-1, keepdims=True)
    phi += scaled
    phi /= particles.shape[-2]
    return phi


def svgd_rd_step(
    particles: FloatArray,
    velocity: FloatArray,
    gradient: FloatArray,
    delta: float,
    bandwidth: float | None = None,
    step: float = STEP,
    momentum: float = MOMENTUM,
) -> tuple[FloatArray, FloatArray]:
    """One iteration of Algorithm 5.3, as SGD with momentum: v <- momentum v + phi, x <- x + step v.

    velocity: (..., n, D); zeros in the first iteration. Returns: the new particles and velocity.
    """
    velocity = momentum * velocity + svgd_rd_direction(particles, gradient, delta, bandwidth)
    return particles + step * velocity, velocity


def svgd_rd(
    particles: FloatArray,
    gradient: Callable[[FloatArray], FloatArray],
    delta: float,
    iterations: int = ITERATIONS,
    bandwidth: float | None = None,
    step: float = STEP,
    momentum: float = MOMENTUM,
) -> FloatArray:
    """Algorithm 5.3 on any number of independent sets of particles at once: where they end, (..., n, D) as they start.

    gradient: gives the gradient of log p, (..., n, D) -> (..., n, D). iterations: L.
    """
    velocity = np.zeros_like(particles)
    for _ in range(iterations):
        particles, velocity = svgd_rd_step(particles, velocity, gradient(particles), delta, bandwidth, step, momentum)
    return particles
