"""Spectral solutions of the upper problem, and gradient ascent on the same objective; notes U6 and U7.

The paper's abstract announces spectral solutions for low-rank and multiple-kernel problems; note U7 derives the two
forms used here. The lower problem takes one gradient step from zero, so its model is linear in the labels. The upper
problem maximizes the model's alignment with the validation labels, for models with norm 1.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from archray.trainables.activations.instances import uniform_on_simplex
from archray.trainables.validation_split.problem import MultipleKernels, SplitProblem, select_best

Evaluate = Callable[[Tensor], tuple[float, Tensor]]  # the objective at a point (h,), and its gradient

LONGER, SHORTER, ARMIJO = 2.0, 0.25, 1e-4
SHORTEST = 1e-18  # of a step, relative to the point
NEAR = 1e-12  # relative increase of a value that rounding may hide


class Ascent(NamedTuple):
    """The result of ascent on the unit sphere, the baseline of a spectral solution."""

    point: Tensor  # (h,), with norm 1
    value: float
    steps: int
    slope: float  # norm of the gradient along the sphere, relative to the largest gradient so far


def ascend(evaluate: Evaluate, start: Tensor, steps: int, tolerance: float = 1e-9) -> Ascent:
    """Iterates x <- (x + eta g) / |x + eta g|, with g the gradient along the sphere and eta the Barzilai-Borwein step.

    Args:
        start: (h,).
        steps: Maximum number of evaluations of value and gradient.
        tolerance: Stops when |g| is below this times the norm of the whole gradient.
    """
    point = start / torch.linalg.vector_norm(start)
    value, gradient = evaluate(point)
    along = gradient - (gradient @ point) * point
    largest = torch.linalg.vector_norm(gradient)
    eta, taken = 1 / float(largest.clamp_min(SHORTEST)), 0
    while taken < steps and (size := torch.linalg.vector_norm(along)) > tolerance * largest:
        proposal = point + eta * along
        proposal = proposal / torch.linalg.vector_norm(proposal)
        new_value, new_gradient = evaluate(proposal)
        taken += 1
        # Near the maximum, an increase is below the resolution of float64.
        if new_value >= value + ARMIJO * eta * float(size) ** 2 or abs(new_value - value) <= NEAR * abs(value):
            new_along = new_gradient - (new_gradient @ proposal) * proposal
            moved, turned = proposal - point, along - new_along
            curvature = float((moved @ turned).abs())
            eta = float(moved @ moved) / curvature if curvature > 0 else LONGER * eta
            point, value, gradient, along = proposal, new_value, new_gradient, new_along
            largest = torch.maximum(largest, torch.linalg.vector_norm(gradient))
        else:
            eta *= SHORTER
            if eta * float(largest) < SHORTEST:
                break
    return Ascent(point, value, taken, float(torch.linalg.vector_norm(along) / largest))


NUGGET = 1e-10  # relative to the metric's mean diagonal entry; candidates with equal features make it singular


@dataclass(frozen=True)
class RankOneAlignment:
    """f(x) = alpha^T X w, X the (h, p) features of a point. The rank-one matrix alpha w^T is learned.

    One step from w = 0 on the training set gives w(alpha) = M_T^T alpha with M_T = mean of y X, (h, p K). The alignment
    of its predictions with the validation labels is mean y alpha^T X w(alpha) = alpha^T M_V M_T^T alpha. Over
    alpha^T G alpha = 1, G the mean of X X^T (so that features have norm 1 on average), its maximum is the top
    generalized eigenvector of the symmetric part of M_V M_T^T and G.

    Attributes:
        train, validation: Features (h, n, p).
        train_labels, validation_labels: (n, K).
        metric: G, (h, h); `feature_metric` of the training points, or the identity for whitened features.
    """

    train: Tensor
    train_labels: Tensor
    validation: Tensor
    validation_labels: Tensor
    metric: Tensor

    def spectral(self) -> Tensor:
        """Computes alpha, (h,), with alpha^T G alpha = 1, the largest entry positive."""
        product = moment(self.validation, self.validation_labels) @ moment(self.train, self.train_labels).T
        symmetric, whiten = (product + product.T) / 2, _whitening(self.metric)
        vectors = torch.linalg.eigh(whiten.T @ symmetric @ whiten).eigenvectors
        return signed(whiten @ vectors[:, -1])

    def ascent(self, start: Tensor, steps: int, tolerance: float = 1e-9) -> tuple[Tensor, Ascent]:
        """Gradient ascent on the same objective, through the validation points as in a bilevel search.

        start: (h,). Returns: alpha as from `spectral`, and the ascent.
        """
        whiten = _whitening(self.metric)
        of_train = moment(self.train, self.train_labels)  # w(alpha) = of_train^T alpha
        points = self.validation.shape[1]

        def evaluate(beta: Tensor) -> tuple[float, Tensor]:
            alpha = whiten @ beta
            weights = (of_train.T @ alpha).reshape(self.validation.shape[2], -1)  # (p, K)
            by_alpha = ((self.validation @ weights) * self.validation_labels).sum((1, 2))  # y . X w, (h,)
            by_weights = torch.tensordot(alpha, self.validation, 1).T @ self.validation_labels  # d/dw, (p, K)
            gradient = by_alpha + of_train @ by_weights.flatten()
            return float(alpha @ by_alpha) / points, whiten.T @ gradient / points

        ascent = ascend(evaluate, start, steps, tolerance)
        return signed(whiten @ ascent.point), ascent


@dataclass(frozen=True)
class KernelAlignment:
    """K_alpha = sum_i alpha_i K_i. One functional gradient step gives f(x) = mean over train of y_j K_alpha(x, x_j).

    This equals F(x)^T alpha. Its alignment with the validation labels is a^T alpha, a = mean of y F. For |K_alpha| = 1
    between validation and training points in the Frobenius norm (divided by the number of entries), the top generalized
    eigenvector of a a^T and M_ij = <K_i, K_j> is M^-1 a, up to length. Cortes et al. (2012) align kernels in this way;
    here they are not centered, and the kernel is between the two sets instead of within one.

    Attributes:
        kernels: (h, n_V, n_T), K_i between validation and training points.
        train_labels: (n_T, K).
        validation_labels: (n_V, K).
    """

    kernels: Tensor
    train_labels: Tensor
    validation_labels: Tensor

    @property
    def metric(self) -> Tensor:
        """M, (h, h)."""
        flat = self.kernels.flatten(1)
        return flat @ flat.T / flat.shape[1]

    def predictions(self) -> Tensor:
        """Computes F, (h, n_V, K): the predictions of every kernel after one step."""
        return self.kernels @ self.train_labels / len(self.train_labels)

    def spectral(self) -> Tensor:
        """Computes alpha, (h,), with alpha^T M alpha = 1."""
        whiten = _whitening(self.metric)
        direction = whiten.T @ (self.predictions() * self.validation_labels).sum((1, 2))
        return whiten @ (direction / torch.linalg.vector_norm(direction))

    def ascent(self, start: Tensor, steps: int, tolerance: float = 1e-9) -> tuple[Tensor, Ascent]:
        """Gradient ascent on the same objective, through kernel, lower step and validation points at each step."""
        whiten, points = _whitening(self.metric), len(self.validation_labels)

        def evaluate(beta: Tensor) -> tuple[float, Tensor]:
            alpha = whiten @ beta
            predicted = torch.tensordot(alpha, self.kernels, 1) @ self.train_labels / len(self.train_labels)
            gradient = ((self.kernels @ self.train_labels) * self.validation_labels).sum((1, 2))
            value = float((predicted * self.validation_labels).sum()) / points
            return value, whiten.T @ gradient / len(self.train_labels) / points

        ascent = ascend(evaluate, start, steps, tolerance)
        return whiten @ ascent.point, ascent


def moment(features: Tensor, labels: Tensor) -> Tensor:
    """Computes the mean of y X over points: (h, p K). features: (h, n, p). labels: (n, K)."""
    return (features.mT @ labels).flatten(1) / len(labels)


def feature_metric(features: Tensor) -> Tensor:
    """Computes the mean of X X^T over points, features (h, n, p): G, (h, h)."""
    flat = features.flatten(1)
    return flat @ flat.T / features.shape[1]


def cosine(one: Tensor, other: Tensor) -> float:
    """Computes |cos| of the angle between two vectors (h,)."""
    return float((one @ other).abs() / torch.linalg.vector_norm(one) / torch.linalg.vector_norm(other))


def signed(alpha: Tensor) -> Tensor:
    """Returns alpha or -alpha, whichever has a positive largest entry; both are the same model."""
    return alpha * alpha[alpha.abs().argmax()].sign()


def _whitening(metric: Tensor) -> Tensor:
    """Computes W with W^T G W = I."""
    nugget = NUGGET * metric.diagonal().mean() * torch.eye(len(metric), dtype=metric.dtype)
    factor = torch.linalg.cholesky(metric + nugget, upper=True)  # G = R^T R
    return torch.linalg.solve_triangular(factor, torch.eye(len(metric), dtype=metric.dtype), upper=True)


ASCENT_STEPS = 2000
STARTS = 8  # random architectures; descent starts at the best by the points of the set


def _compare(upper: RankOneAlignment | KernelAlignment, start: Tensor) -> tuple[Tensor, dict[str, float]]:
    """Returns the spectral solution, and its `difference` from ascent's limit, with seconds and steps."""
    started = time.perf_counter()
    spectral = upper.spectral()
    between = time.perf_counter()
    limit, ascent = upper.ascent(start, ASCENT_STEPS)
    ended = time.perf_counter()
    return spectral, {
        "difference": float((spectral - limit).abs().max() / spectral.abs().max()),
        "spectral_seconds": between - started,
        "ascent_seconds": ended - between,
        "ascent_steps": ascent.steps,
    }


