"""Interpolating models, their hyper-gradients, descent on the simplex, and the measures of a validation set."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from archray.errors import InvalidInput
from archray.trainables.activations.instances import uniform_on_simplex
from archray.trainables.activations.two_layer import get_activations
from archray.trainables.validation_split.measures import crossing, decay, growth, measure_split, points_needed
from archray.trainables.validation_split.problem import (
    FORMS,
    Points,
    RandomFeatures,
    SplitProblem,
    data_problem,
    feature_dimension,
    select,
    simplex_quadratic,
    teacher_problem,
)
from archray.trainables.validation_split.settings import SplitSettings

NAMES = ("relu", "cos", "tanh")
SIZES = (12, 60, 80)


def problem(form: str = "activation", **options: object) -> SplitProblem:
    values = {"inputs": 4, "width": 40, "sizes": SIZES, "seed": 3} | options
    seed = values.pop("seed")
    return teacher_problem(get_activations(NAMES), settings_of(**values), form, seed)  # type: ignore[arg-type]


def settings_of(sizes: tuple[int, int, int], **options: object) -> SplitSettings:
    train, validation, test = sizes
    values = {"teacher": "sparse", "noise": 0.1, "train_size": train, "test_size": test} | options
    return SplitSettings(validation_sizes=(2, validation), **values)  # type: ignore[arg-type]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("form", FORMS)
def test_models_are_the_least_norm_solutions_of_their_features(form: str) -> None:
    """Compared with NumPy's pseudo-inverse of the features, concatenated or added."""
    rng = seeded()
    train, points = (torch.randn(3, n, 20, generator=rng, dtype=torch.float64) for n in (8, 5))
    labels = torch.randn(8, 2, generator=rng, dtype=torch.float64)
    alpha = uniform_on_simplex(3, generator=rng)
    lower = FORMS[form](train, labels)

    def phi(psi: torch.Tensor) -> np.ndarray:
        if form == "activation":
            return torch.tensordot(alpha, psi, 1).numpy()
        return torch.cat([alpha[i].sqrt() * psi[i] for i in range(3)], 1).numpy()

    expected = phi(points) @ np.linalg.pinv(phi(train)) @ labels.numpy()
    np.testing.assert_allclose(lower.predict(alpha, lower.represent(points)).values.numpy(), expected, rtol=1e-9)
    assert lower.training_loss(alpha) < 1e-20


@pytest.mark.parametrize("form", FORMS)
def test_the_hyper_gradient_is_the_derivative_through_the_solution(form: str) -> None:
    """Compared with central differences of the loss, with the lower problem solved again."""
    one = problem(form)
    alpha = uniform_on_simplex(3, generator=seeded(1))
    gradient = one.validation.point_losses(alpha).gradients.mean(0)
    step = 1e-5
    numerical = [
        (one.validation.loss(alpha + step * unit) - one.validation.loss(alpha - step * unit)) / (2 * step)
        for unit in torch.eye(3, dtype=torch.float64)
    ]
    np.testing.assert_allclose(gradient.numpy(), numerical, rtol=1e-5)
    loss, same, curvature = one.validation.second_order(alpha)
    assert loss == pytest.approx(one.validation.loss(alpha))
    np.testing.assert_allclose(same.numpy(), gradient.numpy(), rtol=1e-9)
    assert torch.linalg.eigvalsh(curvature).min() > -1e-12


def test_a_superposed_activation_is_invariant_to_the_length_of_alpha() -> None:
    """Without a ridge f does not change with it, so the hyper-gradient is orthogonal to alpha."""
    one = problem(ridge=0.0)
    alpha = uniform_on_simplex(3, generator=seeded(2))
    gradient = one.test.point_losses(alpha).gradients.mean(0)
    assert abs(gradient @ alpha) < 1e-6 * gradient.norm() * alpha.norm()
    assert one.test.loss(2 * alpha) == pytest.approx(one.test.loss(alpha), rel=1e-6)


def test_tangent_features_are_the_gradients_of_the_network() -> None:
    rng = seeded()
    activations = get_activations(("tanh", "sin"))
    features = RandomFeatures(activations, 3, 5, "both", rng)
    x = torch.randn(4, 3, generator=rng, dtype=torch.float64)
    psi = features(x)
    assert psi.shape == (2, 4, 20) and feature_dimension(5, 3, "both") == 20
    first, signs = features.first.clone().requires_grad_(), features.signs.clone().requires_grad_()
    for number, activation in enumerate(activations):
        output = activation(first @ x[0]) @ signs / math.sqrt(5)
        by_signs, by_first = torch.autograd.grad(output, (signs, first))
        np.testing.assert_allclose(psi[number, 0].numpy(), torch.cat([by_signs, by_first.flatten()]).numpy(), rtol=1e-9)
    assert features.fit(x)(x).square().sum(-1).mean(-1).tolist() == pytest.approx([1, 1])


