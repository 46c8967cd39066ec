"""What a validation set says of the test set, at each of its sizes, and what is selected by it; note U6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor

from archray.trainables.activations.instances import uniform_on_simplex
from archray.trainables.validation_split.split_problem import SplitProblem
from archray.trainables.validation_split.upper_problem import PointLosses, select_best

STARTS = 2  # descents begin at the best of the random architectures, by the points at hand


@dataclass(frozen=True)
class SplitMeasures:
    """Of one problem.

    Attributes:
        rows: by the size of the validation set, a dictionary each, see `by_size`.
        whole: what does not depend on it, see `measure_split`.
    """

    rows: list[dict[str, Any]]
    whole: dict[str, float]


def measure_split(
    problem: SplitProblem, sizes: Sequence[int], *, architectures: int, steps: int, seed: int
) -> SplitMeasures:
    """Compares validation and test over random architectures, and the architectures that they select.

    The validation sets are nested: a smaller one is the first points of the largest. In `whole` are test losses of
    `best` (the least that descent on the test set itself found), `uniform` (all weights equal), `random` (the mean of
    the random architectures), `single` (the best single activation by the test set) and `teacher` (of who made the
    labels; NaN of data), and `training_loss`, the largest training loss of any of them.

    Args:
        sizes: of the validation set, growing. architectures: how many random ones, the uniform point among them.
        steps: of each descent at most.
    """
    h = problem.parameters
    rng = torch.Generator().manual_seed(seed)
    uniform = torch.full((1, h), 1 / h, dtype=torch.float64)
    alphas = torch.cat([uniform, uniform_on_simplex(architectures - 1, h, generator=rng)])
    singles = torch.eye(h, dtype=torch.float64)
    validation = [problem.validation.point_losses(alpha) for alpha in alphas]
    test = [problem.test.point_losses(alpha) for alpha in alphas]
    alone = [problem.validation.point_losses(alpha).losses for alpha in singles]
    alone_test = torch.tensor([problem.test.loss(alpha) for alpha in singles])
    test_losses = torch.stack([one.losses.mean() for one in test])
    rows: list[dict[str, Any]] = []
    for size in sizes:
        losses = torch.stack([one.losses[:size].mean() for one in validation])
        starts = alphas[losses.argsort()[:STARTS]]
        selected = select_best(problem.validation.first(size), starts, steps)
        one = int(torch.stack([each[:size].mean() for each in alone]).argmin())
        rows.append(
            {
                "points": size,
                **_agreement(validation, test, size),
                "selected_validation_loss": selected.loss,
                "selected_test_loss": problem.test.loss(selected.alpha),
                "single_test_loss": float(alone_test[one]),
                "steps": selected.steps,
                "alpha": selected.alpha.tolist(),
            }
        )
    last = torch.tensor(rows[-1]["alpha"], dtype=torch.float64)
    starts = torch.cat([alphas[test_losses.argsort()[:STARTS]], last[None]])
    best = select_best(problem.test, starts, steps)
    whole = {
        "best": best.loss,
        "uniform": float(test_losses[0]),
        "random": float(test_losses.mean()),
        "single": float(alone_test.min()),
        "teacher": float("nan") if problem.teacher is None else problem.test.loss(problem.teacher),
        "training_loss": max(problem.lower.training_loss(alpha) for alpha in alphas),
        "gradient_norm": float(torch.stack([_norm(one.gradients.mean(0)) for one in test]).mean()),
    }
    for row in rows:
        row["excess"] = row["selected_test_loss"] / best.loss - 1
    return SplitMeasures(rows, whole)


def _agreement(validation: Sequence[PointLosses], test: Sequence[PointLosses], size: int) -> dict[str, float]:
    """Of the first `size` validation points with all test points, over architectures: mean and largest distance of
    losses and of hyper-gradients (Euclidean), and Spearman's rho of the losses."""
    pairs = list(zip(validation, test, strict=True))
    losses = torch.stack([torch.stack([v.losses[:size].mean(), t.losses.mean()]) for v, t in pairs])  # (S, 2)
    gaps = (losses[:, 0] - losses[:, 1]).abs()
    distances = torch.stack([_norm(v.gradients[:size].mean(0) - t.gradients.mean(0)) for v, t in pairs])
    return {
        "loss_gap_mean": float(gaps.mean()),
        "loss_gap_sup": float(gaps.max()),
        "gradient_gap_mean": float(distances.mean()),
        "gradient_gap_sup": float(distances.max()),
        "rank_correlation": float(spearmanr(losses[:, 0], losses[:, 1]).statistic),
    }


def _norm(vector: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vector)
