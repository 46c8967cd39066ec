"""SVGD-RD compared with torch autograd, its limits delta = 0 and n = 1, and Figure 5.2."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from archray.searchers.arguments import FloatArray
from archray.searchers.nesbs.posterior import first_particles, nearest_choices, relaxed_log_density_gradient
from archray.searchers.nesbs.samplers import rbf, svgd_rd, svgd_rd_direction

SIZES = np.array([3, 5, 2])
N = 6


@pytest.fixture
def log_probs() -> FloatArray:
    """(B, C) of three decisions; the second has an impossible choice."""
    rng = np.random.default_rng(3)
    logits = np.where(np.arange(5) < SIZES[:, None], rng.standard_normal((3, 5)), -np.inf)
    logits[1, 2] = -np.inf
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.fixture
def particles(log_probs: FloatArray) -> FloatArray:
    """(N, B, C), padded with 0."""
    rng = np.random.default_rng(4)
    return first_particles(rng.integers(0, SIZES, (N, 3)), SIZES, 5, rng)


def reference_log_density(x: torch.Tensor, log_probs: FloatArray) -> torch.Tensor:
    """Eq. 5.8 of one particle (B, C) by torch's mixture of Gaussians."""
    total = torch.zeros((), dtype=torch.float64)
    for block, row, size in zip(x, torch.from_numpy(log_probs), SIZES.tolist(), strict=True):
        one_hot = torch.eye(size, dtype=torch.float64)
        parts = Independent(Normal(one_hot, torch.full_like(one_hot, size**0.5)), 1)
        total = total + MixtureSameFamily(Categorical(logits=row[:size]), parts).log_prob(block[:size])
    return total


def reference_kernel(a: torch.Tensor, b: torch.Tensor, h: float) -> torch.Tensor:
    return torch.exp(-((a - b) ** 2).sum() / h)


def reference_direction(x: FloatArray, log_probs: FloatArray, delta: float, h: float) -> FloatArray:
    """Eq. B.10 by autograd: SVGD's two terms, minus delta grad_{x_i} k(x_i, x_j), x_j held constant."""
    phi = np.zeros_like(x)
    for i in range(len(x)):
        for j in range(len(x)):
            x_j = torch.tensor(x[j], requires_grad=True)
            (score,) = torch.autograd.grad(reference_log_density(x_j, log_probs), x_j)
            k = reference_kernel(x_j, torch.tensor(x[i]), h)
            (repulsion,) = torch.autograd.grad(k, x_j)
            x_i = torch.tensor(x[i], requires_grad=True)
            (nearness,) = torch.autograd.grad(reference_kernel(x_i, torch.tensor(x[j]), h), x_i)
            phi[i] += (k.detach() * score + repulsion - delta * nearness).numpy() / len(x)
    return phi


def direction(x: FloatArray, log_probs: FloatArray, delta: float, bandwidth: float | None) -> FloatArray:
    gradient = relaxed_log_density_gradient(x, log_probs, SIZES)
    flat = (len(x), -1)
    return svgd_rd_direction(x.reshape(flat), gradient.reshape(flat), delta, bandwidth).reshape(x.shape)


def test_relaxed_gradient_equals_torch(particles: FloatArray, log_probs: FloatArray) -> None:
    gradients = relaxed_log_density_gradient(particles, log_probs, SIZES)
    for x, gradient in zip(particles, gradients, strict=True):
        leaf = torch.tensor(x, requires_grad=True)
        expected = reference_log_density(leaf, log_probs)
        np.testing.assert_allclose(gradient, torch.autograd.grad(expected, leaf)[0].numpy(), atol=1e-12)


@pytest.mark.parametrize("delta", [-2.0, -1.0, 0.0, 0.7])
@pytest.mark.parametrize("bandwidth", [None, 4.0])
def test_direction_and_step_equal_autograd(
    particles: FloatArray, log_probs: FloatArray, delta: float, bandwidth: float | None
) -> None:
    flat = particles.reshape(N, -1)
    h = float(rbf(flat)[1]) if bandwidth is None else bandwidth
    expected = reference_direction(particles, log_probs, delta, h)
    np.testing.assert_allclose(direction(particles, log_probs, delta, bandwidth), expected, atol=1e-8, rtol=0)
    first = expected.reshape(N, -1)

    def gradient(x: FloatArray) -> FloatArray:
        return relaxed_log_density_gradient(x.reshape(particles.shape), log_probs, SIZES).reshape(N, -1)

    moved = flat + 0.1 * first
    np.testing.assert_allclose(svgd_rd(flat, gradient, delta, 1, bandwidth), moved, atol=1e-8, rtol=0)
    h = float(rbf(moved)[1]) if bandwidth is None else bandwidth
    second = 0.9 * first + reference_direction(moved.reshape(particles.shape), log_probs, delta, h).reshape(N, -1)
    np.testing.assert_allclose(svgd_rd(flat, gradient, delta, 2, bandwidth), moved + 0.1 * second, atol=1e-7, rtol=0)


