"""Regularized problems over feature maps: each point has its own map, and all maps share one solution.

A round of Algorithm 1 (Khodak et al. 2020).
"""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from archray.seeds import named_seed
from archray.trainables.data import Dataset, TextDataset
from archray.trainables.devices import cpu_has
from archray.trainables.feature_maps import fourier_features as fourier
from archray.trainables.feature_maps import hashed_ngrams as ngrams
from archray.trainables.feature_maps import linear
from archray.trainables.feature_maps.classifier import Classifier, FourierClassifier, NGramClassifier
from archray.trainables.feature_maps.features import FeatureMap, blocks, keep, rows_in_block
from archray.trainables.feature_maps.ridge import LinearModel, solve_ridge
from archray.trainables.feature_maps.solve_settings import Bases, Loss, SolveSettings

FEW_POINTS = 30  # validation points per candidate; with fewer, a score by assigned points is mostly noise (note W3)

Assignment = np.ndarray[tuple[int], np.dtype[np.int64]]  # of each point to a candidate
Part = Literal["validation", "test"]  # of the data


def assign(points: int, candidates: int, seed: int, part: str) -> Assignment:
    """Assigns a candidate to every point, uniformly and independently.

    part: "train" or "validation", which have separate streams. Returns: (points,) in 0..candidates-1.
    """
    return np.random.default_rng(named_seed(seed, "assignment", part)).integers(candidates, size=points)


def score_all(validation: str, points: int, candidates: int) -> bool:
    """Whether every candidate is scored on every point. validation: as in `SolveSettings`."""
    return validation == "all" or (validation == "auto" and points < FEW_POINTS * candidates)


class Tally:
    """Sums of losses and hits of candidates, point by point."""

    def __init__(self, candidates: int, loss: Loss, device: str | torch.device = "cpu") -> None:
        self._loss = loss
        self._sums = torch.zeros(4, candidates, dtype=torch.float64, device=device)  # loss, hits, clipped, points

    def add(self, candidates: Tensor | int, decisions: Tensor, labels: Tensor) -> None:
        """candidates: (m,) the candidate of each point, or one for all. decisions: (m, K). labels: (m,)."""
        losses = linear.point_losses(decisions, labels, self._loss)
        bounded = linear.point_losses(linear.clipped(decisions), labels, self._loss)
        values = torch.stack([losses, linear.point_hits(decisions, labels), bounded, torch.ones_like(losses)])  # (4, m)
        if isinstance(candidates, int):
            self._sums[:, candidates] += values.sum(1)
        else:
            self._sums.index_add_(1, candidates, values)

    def means(self) -> tuple[list[float], list[float], list[float], list[int]]:
        """Returns the first four attributes of `Solved`."""
        sums, points = self._sums[:3].cpu(), self._sums[3].cpu()
        losses, accuracies, bounded = (sums / points).tolist()
        return losses, accuracies, bounded, [int(count) for count in points]


@dataclass(frozen=True)
class Solved:
    """A solution, scored on the validation points."""

    losses: list[float]  # mean per candidate, in order; NaN for one without a point
    accuracies: list[float]
    clipped: list[float]  # losses of decision values clipped to [-1, 1], bounded by `loss_bound`
    points: list[int]  # number of validation points of each candidate
    seconds_featurize: float  # of the training points
    seconds_solve: float
    seconds_score: float  # of the validation points, including their featurization
    solution: "Solution"
    classifier: Classifier | None  # for a single candidate

    @property
    def seconds(self) -> float:
        return self.seconds_featurize + self.seconds_solve + self.seconds_score

    def scores(self, settings: SolveSettings) -> list[float]:
        """Returns a score per candidate, in order; a candidate without a point gets the worst of the others' scores.

        NaN for an infinite or NaN loss, which makes the accuracy meaningless too.
        """
        values, worst_of = (self.losses, max) if settings.score == "loss" else (self.accuracies, min)
        scores = [v if math.isfinite(loss) else math.nan for v, loss in zip(values, self.losses, strict=True)]
        worst = worst_of((score for score in scores if not math.isnan(score)), default=math.nan)
        return [worst if count == 0 else score for score, count in zip(scores, self.points, strict=True)]


