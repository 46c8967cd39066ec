"""The spectral solutions of the upper problem are the limits of gradient ascent, and maxima."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from archray.trainables.validation_split.spectral import (
    KernelAlignment,
    RankOneAlignment,
    cosine,
    feature_metric,
    moment,
)

H, P = 5, 30


def sample_problem(points: int, seed: int, noise: float = 0.1) -> tuple[Tensor, Tensor, Tensor]:
    """Gaussian features (H, n, P), labels (n, 1) alpha^T X w + noise, and alpha."""
    teacher, rng = torch.Generator().manual_seed(0), torch.Generator().manual_seed(seed)
    alpha, w = (torch.nn.functional.normalize(torch.randn(n, generator=teacher).double(), dim=0) for n in (H, P))
    features = torch.randn(H, points, P, generator=rng, dtype=torch.float64)
    y = torch.einsum("h,hnp,p->n", alpha, features, w)
    return features, (y + noise * torch.randn(points, generator=rng, dtype=torch.float64))[:, None], alpha


def mixed_features(features: Tensor) -> Tensor:
    """Features of correlated candidates of different length."""
    return torch.einsum("gh,hnp->gnp", torch.eye(H).double() + 0.5, features) * torch.arange(1, H + 1)[:, None, None]


def test_several_outputs_share_one_architecture() -> None:
    """Their moments add up, and ascent through the points has the same limit."""
    (train, y, _), (validation, v, _) = sample_problem(20, 1), sample_problem(25, 2)
    labels, judged = torch.cat([y, y.flip(0)], 1), torch.cat([v, v.flip(0)], 1)
    problem = RankOneAlignment(train, labels, validation, judged, torch.eye(H).double())
    limit, ascent = problem.ascent(torch.ones(H).double(), 500)
    assert ascent.slope < 1e-8 and (problem.spectral() - limit).abs().max() < 1e-6
    kernels = KernelAlignment(validation @ train.mT, labels, judged)
    assert (kernels.spectral() - kernels.ascent(torch.ones(H).double(), 500)[0]).abs().max() < 1e-6


@pytest.mark.parametrize("correlated", [False, True])
def test_the_eigenvector_is_the_limit_of_gradient_ascent(correlated: bool) -> None:
    (train, y, _), (validation, v, _) = sample_problem(20, 1), sample_problem(25, 2)
    if correlated:
        train, validation = mixed_features(train), mixed_features(validation)
    metric = feature_metric(train) if correlated else torch.eye(H).double()
    problem = RankOneAlignment(train, y, validation, v, metric)
    spectral = problem.spectral()
    for seed in range(3):
        start = torch.randn(H, generator=torch.Generator().manual_seed(seed)).double()
        limit, ascent = problem.ascent(start, 500)
        assert ascent.slope < 1e-8
        assert (spectral - limit).abs().max() < 1e-6 * spectral.abs().max()
    product = moment(validation, v) @ moment(train, y).T
    assert float(spectral @ metric @ spectral) == pytest.approx(1, abs=1e-8)
    assert float(spectral @ product @ spectral) == pytest.approx(ascent.value, rel=1e-9)


def test_more_points_find_the_teacher_with_fewer_training_points_than_features() -> None:
    train, y, alpha = sample_problem(P - 5, 1)
    found = []
    for points in (40, 4000):
        validation, v, _ = sample_problem(points, 2)
        found.append(cosine(RankOneAlignment(train, y, validation, v, torch.eye(H).double()).spectral(), alpha))
    assert found[1] > 0.95 and found[1] > found[0]


def test_training_points_alone_reveal_the_length_of_features_under_random_labels() -> None:
    """The mean of y X X^T y over one set includes the trace of features; between two sets it is 0 on average."""
    alone, split, scale = [], [], torch.tensor([1.0, 1.0, 1.0, 1.0, 4.0]).double()[:, None, None]
    for seed in range(40):
        (train, _, _), (validation, _, _) = sample_problem(25, 2 * seed), sample_problem(25, 2 * seed + 1)
        rng = torch.Generator().manual_seed(seed)
        y, v = (torch.randn(25, 1, generator=rng, dtype=torch.float64) for _ in range(2))
        of_train, of_validation = moment(train * scale, y), moment(validation * scale, v)
        alone.append(float((of_train @ of_train.T)[-1, -1]))
        split.append(float((of_validation @ of_train.T)[-1, -1]))
        single = RankOneAlignment(train * scale, y, train * scale, y, torch.eye(H).double())
        assert single.spectral().abs().argmax() == H - 1
    expected = 16 * P / 25  # |x|^2 / n of the longest candidate
    assert sum(alone) / 40 == pytest.approx(expected, rel=0.2)
    assert abs(sum(split) / 40) < 0.2 * expected


def test_the_kernels_solution_is_the_limit_of_gradient_ascent_and_the_largest_alignment() -> None:
    (train, y, _), (validation, v, _) = sample_problem(20, 1), sample_problem(25, 2)
    train, validation = mixed_features(train), mixed_features(validation)
    problem = KernelAlignment(validation @ train.mT, y, v)
    spectral = problem.spectral()
    limit, ascent = problem.ascent(torch.ones(H).double(), 500)
    assert ascent.slope < 1e-8
    assert (spectral - limit).abs().max() < 1e-6 * spectral.abs().max()

    def aligned(alpha: Tensor) -> float:
        """By the kernel itself: its entries against the products of labels, over its norm."""
        kernel = torch.tensordot(alpha, problem.kernels, 1)
        return float((kernel * (v @ y.T)).sum() / torch.linalg.matrix_norm(kernel))

    best, rng = aligned(spectral), torch.Generator().manual_seed(3)
    assert all(aligned(torch.randn(H, generator=rng).double()) <= best + 1e-9 for _ in range(50))