def test_without_delta_it_is_svgd(particles: FloatArray, log_probs: FloatArray) -> None:
    """Eq. 2.8, whose second term has no factor."""
    flat = particles.reshape(N, -1)
    gradient = relaxed_log_density_gradient(particles, log_probs, SIZES).reshape(N, -1)
    kernel, h = rbf(flat)
    difference = flat[None] - flat[:, None]  # [i, j] = x_j - x_i
    repulsion = -2 / h * difference * kernel[..., None]  # grad_{x_j} k(x_j, x_i)
    expected = (kernel[..., None] * gradient[None] + repulsion).mean(1)
    np.testing.assert_allclose(direction(particles, log_probs, 0.0, None).reshape(N, -1), expected, atol=1e-12)


def test_median_bandwidth_is_that_of_the_pairs() -> None:
    for n in (2, 3, 4, 7):
        x = np.random.default_rng(n).standard_normal((n, 3))
        pairs = [((x[i] - x[j]) ** 2).sum() for i in range(n) for j in range(i)]
        assert float(rbf(x)[1]) == pytest.approx(np.median(pairs) / np.log(n))


def test_simultaneous_sets_equal_separate_sets(log_probs: FloatArray) -> None:
    starts = np.random.default_rng(0).standard_normal((2, 3, 4, 2))

    def gradient(x: FloatArray) -> FloatArray:
        return -x

    together = svgd_rd(starts, gradient, 0.3, iterations=20)
    for place in np.ndindex(2, 3):
        np.testing.assert_allclose(together[place], svgd_rd(starts[place], gradient, 0.3, iterations=20), atol=1e-12)


@pytest.mark.parametrize("delta", [-2.0, -0.5, 0.0, 1.0])
def test_one_particle_decodes_to_the_mode(log_probs: FloatArray, delta: float) -> None:
    """Proposition 5.2, from 20 starts at once."""
    rng = np.random.default_rng(0)
    start = first_particles(rng.integers(0, SIZES, (20, 1, 3)), SIZES, 5, rng)

    def gradient(flat: FloatArray) -> FloatArray:
        return relaxed_log_density_gradient(flat.reshape(start.shape), log_probs, SIZES).reshape(flat.shape)

    end = svgd_rd(start.reshape(20, 1, -1), gradient, delta).reshape(start.shape)
    assert (nearest_choices(end, log_probs) == log_probs.argmax(-1)).all()


def test_padding_stays_zero_and_impossible_choices_are_never_decoded(
    particles: FloatArray, log_probs: FloatArray
) -> None:
    moved = particles + 0.1 * direction(particles, log_probs, 1.0, None)
    assert (moved[:, np.arange(5) >= SIZES[:, None]] == 0).all()
    moved[:, 1, 2] = 100.0
    assert (nearest_choices(moved, log_probs)[:, 1] != 2).all()


def test_far_particles_and_sharp_posteriors_are_finite(log_probs: FloatArray) -> None:
    x = np.where(np.arange(5) < SIZES[:, None], 1e4, 0.0) * np.array([1.0, -1.0])[:, None, None]
    sharp = np.where(np.isfinite(log_probs), log_probs * 1e5, -np.inf)
    assert np.isfinite(relaxed_log_density_gradient(x, sharp, SIZES)).all()
    same = np.zeros((4, 3))
    assert (svgd_rd_direction(same, same, -2.0) == 0).all()


MEANS, VARIANCES = np.array([[-1.0, 0.0], [0.0, 1.0]]), np.array([0.25, 0.5])  # Figure 5.2


def two_gaussians(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log p up to a constant, (..., n), and its gradient, (..., n, 2)."""
    away = x[..., None, :] - MEANS
    exponents = -(away**2 / VARIANCES).sum(-1) / 2
    weights = np.exp(exponents)
    total = weights.sum(-1, keepdims=True)
    return np.log(total[..., 0]), -((weights / total)[..., None] * away / VARIANCES).sum(-2)


def test_particles_spread_as_delta_grows() -> None:
    """Figure 5.2: n = 15, L = 1000, step 0.1; the means of 8 runs, and the final density (note E2)."""
    starts = np.random.default_rng(0).standard_normal((8, 15, 2))
    rows, columns = np.triu_indices(15, 1)
    peak = two_gaussians(np.stack(np.meshgrid(*2 * [np.linspace(-2, 2, 81)]), -1))[0].max()
    spread = []
    for delta in (-1.0, -0.5, 0.0, 0.5, 1.0):
        end = svgd_rd(starts, lambda x: two_gaussians(x)[1], delta, momentum=0.0)
        apart = np.linalg.norm(end[:, rows] - end[:, columns], axis=-1)
        spread.append(apart.mean())
        assert np.exp(two_gaussians(end)[0] - peak).min() > 0.08
    assert (np.diff(spread) > 0.1).all()
    np.testing.assert_allclose(spread, [0.6, 1.1, 1.4, 1.6, 1.7], atol=0.12)