def test_the_quadratic_on_the_simplex_has_no_better_point() -> None:
    rng = seeded()
    half = torch.randn(4, 4, generator=rng, dtype=torch.float64)
    matrix, gradient = half @ half.T + 0.1 * torch.eye(4), torch.randn(4, generator=rng, dtype=torch.float64)
    center = uniform_on_simplex(4, generator=rng)
    best = simplex_quadratic(matrix, gradient, center)
    slope = gradient + matrix @ (best - center)
    assert best.min() >= 0 and best.sum() == pytest.approx(1)
    assert best @ slope - slope.min() < 1e-6  # Frank and Wolfe's gap


@pytest.mark.parametrize("form", FORMS)
def test_descent_stops_where_no_direction_of_the_simplex_descends(form: str) -> None:
    one = problem(form)
    start = torch.full((3,), 1 / 3, dtype=torch.float64)
    found = select(one.validation, start, 200)
    assert found.loss <= one.validation.loss(start)
    assert found.gap <= 1e-5 * found.loss
    assert found.alpha.min() >= 0 and found.alpha.sum() == pytest.approx(1)


def test_more_validation_points_predict_the_test_set_better_and_training_points_do_not() -> None:
    sizes = (10, 250)
    gaps, ranks = [], []
    for seed in range(3):
        one = problem(sizes=(12, 250, 400), seed=seed, noise=0.1)
        measures = measure_split(one, sizes, architectures=8, steps=40, seed=seed)
        assert measures.whole["training_loss"] < 1e-6 < measures.whole["best"] <= measures.whole["uniform"] + 1e-12
        gaps.append([[row["loss_gap_mean"], row["gradient_gap_mean"]] for row in measures.rows])
        ranks.append([row["rank_correlation"] for row in measures.rows])
    small, large = np.mean(gaps, axis=0)
    assert (large < small).all()
    assert np.mean(ranks, axis=0)[1] > 0.8


def test_data_have_no_repeated_points_and_raise_an_error_if_they_do_not_suffice() -> None:
    pool = Points(torch.arange(40.0).double()[:, None] * torch.ones(1, 2), torch.ones(40, 1).double())

    def drawn(sizes: tuple[int, int, int]) -> SplitProblem:
        settings = settings_of(sizes, width=30, ridge=1e-3)
        return data_problem(get_activations(NAMES), settings, pool, pool, "activation")

    one = drawn((10, 20, 40))
    assert (one.parameters, len(one.validation), len(one.test)) == (3, 20, 40)
    with pytest.raises(InvalidInput, match="got 40 points for both"):
        drawn((10, 31, 40))
    with pytest.raises(InvalidInput, match="expected 41 test points, got 40 points"):
        drawn((10, 20, 41))


def test_a_kernel_that_cannot_fit_the_labels_raises_an_error() -> None:
    settings = settings_of(SIZES, inputs=3, width=40, ridge=0.0)
    one = teacher_problem(get_activations(("identity", "relu")), settings, "activation")
    with pytest.raises(InvalidInput, match="got a singular kernel"):
        one.lower.predict(torch.tensor([1.0, 0.0]).double(), one.test.representation)


def test_the_crossing_is_where_a_curve_stays_below_the_tolerance() -> None:
    sizes = (10, 100, 1000)
    assert crossing(sizes, [1.0, 0.1, 0.01], 0.1) == pytest.approx(100)
    assert crossing(sizes, [1.0, 0.01, 0.001], 0.1) == pytest.approx(10**1.5)
    assert crossing(sizes, [0.01, 1.0, 0.01], 0.1) > 100
    assert crossing(sizes, [0.0, 0.0, 0.0], 0.1) == 10
    assert math.isinf(crossing(sizes, [1.0, 0.1, 0.5], 0.2))


def test_exponents_equal_those_of_the_law_of_the_curves() -> None:
    sizes = (8, 16, 32, 64, 128, 256, 512, 1024)
    noise = np.random.default_rng(0).lognormal(sigma=0.05, size=(6, len(sizes)))
    curves = {h: 2 * h / np.array(sizes) * noise for h in (2, 4, 8)}
    exponent = growth(sizes, curves, 0.1)
    assert exponent.low <= exponent.value <= exponent.high and exponent.value == pytest.approx(1, abs=0.1)
    assert points_needed(sizes, curves[4], 0.1).value == pytest.approx(80, rel=0.2)
    assert decay(sizes, curves[4]).value == pytest.approx(-1, abs=0.1)
    assert math.isnan(growth(sizes, {2: curves[2]}, 0.1).value)