class Tested(NamedTuple):
    """A candidate's result on the test points: means over the points, and their number."""

    loss: float
    accuracy: float
    clipped: float  # as in `Solved`
    points: int


NOT_TESTED = Tested(math.nan, math.nan, math.nan, 0)


class Problem(ABC):
    """Base class: data, and how they are solved. One object serves many solves; a single map's is standalone."""

    def __init__(
        self, data: Dataset | TextDataset, settings: SolveSettings, loss: Loss, device: str | torch.device
    ) -> None:
        self.settings, self.loss, self.device = settings, loss, torch.device(device)
        self.sizes = (len(data.train), len(data.validation))
        self.test_count, self.classes = len(data.test), data.num_classes

    def solve(self, maps: Sequence[FeatureMap], dimension: int, seed: int) -> Solved:
        """Assigns, featurizes, solves and scores maps that `check` has accepted.

        Args:
            seed: Seed of bases, offset or hash, and assignments.

        Raises: SolveFailed for infinite or NaN numbers.
        """
        solution = self.fit(maps, assign(self.sizes[0], len(maps), seed, "train"), dimension, seed)
        start = time.perf_counter()
        tally = Tally(len(maps), self.loss, self.device)
        if len(maps) == 1 or score_all(self.settings.validation, self.sizes[1], len(maps)):
            solution.score_all(tally)
        else:
            solution.score_assigned(assign(self.sizes[1], len(maps), seed, "validation"), tally)
        return Solved(
            *tally.means(),
            seconds_featurize=solution.seconds_featurize,
            seconds_solve=solution.seconds_solve,
            seconds_score=time.perf_counter() - start,
            solution=solution,
            classifier=solution.classifier() if len(maps) == 1 else None,
        )

    def test(self, solved: Solved, candidate: int) -> Tested:
        """Tests a candidate on all test points, with the weights of a solve. candidate: its index in the solve."""
        tally = Tally(len(solved.losses), self.loss, self.device)
        solved.solution.score_assigned(np.full(self.test_count, candidate, dtype=np.int64), tally, "test")
        losses, accuracies, bounded, points = tally.means()
        return Tested(losses[candidate], accuracies[candidate], bounded[candidate], points[candidate])

    @abstractmethod
    def check(self, maps: Sequence[FeatureMap], dimension: int) -> None:
        """Raises: InvalidInput if the data do not support these maps, or the solve does not fit into `memory_gib`."""

    @abstractmethod
    def fit(self, maps: Sequence[FeatureMap], assignment: Assignment, dimension: int, seed: int) -> "Solution":
        """Solves with training point i featurized by map `assignment[i]`."""


@dataclass(frozen=True)
class Solution(ABC):
    """The weights of one solve, and the maps of the solve. seconds_featurize: time for the training points."""

    seconds_featurize: float
    seconds_solve: float
    model: LinearModel  # weights (d, K), intercept (K,)

    @property
    def weight_norm(self) -> float:
        """The Frobenius norm of the weights (d, K), without the intercept."""
        return float(torch.linalg.vector_norm(self.model.weights.double()))

    @abstractmethod
    def score_assigned(self, assignment: Assignment, tally: Tally, part: Part = "validation") -> None:
        """Adds every point of this part of the data to the tally, by its assigned map."""

    @abstractmethod
    def score_all(self, tally: Tally) -> None:
        """Adds every validation point to the tally, by every map."""

    @abstractmethod
    def classifier(self) -> Classifier:
        """Returns the model of the only map."""


# Random Fourier features of images.


