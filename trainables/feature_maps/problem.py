"""One regularised problem over feature maps: every point by its own map, one solution for all. Algorithm 1's round."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from archray.seeds import named_seed
from archray.trainables.feature_maps.classifier import Classifier
from archray.trainables.feature_maps.linear import clipped, point_hits, point_losses
from archray.trainables.feature_maps.ridge import LinearModel
from archray.trainables.feature_maps.solve_settings import Loss, SolveSettings

FEW_POINTS = 30  # validation points per candidate; with fewer, a score by assigned points is mostly noise (note W3)

Assignment = np.ndarray[tuple[int], np.dtype[np.int64]]  # of each point to a candidate
FeatureMap = Mapping[str, str | int | float]  # `FeatureMapSpace.configuration` of a string
Part = Literal["validation", "test"]  # of the data


def assign(points: int, candidates: int, seed: int, part: str) -> Assignment:
    """A candidate for every point, uniformly and independently.

    part: "train" or "validation", which have streams of their own. Returns: (points,) in 0..candidates-1.
    """
    return np.random.default_rng(named_seed(seed, "assignment", part)).integers(candidates, size=points)


def score_all(validation: str, points: int, candidates: int) -> bool:
    """Whether every candidate is scored on every point. validation: as in `SolveSettings`."""
    return validation == "all" or (validation == "auto" and points < FEW_POINTS * candidates)


class Means(NamedTuple):
    """Means over the points of each candidate, in their order; NaN for one without points."""

    losses: list[float]
    accuracies: list[float]
    clipped: list[float]  # losses of decision values clipped to [-1, 1], which `loss_bound` bounds
    points: list[int]


class Tally:
    """Losses and hits of candidates, added up point by point. loss: which one."""

    def __init__(self, candidates: int, loss: Loss, device: str | torch.device = "cpu") -> None:
        self._loss = loss
        self._sums = torch.zeros(4, candidates, dtype=torch.float64, device=device)  # loss, hits, clipped, points

    def add(self, candidates: Tensor | int, decisions: Tensor, labels: Tensor) -> None:
        """candidates: (m,) whose point each is, or one number for all. decisions: (m, K). labels: (m,)."""
        losses = point_losses(decisions, labels, self._loss)
        bounded = point_losses(clipped(decisions), labels, self._loss)
        values = torch.stack([losses, point_hits(decisions, labels), bounded, torch.ones_like(losses)])  # (4, m)
        if isinstance(candidates, int):
            self._sums[:, candidates] += values.sum(1)
        else:
            self._sums.index_add_(1, candidates, values)

    def means(self) -> Means:
        sums, points = self._sums[:3].cpu(), self._sums[3].cpu()
        losses, accuracies, bounded = (sums / points).tolist()
        return Means(losses, accuracies, bounded, [int(count) for count in points])


@dataclass(frozen=True)
class Solved:
    """A solution, scored on the validation points."""

    losses: list[float]  # mean per candidate, in their order; NaN for one without a point
    accuracies: list[float]
    clipped: list[float]  # as of `Means`
    points: list[int]  # validation points that each candidate was scored on
    seconds_featurise: float  # of the training points
    seconds_solve: float
    seconds_score: float  # of the validation points, featurised and scored
    solution: Solution
    classifier: Classifier | None  # what was solved for, if there is one candidate

    @property
    def seconds(self) -> float:
        return self.seconds_featurise + self.seconds_solve + self.seconds_score

    def scores(self, settings: SolveSettings) -> list[float]:
        """A score per candidate, in their order; a candidate without a point has the worst of the others'.

        NaN where the loss is not finite: it makes the accuracy meaningless too.
        """
        values, worst_of = (self.losses, max) if settings.score == "loss" else (self.accuracies, min)
        scores = [v if math.isfinite(loss) else math.nan for v, loss in zip(values, self.losses, strict=True)]
        worst = worst_of((score for score in scores if not math.isnan(score)), default=math.nan)
        return [worst if count == 0 else score for score, count in zip(scores, self.points, strict=True)]


class Tested(NamedTuple):
    """A candidate on the test points: means over them, and their number."""

    loss: float
    accuracy: float
    clipped: float  # as of `Means`
    points: int


class Problem(ABC):
    """Data, and how they are solved for; one object serves many solves. One of a single map is its standalone solve."""

    sizes: tuple[int, int]  # training and validation points
    test_count: int  # test points
    classes: int

    def __init__(self, settings: SolveSettings, loss: Loss, device: str | torch.device) -> None:
        self.settings, self.loss, self.device = settings, loss, torch.device(device)

    def solve(self, maps: Sequence[FeatureMap], dimension: int, seed: int) -> Solved:
        """Assigns, featurises, solves and scores maps that `check` has passed.

        seed: of bases, offset or hash, and assignments. Raises: SolveFailed for numbers that are not finite.
        """
        solution = self.fit(maps, assign(self.sizes[0], len(maps), seed, "train"), dimension, seed)
        begin = time.perf_counter()
        tally = Tally(len(maps), self.loss, self.device)
        if len(maps) == 1 or score_all(self.settings.validation, self.sizes[1], len(maps)):
            solution.score_all(tally)
        else:
            solution.score_assigned(assign(self.sizes[1], len(maps), seed, "validation"), tally)
        return Solved(
            *tally.means(),
            seconds_featurise=solution.seconds_featurise,
            seconds_solve=solution.seconds_solve,
            seconds_score=time.perf_counter() - begin,
            solution=solution,
            classifier=solution.classifier() if len(maps) == 1 else None,
        )

    def test(self, solved: Solved, candidate: int) -> Tested:
        """What a candidate comes to on all test points with the weights of a solve, shared ones too.

        candidate: its position among those of the solve.
        """
        tally = Tally(len(solved.losses), self.loss, self.device)
        points = self.test_count
        solved.solution.score_assigned(np.full(points, candidate, dtype=np.int64), tally, "test")
        losses, accuracies, bounded, _ = tally.means()
        return Tested(losses[candidate], accuracies[candidate], bounded[candidate], points)

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
    model: LinearModel  # weights (d, K), intercept (K,)

    @property
    def weight_norm(self) -> float:
        """The Frobenius norm of the weights (d, K), the intercept left out."""
        return float(torch.linalg.vector_norm(self.model.weights.double()))

    @abstractmethod
    def score_assigned(self, assignment: Assignment, tally: Tally, part: Part = "validation") -> None:
        """Tells the tally of every point of this part of the data by the map it is assigned."""

    @abstractmethod
    def score_all(self, tally: Tally) -> None:
        """Tells the tally of every validation point by every map."""

    @abstractmethod
    def classifier(self) -> Classifier:
        """The model of the only map."""