def measure_spectral(problem: SplitProblem, sizes: Sequence[int], *, steps: int, seed: int) -> list[dict[str, Any]]:
    """Compares the spectral solution of `problem`'s form, the limit of ascent, and descent, per validation set size.

    Each row contains `difference`: the largest difference of any weight between the spectral solution and ascent's
    limit, relative to the largest weight; `spectral_seconds`, `ascent_seconds`, `ascent_steps`; test losses of the
    interpolating models of `spectral`, of `descent` on the validation loss and of `best`, by descent on the test set.
    The spectral solution of kernels is used without its negative weights, whose share of |alpha| is `negative`.
    """
    h = problem.parameters
    rng = torch.Generator().manual_seed(seed)
    starts = torch.cat(
        [torch.full((1, h), 1 / h, dtype=torch.float64), uniform_on_simplex(STARTS - 1, h, generator=rng)]
    )
    start = torch.randn(h, generator=rng, dtype=torch.float64)
    lower = problem.lower
    kernels = isinstance(lower, MultipleKernels)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        points = problem.validation.first(size)
        upper: RankOneAlignment | KernelAlignment
        if kernels:
            upper = KernelAlignment(points.representation, lower.labels, points.labels)
        else:
            features, metric = points.representation, feature_metric(lower.train)
            upper = RankOneAlignment(lower.train, lower.labels, features, points.labels, metric)
        spectral, comparison = _compare(upper, start)
        negative = float((-spectral).clamp_min(0).sum() / spectral.abs().sum()) if kernels else 0.0
        usable = spectral.clamp_min(0) if kernels else spectral  # a kernel has no negative weight
        scale = usable.abs().sum()
        begins = starts[torch.tensor([points.loss(alpha) for alpha in starts]).argsort()[:1]]
        descent = select_best(points, begins, steps)
        rows.append(
            {
                "points": size,
                **comparison,
                "negative": negative,
                "spectral": problem.test.loss(usable / scale) if scale > 0 else float("nan"),
                "descent": problem.test.loss(descent.alpha),
            }
        )
    tested = torch.tensor([problem.test.loss(alpha) for alpha in starts])
    best = select_best(problem.test, torch.stack([starts[int(tested.argmin())], descent.alpha]), steps)
    return [{**row, "best": best.loss} for row in rows]