class FourierProblem(Problem):
    """Fourier features of a data set's images, on the images' device."""

    def __init__(self, data: Dataset, settings: SolveSettings) -> None:
        super().__init__(data, settings, settings.loss_for("images"), data.train.device)
        self.data = data
        self.inputs = data.train.images.flatten(1)  # (n, p)
        self.statistics = fourier.Statistics.of(self.inputs)

    def check(self, maps: Sequence[FeatureMap], dimension: int) -> None:
        points, inputs = self.inputs.shape
        fourier.check_fourier_memory(self.settings, points, inputs, self.classes, dimension)

    def fit(self, maps: Sequence[FeatureMap], assignment: Assignment, dimension: int, seed: int) -> "FourierSolution":
        settings = self.settings
        bases = fourier.FourierBases(self.inputs.shape[1], dimension, seed, settings.bases, self.device)
        features = fourier.FourierFeatures(self.inputs, maps, assignment, bases, self.statistics)
        labels = self.data.train.labels[features.order]
        memory = settings.memory_gib - fourier.fourier_memory(bases.inputs, dimension, settings.bases)
        start = time.perf_counter()
        model = self._model(features, labels, memory, seed)
        seconds = time.perf_counter() - start  # includes featurization
        return FourierSolution(features.seconds, seconds - features.seconds, model, self, maps, bases)

    def _model(self, features: fourier.FourierFeatures, labels: Tensor, memory_gib: float, seed: int) -> LinearModel:
        lam, classes = self.settings.lam, self.classes
        if self.loss == "ridge":
            targets = linear.signs(labels, classes)
            gram = self.settings.gram
            if gram == "auto":
                gram = "int8" if self.device.type == "cpu" and cpu_has("avx512_vnni", "amx_int8") else "float32"
            return solve_ridge(features, targets, lam, gram=gram, memory_gib=memory_gib).model
        matrix = keep(features, rows_in_block(features.shape[1])).matrix.double().cpu().numpy()
        if self.loss == "svm":
            model = linear.fit_svm(matrix, labels.cpu().numpy(), classes, lam, seed)
        else:
            model = linear.fit_logistic(matrix, labels.cpu().numpy(), classes, lam)
        return LinearModel(model.weights.to(self.device), model.intercept.to(self.device))


@dataclass(frozen=True)
class FourierSolution(Solution):
    """Weights that the maps share."""

    problem: FourierProblem
    maps: Sequence[FeatureMap]
    bases: fourier.FourierBases

    def score_assigned(self, assignment: Assignment, tally: Tally, part: Part = "validation") -> None:
        data, statistics = self.problem.data, self.problem.statistics
        split = data.validation if part == "validation" else data.test
        features = fourier.FourierFeatures(split.images.flatten(1), self.maps, assignment, self.bases, statistics)
        labels = split.labels[features.order]
        owners = torch.from_numpy(assignment).to(features.device)[features.order]
        for rows in blocks(len(labels), rows_in_block(self.bases.dimension)):
            tally.add(owners[rows], self.model.decisions(features.block(rows)), labels[rows])

    def score_all(self, tally: Tally) -> None:
        validation = self.problem.data.validation
        inputs, at_once = validation.images.flatten(1), rows_in_block(self.bases.dimension)
        parts = fourier.every_map(inputs, self.maps, self.bases, self.problem.statistics, at_once)
        for number, rows, features in parts:
            tally.add(number, self.model.decisions(features), validation.labels[rows])

    def classifier(self) -> FourierClassifier:
        (only,) = self.maps
        return FourierClassifier(only, self.bases, self.problem.statistics, self.model)


# Hashed n-grams of texts.


