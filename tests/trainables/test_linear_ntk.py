"""Theorem 7.4 of Shu (2022): the kernels of linear wide and deep architectures, by autograd and in expectation."""

from pathlib import Path

import pytest
import torch

from archray.errors import InvalidInput
from archray.references import load_reference

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "linear_ntk.py"
deep_kernels, deep_ntk, expected_scale, orthonormal_inputs, wide_ntk = (
    load_reference(f"{BENCHMARK}:{name}")
    for name in ("deep_kernels", "deep_ntk", "expected_scale", "orthonormal_inputs", "wide_ntk")
)


def by_autograd(weights: torch.Tensor, inputs: torch.Tensor, *, wide: bool) -> torch.Tensor:
    """(m, m): inner products of the gradients of one output at a time."""
    weights = weights.clone().requires_grad_()
    product = weights.sum(0) if wide else torch.linalg.multi_dot([*weights.flip(0)])
    rows = []
    for output in (product @ inputs).sum(0):
        (gradient,) = torch.autograd.grad(output, weights, retain_graph=True)
        rows.append(gradient.flatten())
    jacobian = torch.stack(rows)
    return jacobian @ jacobian.T


def test_the_kernels_equal_those_of_autograd() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(3, 4, 5, 5, generator=generator, dtype=torch.float64)
    inputs = torch.randn(5, 6, generator=generator, dtype=torch.float64)  # not orthonormal, and more points than n
    deep = deep_ntk(weights, inputs)
    for one, kernel in zip(weights, deep, strict=True):
        torch.testing.assert_close(kernel, by_autograd(one, inputs, wide=False))
        torch.testing.assert_close(wide_ntk(inputs, 4), by_autograd(one, inputs, wide=True))


@pytest.mark.parametrize(("width", "layers", "points"), [(6, 2, 4), (8, 3, 8), (5, 4, 3)])
def test_the_wide_kernel_is_exact_and_the_deep_one_holds_in_expectation(width: int, layers: int, points: int) -> None:
    inputs = orthonormal_inputs(width, points, torch.Generator().manual_seed(1))
    identity = torch.eye(points, dtype=torch.float64)
    torch.testing.assert_close(wide_ntk(inputs, layers), layers * width * identity)
    deep = deep_kernels(width, layers, points, 20_000)
    assert deep.deviations(expected_scale(width, layers)).abs().max() < 4.5
    assert expected_scale(width, layers) == layers * width**layers
    # Its expectation differs from that of the wide one, and no single one is a multiple of the identity.
    assert deep.deviations(layers * width).abs().max() > 10
    assert (deep.kappa > 1).all() and deep.kappa.median() > 1.5


def test_only_the_variance_of_the_weights_makes_the_deep_kernel_larger() -> None:
    deep = deep_kernels(8, 3, 4, 20_000, variance=1 / 8)
    assert expected_scale(8, 3, 1 / 8) == pytest.approx(3 * 8)  # the wide one's
    assert deep.deviations(3 * 8).abs().max() < 4.5


def test_the_data_of_the_theorem_cannot_have_mean_zero() -> None:
    inputs = orthonormal_inputs(9, 5, torch.Generator().manual_seed(0))
    torch.testing.assert_close(inputs.T @ inputs, torch.eye(5, dtype=torch.float64))
    assert float(inputs.sum(1).square().sum()) == pytest.approx(5)
    with pytest.raises(InvalidInput, match="1 to 9 points"):
        orthonormal_inputs(9, 10, torch.Generator())
    with pytest.raises(InvalidInput, match="two draws"):
        deep_kernels(4, 2, 2, 1)
