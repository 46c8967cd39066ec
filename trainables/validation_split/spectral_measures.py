"""The spectral solution of the upper problem beside gradient ascent and beside descent on the validation loss."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from archray.trainables.activations.instances import uniform_on_simplex
from archray.trainables.validation_split.interpolation import MultipleKernels
from archray.trainables.validation_split.spectral import (
    KernelAlignment,
    RankOneAlignment,
    cosine,
    feature_metric,
    single_set,
)
from archray.trainables.validation_split.split_problem import SplitProblem
from archray.trainables.validation_split.upper_problem import select_best

ASCENT_STEPS = 2000
STARTS = 8  # random architectures, of which the best by the points at hand is where descent begins


def measure_spectral(problem: SplitProblem, sizes: Sequence[int], *, steps: int, seed: int) -> list[dict[str, Any]]:
    """A row per size of the validation set: the spectral solution of `problem`'s form, the limit of ascent, descent.

    `difference`: the largest of any weight, between the spectral solution and ascent's limit, relative to the largest
    weight. `spectral_seconds`, `ascent_seconds`, `ascent_steps`. Test losses of the interpolating models of
    `spectral`, of the `descent` on the validation loss and, of descent on the test set, `best`; the spectral one of
    kernels without its negative weights, whose share of |alpha| is `negative`.
    """
    h = problem.parameters
    rng = torch.Generator().manual_seed(seed)
    starts = torch.cat(
        [torch.full((1, h), 1 / h, dtype=torch.float64), uniform_on_simplex(STARTS - 1, h, generator=rng)]
    )
    begin = torch.randn(h, generator=rng, dtype=torch.float64)
    kernels = isinstance(problem.lower, MultipleKernels)
    rows: list[dict[str, Any]] = []
    for size in sizes:
        points = problem.validation.first(size)
        upper = _upper_problem(problem, size)
        started = time.perf_counter()
        spectral = upper.spectral()
        between = time.perf_counter()
        limit, ascent = upper.ascent(begin, ASCENT_STEPS)
        ended = time.perf_counter()
        negative = float((-spectral).clamp_min(0).sum() / spectral.abs().sum()) if kernels else 0.0
        usable = spectral.clamp_min(0) if kernels else spectral  # a kernel has no negative weight
        scale = usable.abs().sum()
        begins = starts[torch.tensor([points.loss(alpha) for alpha in starts]).argsort()[:1]]
        descent = select_best(points, begins, steps)
        rows.append(
            {
                "points": size,
                "difference": float((spectral - limit).abs().max() / spectral.abs().max()),
                "spectral_seconds": between - started,
                "ascent_seconds": ended - between,
                "ascent_steps": ascent.steps,
                "negative": negative,
                "spectral": problem.test.loss(usable / scale) if scale > 0 else float("nan"),
                "descent": problem.test.loss(descent.alpha),
                "alpha": descent.alpha,
            }
        )
    tested = torch.tensor([problem.test.loss(alpha) for alpha in starts])
    best = select_best(problem.test, torch.stack([starts[int(tested.argmin())], rows[-1]["alpha"]]), steps)
    return [{**{k: v for k, v in row.items() if k != "alpha"}, "best": best.loss} for row in rows]


def _upper_problem(problem: SplitProblem, size: int) -> RankOneAlignment | KernelAlignment:
    """Of the first `size` validation points."""
    lower, points = problem.lower, problem.validation.first(size)
    if isinstance(lower, MultipleKernels):
        return KernelAlignment(points.seen, lower.labels, points.labels)
    return RankOneAlignment(lower.train, lower.labels, points.seen, points.labels, feature_metric(lower.train))


def measure_rank_one(
    sizes: Sequence[int], *, parameters: int, dimension: int, train: int, noise: float, seed: int
) -> list[dict[str, Any]]:
    """The low-rank form on Gaussian features: y = alpha*^T X w* + noise, X (h, p) standard normal, unit alpha*, w*.

    A row per size of the validation set: `difference`, seconds and steps as in `measure_spectral`; `cosine` of the
    spectral solution with alpha*, and `cosine_single`, without validation points, by the training points alone.
    """
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    alpha, w = (torch.nn.functional.normalize(normal(n), dim=0) for n in (parameters, dimension))

    def draw(points: int) -> tuple[Tensor, Tensor]:
        features = normal(parameters, points, dimension)
        return features, (torch.tensordot(alpha, features, 1) @ w + noise * normal(points))[:, None]

    (features, y), (held_out, v), begin = draw(train), draw(sizes[-1]), normal(parameters)
    metric = torch.eye(parameters, dtype=torch.float64)
    alone = cosine(single_set(features, y, metric), alpha)
    rows = []
    for size in sizes:
        upper = RankOneAlignment(features, y, held_out[:, :size].contiguous(), v[:size], metric)
        started = time.perf_counter()
        spectral = upper.spectral()
        between = time.perf_counter()
        limit, ascent = upper.ascent(begin, ASCENT_STEPS)
        rows.append(
            {
                "points": size,
                "difference": float((spectral - limit).abs().max() / spectral.abs().max()),
                "spectral_seconds": between - started,
                "ascent_seconds": time.perf_counter() - between,
                "ascent_steps": ascent.steps,
                "cosine": cosine(spectral, alpha),
                "cosine_single": alone,
            }
        )
    return rows
