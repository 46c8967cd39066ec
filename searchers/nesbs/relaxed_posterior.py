"""The posterior over architectures as a density over real vectors, and the way back. Shu 2022, Eq. 5.8-5.9.

Each decision with |O| choices is a block of |O| coordinates, its density a mixture of Gaussians around the one-hot
vectors h_o with covariance |O| I. As ||x - h_o||^2 = ||x||^2 - 2 x_o + 1, the mixture of a block is

    log p(x) = logsumexp_o(log p_o + x_o / |O|) - (||x||^2 + 1) / (2 |O|) - (|O| / 2) log(2 pi |O|),
    grad log p(x) = (softmax_o(log p_o + x_o / |O|) - x) / |O|.

Blocks of different sizes are padded to the largest, C: padded log-probabilities are -inf, padded coordinates 0, and
they stay 0.
"""

from __future__ import annotations

import numpy as np

from archray.searchers.array_types import FloatArray, IntArray


def relaxed_log_density(x: FloatArray, log_probs: FloatArray, sizes: IntArray) -> FloatArray:
    """log of Eq. 5.8, normalised. (..., B, C) -> (...).

    Args:
        x: (..., B, C) particles, padded with 0.
        log_probs: (B, C) of B decisions, -inf where a choice is impossible, and where it is padding.
        sizes: (B,) |O| of each decision.
    """
    z = x / sizes[:, None] + log_probs
    top = z.max(-1, keepdims=True)
    mixture = np.log(np.exp(z - top).sum(-1)) + top[..., 0]  # (..., B)
    gaussian = ((x * x).sum(-1) + 1.0) / (2.0 * sizes) + sizes / 2.0 * np.log(2.0 * np.pi * sizes)
    return (mixture - gaussian).sum(-1)


def relaxed_log_density_gradient(x: FloatArray, log_probs: FloatArray, sizes: IntArray) -> FloatArray:
    """The gradient of `relaxed_log_density` in x. Arguments as there. (..., B, C) -> (..., B, C)."""
    rates = 1.0 / sizes[:, None]
    weights = x * rates
    weights += log_probs
    weights -= weights.max(-1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    weights -= x
    weights *= rates
    return weights


def first_particles(choices: IntArray, sizes: IntArray, width: int, rng: np.random.Generator) -> FloatArray:
    """One-hot vectors of drawn choices plus N(0, |O| I), a draw from Eq. 5.8 (note E3). (..., B) -> (..., B, width)."""
    real = np.arange(width) < sizes[:, None]  # (B, C), False in the padding
    noise = rng.standard_normal((*choices.shape, width)) * np.sqrt(sizes)[:, None]
    return np.where(real, noise + (np.arange(width) == choices[..., None]), 0.0)


def nearest_choices(x: FloatArray, log_probs: FloatArray) -> IntArray:
    """Eq. 5.9: per decision the choice whose one-hot vector is nearest, the first of equals. (..., B, C) -> (..., B).

    That is the largest coordinate. Unlike the paper's, an impossible choice is never taken, however near.
    """
    return np.where(np.isneginf(log_probs), -np.inf, x).argmax(-1)