class NGramProblem(Problem):
    """Bags of n-grams of a data set's texts, on the CPU."""

    def __init__(self, data: TextDataset, settings: SolveSettings) -> None:
        super().__init__(data, settings, settings.loss_for("text"), "cpu")
        self.data = data
        self.labels = np.asarray(data.train.labels)

    def check(self, maps: Sequence[FeatureMap], dimension: int) -> None:
        ngrams.check_maps(maps, self.classes)
        ngrams.check_ngram_memory(self.settings, self.sizes[0], self.classes, dimension)

    def fit(self, maps: Sequence[FeatureMap], assignment: Assignment, dimension: int, seed: int) -> "NGramSolution":
        seeds = hash_seeds(len(maps), seed, self.settings.bases)
        start = time.perf_counter()
        corpus = ngrams.corpus_of(self.data.train.texts)
        counts = ngrams.featurize(corpus, np.arange(len(corpus)), maps, assignment, dimension, seeds)
        bin_weights = ngrams.BinWeights.fit(counts, self.labels, self.classes)
        features = ngrams.weighted(counts, maps, assignment, bin_weights)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        model = self._model(features, seed)
        seconds_solve = time.perf_counter() - start
        return NGramSolution(seconds, seconds_solve, model, self.data, maps, seeds, bin_weights)

    def _model(self, features: csr_matrix, seed: int) -> LinearModel:
        lam, classes = self.settings.lam, self.classes
        if self.loss == "ridge":
            return linear.fit_sparse_ridge(features, self.labels, classes, lam, self.settings.memory_gib)
        if self.loss == "svm":
            return linear.fit_svm(features, self.labels, classes, lam, seed)
        return linear.fit_logistic(features, self.labels, classes, lam)


@dataclass(frozen=True)
class NGramSolution(Solution):
    """Weights that the maps share. seeds: of the hash of each map."""

    data: TextDataset
    maps: Sequence[FeatureMap]
    seeds: Sequence[int]
    bin_weights: ngrams.BinWeights

    def score_assigned(self, assignment: Assignment, tally: Tally, part: Part = "validation") -> None:
        corpus, labels = self._points(part)
        dimension = len(self.model.weights)
        counts = ngrams.featurize(corpus, np.arange(len(assignment)), self.maps, assignment, dimension, self.seeds)
        features = ngrams.weighted(counts, self.maps, assignment, self.bin_weights)
        tally.add(torch.from_numpy(assignment), linear.decisions(features, self.model), labels)

    def score_all(self, tally: Tally) -> None:
        corpus, labels = self._points("validation")
        rows = np.arange(len(corpus))
        only = np.zeros(len(rows), dtype=np.int64)
        counts: dict[tuple[object, ...], csr_matrix] = {}
        # Maps with equal counts are grouped, and only the last counts are kept.
        keys = [
            (*(ngram_map[name] for name in ("tokens", "case", "stop_words", "order", "counts")), seed)
            for ngram_map, seed in zip(self.maps, self.seeds, strict=True)
        ]
        for number in sorted(range(len(keys)), key=lambda i: tuple(map(str, keys[i]))):
            maps, key = [self.maps[number]], keys[number]
            if key not in counts:
                dimension = len(self.model.weights)
                counts = {key: ngrams.featurize(corpus, rows, maps, only, dimension, [self.seeds[number]])}
            features = ngrams.weighted(counts[key], maps, only, self.bin_weights)
            tally.add(number, linear.decisions(features, self.model), labels)

    def _points(self, part: Part) -> tuple[ngrams.Corpus, Tensor]:
        split = self.data.validation if part == "validation" else self.data.test
        return ngrams.corpus_of(split.texts), torch.from_numpy(np.asarray(split.labels))

    def classifier(self) -> NGramClassifier:
        (only,), (seed,) = self.maps, self.seeds
        return NGramClassifier(only, seed, self.bin_weights, self.model)


def hash_seeds(maps: int, seed: int, bases: Bases) -> list[int]:
    """Returns the seed of each map's hash: one for all if bases are shared, else one per map."""
    return [named_seed(seed, "hash", *([] if bases == "shared" else [number])) for number in range(maps)]