def measure_rank_one(
    sizes: Sequence[int], *, parameters: int, dimension: int, train: int, noise: float, seed: int
) -> list[dict[str, Any]]:
    """Measures the low-rank form on Gaussian features: y = alpha*^T X w* + noise, X (h, p) standard normal.

    alpha* and w* are unit vectors.

    A row per size of the validation set contains `difference`, seconds and steps as in `measure_spectral`; `cosine` of
    the spectral solution with alpha*, and `cosine_single`, from the training points only.
    """
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    alpha, w = (torch.nn.functional.normalize(normal(n), dim=0) for n in (parameters, dimension))

    def draw(points: int) -> tuple[Tensor, Tensor]:
        features = normal(parameters, points, dimension)
        return features, (torch.tensordot(alpha, features, 1) @ w + noise * normal(points))[:, None]

    (features, y), (held_out, v), start = draw(train), draw(sizes[-1]), normal(parameters)
    metric = torch.eye(parameters, dtype=torch.float64)
    alone = cosine(RankOneAlignment(features, y, features, y, metric).spectral(), alpha)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        upper = RankOneAlignment(features, y, held_out[:, :size].contiguous(), v[:size], metric)
        spectral, comparison = _compare(upper, start)
        rows.append({"points": size, **comparison, "cosine": cosine(spectral, alpha), "cosine_single": alone})
    return rows
