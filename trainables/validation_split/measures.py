"""Agreement of a validation set with the test set by its size, and the points needed per parameter; note U6."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import spearmanr
from torch.linalg import vector_norm

from archray.trainables.activations.instances import uniform_on_simplex
from archray.trainables.validation_split.problem import PointLosses, SplitProblem, select_best

STARTS = 2  # descents, from the best random architectures by the points of the set


class SplitMeasures(NamedTuple):
    """Measures of one problem."""

    rows: list[dict[str, Any]]  # per size of the validation set
    whole: dict[str, float]  # independent of the size


def measure_split(
    problem: SplitProblem, sizes: Sequence[int], *, architectures: int, steps: int, seed: int
) -> SplitMeasures:
    """Compares validation and test over random architectures, and the architectures that they select.

    The validation sets are nested: a smaller one is the first points of the largest. `whole` contains test losses of
    `best` (by descent on the test set itself), `uniform` (all weights equal), `random` (the mean of the random
    architectures), `single` (the best single activation by the test set) and `teacher` (NaN for data), and
    `training_loss`, the largest training loss of any of them.

    Args:
        sizes: Sizes of the validation set, increasing.
        architectures: Number of random architectures, including the uniform point.
        steps: Maximum number of steps of each descent.
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
    test_losses = torch.stack([points.losses.mean() for points in test])
    rows: list[dict[str, Any]] = []
    for size in sizes:
        losses = torch.stack([points.losses[:size].mean() for points in validation])
        starts = alphas[losses.argsort()[:STARTS]]
        selected = select_best(problem.validation.first(size), starts, steps)
        single = int(torch.stack([losses[:size].mean() for losses in alone]).argmin())
        rows.append(
            {
                "points": size,
                **_agreement(validation, test, size),
                "selected_validation_loss": selected.loss,
                "selected_test_loss": problem.test.loss(selected.alpha),
                "single_test_loss": float(alone_test[single]),
                "steps": selected.steps,
            }
        )
    starts = torch.cat([alphas[test_losses.argsort()[:STARTS]], selected.alpha[None]])
    best = select_best(problem.test, starts, steps)
    whole = {
        "best": best.loss,
        "uniform": float(test_losses[0]),
        "random": float(test_losses.mean()),
        "single": float(alone_test.min()),
        "teacher": float("nan") if problem.teacher is None else problem.test.loss(problem.teacher),
        "training_loss": max(problem.lower.training_loss(alpha) for alpha in alphas),
        "gradient_norm": float(torch.stack([vector_norm(points.gradients.mean(0)) for points in test]).mean()),
    }
    for row in rows:
        row["excess"] = row["selected_test_loss"] / best.loss - 1
    return SplitMeasures(rows, whole)


def _agreement(validation: Sequence[PointLosses], test: Sequence[PointLosses], size: int) -> dict[str, float]:
    """Computes the agreement of the first `size` validation points with all test points.

    Over architectures: mean and maximum distance of losses and of hyper-gradients (Euclidean), and Spearman's rho of
    the losses.
    """
    pairs = list(zip(validation, test, strict=True))
    losses = torch.stack([torch.stack([v.losses[:size].mean(), t.losses.mean()]) for v, t in pairs])  # (S, 2)
    gaps = (losses[:, 0] - losses[:, 1]).abs()
    distances = torch.stack([vector_norm(v.gradients[:size].mean(0) - t.gradients.mean(0)) for v, t in pairs])
    return {
        "loss_gap_mean": float(gaps.mean()),
        "loss_gap_sup": float(gaps.max()),
        "gradient_gap_mean": float(distances.mean()),
        "gradient_gap_sup": float(distances.max()),
        "rank_correlation": float(spearmanr(losses[:, 0], losses[:, 1]).statistic),
    }


# Sufficient validation points for a number of architecture parameters, with intervals over seeds.

RESAMPLES = 1000  # of the bootstrap
Array = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Interval(NamedTuple):
    """A value and its middle 90 % over resampled seeds; infinite if the tolerance is never met."""

    value: float
    low: float
    high: float


def crossing(sizes: Sequence[int], excess: Sequence[float] | Array, tolerance: float) -> float:
    """Computes the size from which on a curve stays at or below the tolerance, interpolated linearly in log-log.

    It is the smallest size if the whole curve does; infinity if the curve is above it at the largest size.
    """
    above = [place for place, value in enumerate(excess) if not value <= tolerance]
    if not above:
        return float(sizes[0])
    last = above[-1]
    if last == len(sizes) - 1:
        return math.inf
    high, low = math.log(excess[last]), math.log(max(excess[last + 1], tolerance * 1e-3))
    share = (high - math.log(tolerance)) / (high - low)
    return math.exp(math.log(sizes[last]) + share * math.log(sizes[last + 1] / sizes[last]))


def points_needed(sizes: Sequence[int], excess: Array, tolerance: float, seed: int = 0) -> Interval:
    """Computes the size from which on the median over seeds of the excess, (seeds, sizes), stays in the tolerance."""
    return _bootstrap(lambda rows: crossing(sizes, np.median(rows, axis=0), tolerance), excess, seed)


def growth(sizes: Sequence[int], excess: Mapping[int, Array], tolerance: float, seed: int = 0) -> Interval:
    """Computes the exponent b of points = c h^b, by least squares in log-log, over the numbers h of parameters.

    excess: by h, (seeds, sizes). Numbers h at which the tolerance is never met, or met at the smallest size, give only
    a bound and are left out; NaN with fewer than two others. In theory b <= 1 up to logarithms.
    """
    rng = np.random.default_rng(seed)
    value = _slope(sizes, excess, tolerance)
    resampled = []
    for _ in range(RESAMPLES // 2):
        drawn = {h: of[rng.integers(len(of), size=len(of))] for h, of in excess.items()}
        resampled.append(_slope(sizes, drawn, tolerance))
    return _interval(value, [slope for slope in resampled if not math.isnan(slope)])


def _slope(sizes: Sequence[int], excess: Mapping[int, Array], tolerance: float) -> float:
    pairs = [(h, crossing(sizes, np.median(of, axis=0), tolerance)) for h, of in excess.items()]
    exact = [(math.log(h), math.log(points)) for h, points in pairs if sizes[0] < points < math.inf]
    if len(exact) < 2:
        return math.nan
    x, y = np.array(exact).T
    return float(np.polyfit(x, y, 1)[0])


def decay(sizes: Sequence[float], values: Array, seed: int = 0) -> Interval:
    """Computes the exponent b of value = c points^b for the mean over seeds, values (seeds, sizes); in theory -1/2."""
    return _bootstrap(lambda rows: float(np.polyfit(np.log(sizes), np.log(rows.mean(0)), 1)[0]), values, seed)


def _bootstrap(statistic: Callable[[Array], float], rows: Array, seed: int) -> Interval:
    """Computes the statistic of rows, (seeds, ...), and its interval over resampled rows."""
    drawn = np.random.default_rng(seed).integers(len(rows), size=(RESAMPLES, len(rows)))
    return _interval(statistic(rows), [statistic(rows[chosen]) for chosen in drawn])


def _interval(value: float, resampled: Sequence[float]) -> Interval:
    if not resampled:
        return Interval(value, math.nan, math.nan)
    low, high = np.quantile(np.array(resampled), [0.05, 0.95], method="nearest")
    return Interval(value, float(low), float(high))
