"""One regularised problem over feature maps: every point by its own map, one solution for all. Algorithm 1's round.

With one candidate it is that map's standalone solve.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from archray.seeds import named_seed
from archray.trainables.feature_maps.classifier import Classifier
from archray.trainables.feature_maps.losses import point_hits, point_losses
from archray.trainables.feature_maps.solve_settings import Loss, SolveSettings

FEW_POINTS = 30  # validation points per candidate; with fewer, a score by assigned points is mostly noise (note W3)

Assignment = np.ndarray[tuple[int], np.dtype[np.int64]]  # of each point to a candidate
FeatureMap = Mapping[str, str | int | float]  # `FeatureMapSpace.configuration` of a string
T = TypeVar("T")


def assign(points: int, candidates: int, seed: int, part: str) -> Assignment:
    """A candidate for every point, uniformly and independently.

    part: "train" or "validation", which have streams of their own. Returns: (points,) in 0..candidates-1.
    """
    return np.random.default_rng(named_seed(seed, "assignment", part)).integers(candidates, size=points)


def score_all(validation: str, points: int, candidates: int) -> bool:
    """Whether every candidate is scored on every point. validation: as in `SolveSettings`."""
    return validation == "all" or (validation == "auto" and points < FEW_POINTS * candidates)


class Tally:
    """Losses and hits of candidates, added up point by point. loss: which one."""

    def __init__(self, candidates: int, loss: Loss, device: str | torch.device = "cpu") -> None:
        self._loss = loss
        self._sums = torch.zeros(3, candidates, dtype=torch.float64, device=device)  # loss, hits, points

    def add(self, candidates: Tensor | int, decisions: Tensor, labels: Tensor) -> None:
        """candidates: (m,) whose point each is, or one number for all. decisions: (m, K). labels: (m,)."""
        losses = point_losses(decisions, labels, self._loss)
        values = torch.stack([losses, point_hits(decisions, labels), torch.ones_like(losses)])  # (3, m)
        if isinstance(candidates, int):
            self._sums[:, candidates] += values.sum(1)
        else:
            self._sums.index_add_(1, candidates, values)

    def means(self) -> tuple[list[float], list[float], list[int]]:
        """Mean loss, accuracy and number of points per candidate; NaN for one without points."""
        losses, hits, points = self._sums.cpu()
        return (losses / points).tolist(), (hits / points).tolist(), [int(count) for count in points]


@dataclass(frozen=True)
class Solved:
    """A solution, scored on the validation points.

    Attributes:
        losses, accuracies: mean per candidate, in their order; NaN for one without a point.
        points: validation points that each candidate was scored on.
        seconds_featurise: of the training points. seconds_score: validation points, featurised and scored.
        classifier: what was solved for, if there is one candidate.
    """

    losses: list[float]
    accuracies: list[float]
    points: list[int]
    seconds_featurise: float
    seconds_solve: float
    seconds_score: float
    classifier: Classifier | None

    @property
    def seconds(self) -> float:
        return self.seconds_featurise + self.seconds_solve + self.seconds_score

    def scores(self, settings: SolveSettings) -> list[float]:
        """A score per candidate, in their order; a candidate without a point has the worst of the others'.

        A loss that is not finite is NaN.
        """
        scores = [value if math.isfinite(value) else math.nan for value in self._values(settings)]
        known = [score for score in scores if not math.isnan(score)]
        worst = (max if settings.score == "loss" else min)(known, default=math.nan)
        return [worst if count == 0 else score for score, count in zip(scores, self.points, strict=True)]

    def _values(self, settings: SolveSettings) -> list[float]:
        """A loss that overflows makes the accuracy of its candidate meaningless too."""
        if settings.score == "loss":
            return self.losses
        return [a if math.isfinite(x) else math.nan for a, x in zip(self.accuracies, self.losses, strict=True)]


class Problem(ABC):
    """Data, and how they are solved for; one object serves many solves.

    Attributes:
        sizes: training and validation points.
        test_points, test_labels: as a classifier takes them, and (n,) int64.
    """

    sizes: tuple[int, int]
    test_points: Any
    test_labels: Tensor

    def __init__(self, settings: SolveSettings, loss: Loss, device: str | torch.device) -> None:
        self.settings, self.loss, self.device = settings, loss, torch.device(device)

    def solve(self, maps: Sequence[FeatureMap], dimension: int, seed: int) -> Solved:
        """Assigns, featurises, solves and scores.

        Args:
            maps: the candidates. dimension: features. seed: of bases, offset or hash, and assignments.

        Raises: InvalidInput for what does not fit the memory; SolveFailed for numbers that are not finite.
        """
        solution = self.fit(maps, assign(self.sizes[0], len(maps), seed, "train"), dimension, seed)
        begin = time.perf_counter()
        tally = Tally(len(maps), self.loss, self.device)
        if len(maps) == 1 or score_all(self.settings.validation, self.sizes[1], len(maps)):
            solution.score_all(tally)
        else:
            solution.score_assigned(assign(self.sizes[1], len(maps), seed, "validation"), tally)
        losses, accuracies, points = tally.means()
        return Solved(
            losses,
            accuracies,
            points,
            seconds_featurise=solution.seconds_featurise,
            seconds_solve=solution.seconds_solve,
            seconds_score=time.perf_counter() - begin,
            classifier=solution.classifier() if len(maps) == 1 else None,
        )

    def test(self, classifier: Classifier) -> tuple[float, float]:
        """Mean loss and accuracy on the test points."""
        tally = Tally(1, self.loss, self.device)
        tally.add(0, classifier(self.test_points), self.test_labels)
        (loss,), (accuracy,), _ = tally.means()
        return loss, accuracy

    @abstractmethod
    def check(self, maps: Sequence[FeatureMap], dimension: int) -> None:
        """Raises: InvalidInput if the data cannot have these maps, or the solve does not fit `memory_gib`."""

    @abstractmethod
    def fit(self, maps: Sequence[FeatureMap], assignment: Assignment, dimension: int, seed: int) -> Solution:
        """Solves with training point i featurised by map `assignment[i]`."""


@dataclass(frozen=True)
class Solution(ABC):
    """The weights of one solve, and the maps they were solved for. seconds_featurise: of the training points."""

    seconds_featurise: float
    seconds_solve: float

    @abstractmethod
    def score_assigned(self, assignment: Assignment, tally: Tally) -> None:
        """Tells the tally of every validation point by the map it is assigned."""

    @abstractmethod
    def score_all(self, tally: Tally) -> None:
        """Tells the tally of every validation point by every map."""

    @abstractmethod
    def classifier(self) -> Classifier:
        """The model of the only map."""


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """What `work` returns, and the seconds it took."""
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin
