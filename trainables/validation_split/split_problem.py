"""A problem of training, validation and test points, seen through the features of h candidates; note U6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from archray.errors import InvalidInput
from archray.plurals import count
from archray.trainables.activations.activation_functions import Activation
from archray.trainables.activations.instances import uniform_on_simplex
from archray.trainables.validation_split.interpolation import FORMS, Form, Interpolation
from archray.trainables.validation_split.random_features import Layers, RandomFeatures
from archray.trainables.validation_split.upper_problem import PointSet

Teacher = Literal["sparse", "dense"]
SPARSE = 2  # candidates that a sparse teacher has, the first ones


@dataclass(frozen=True)
class Points:
    """Inputs (n, d), of mean square about 1 in each coordinate, and labels (n, K), both float64."""

    inputs: Tensor
    labels: Tensor


@dataclass(frozen=True)
class SplitProblem:
    """The models of all architectures over the training points, and what they are judged on."""

    lower: Interpolation
    validation: PointSet
    test: PointSet
    teacher: Tensor | None = None  # (h,): the architecture that made the labels, where one did

    @property
    def parameters(self) -> int:
        """h, of the architecture."""
        return len(self.lower.train)


def teacher_problem(
    activations: Sequence[Activation],
    *,
    inputs: int,
    width: int,
    layers: Layers = "output",
    form: Form = "activation",
    sizes: tuple[int, int, int],
    teacher: Teacher = "sparse",
    noise: float = 0.1,
    ridge: float = 0.0,
    seed: int = 0,
) -> SplitProblem:
    """Gaussian inputs, labels by an architecture alpha* of the candidates' own: a draw of its Gaussian process.

    y = phi_alpha*(x) w + noise, w standard normal, scaled so that y without noise has variance 1. With the kernel of
    alpha* the interpolation is what a Gaussian process with the true covariance predicts from labels without noise, so
    no architecture has a smaller expected test loss. A sparse alpha* is uniform on the first two candidates, a dense
    one is uniform on the simplex.

    Args:
        inputs: d. width: see `RandomFeatures`. sizes: of training, validation and test set.
        noise: standard deviation of the labels' noise. ridge: see `Interpolation`.
    """
    rng = torch.Generator().manual_seed(seed)
    h, points = len(activations), sum(sizes)
    x = torch.randn(points, inputs, generator=rng, dtype=torch.float64)
    features = RandomFeatures(activations, inputs, width, layers, rng)
    psi = features.fit(x[: sizes[0]])(x)  # (h, n, p)
    alpha = _teacher(teacher, h, rng)
    if form == "activation":
        y = torch.tensordot(alpha, psi, 1) @ torch.randn(psi.shape[2], generator=rng, dtype=torch.float64)
    else:  # features beside each other, each with weights of its own
        weights = torch.randn(h, psi.shape[2], 1, generator=rng, dtype=torch.float64)
        y = torch.tensordot(alpha.sqrt(), (psi @ weights)[:, :, 0], 1)
    y = y / y.std() + noise * torch.randn(points, generator=rng, dtype=torch.float64)
    return _problem(psi, y[:, None], sizes, form, ridge, alpha)


def data_problem(
    activations: Sequence[Activation],
    pool: Points,
    test: Points,
    *,
    width: int,
    layers: Layers = "output",
    form: Form = "activation",
    sizes: tuple[int, int, int],
    ridge: float = 0.0,
    seed: int = 0,
) -> SplitProblem:
    """Training and validation points drawn from `pool`, test points from `test`; `sizes` of the three.

    Raises: InvalidInput where the data hold fewer.
    """
    rng = torch.Generator().manual_seed(seed)
    train, validation, tested = sizes
    check_points(len(pool.labels), len(test.labels), sizes)
    own = torch.randperm(len(pool.labels), generator=rng)[: train + validation]
    others = torch.randperm(len(test.labels), generator=rng)[:tested]
    x = torch.cat([pool.inputs[own], test.inputs[others]])
    y = torch.cat([pool.labels[own], test.labels[others]])
    features = RandomFeatures(activations, x.shape[1], width, layers, rng)
    return _problem(features.fit(x[:train])(x), y, sizes, form, ridge, None)


def check_points(pool: int, test: int, sizes: tuple[int, int, int]) -> None:
    """Whether data with so many points hold `sizes` of training, validation and test points. Raises: InvalidInput."""
    train, validation, tested = sizes
    if train + validation > pool:
        raise InvalidInput(
            f"the data have {count(pool, 'point')} to train and validate on, expected {train} for training and up to "
            f"{validation} for validation; lower the largest of validation_sizes to {max(0, pool - train)} or less, or "
            "train_size"
        )
    if tested > test:
        raise InvalidInput(f"the data have {count(test, 'test point')}, expected {tested}; set test_size to {test}")


def points_of(images: Tensor, labels: Tensor, classes: int, mean: Tensor, scale: Tensor) -> Points:
    """Images (n, ...) as points, one class against the rest: labels +1 and -1, K = `classes`, 1 output of two classes.

    mean: (d,), subtracted. scale: divided by; both of the pool, see `input_scale`.
    """
    x = (images.flatten(1).double() - mean) / scale
    if classes == 2:
        return Points(x, labels.double()[:, None] * 2 - 1)
    return Points(x, torch.nn.functional.one_hot(labels, classes).double() * 2 - 1)


def input_scale(images: Tensor) -> tuple[Tensor, Tensor]:
    """The mean point (d,) and the one number after which coordinates have mean square 1."""
    x = images.flatten(1).double()
    mean = x.mean(0)
    return mean, (x - mean).square().mean().sqrt()


def _problem(
    psi: Tensor, y: Tensor, sizes: tuple[int, int, int], form: Form, ridge: float, teacher: Tensor | None
) -> SplitProblem:
    train, validation, _ = sizes
    lower = FORMS[form](psi[:, :train].contiguous(), y[:train], ridge)
    parts = (slice(train, train + validation), slice(train + validation, None))
    held_out, test = (PointSet(lower, lower.seen(psi[:, part]), y[part]) for part in parts)
    return SplitProblem(lower, held_out, test, teacher)


def _teacher(kind: Teacher, h: int, rng: torch.Generator) -> Tensor:
    if kind == "dense":
        return uniform_on_simplex(h, generator=rng)
    chosen = min(SPARSE, h)
    return torch.cat([torch.full((chosen,), 1 / chosen), torch.zeros(h - chosen)]).double()
