"""The problem over random Fourier features of images."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from archray.trainables.data import Dataset
from archray.trainables.feature_maps.classifier import FourierClassifier
from archray.trainables.feature_maps.features import blocks, check_fits, dense_memory, keep, ridge_memory, rows_in_block
from archray.trainables.feature_maps.fourier_features import (
    FourierBases,
    FourierFeatures,
    FourierMap,
    Statistics,
    every_map,
    fourier_memory,
)
from archray.trainables.feature_maps.linear import fit_logistic, fit_svm, signs
from archray.trainables.feature_maps.problem import Assignment, Part, Problem, Solution, Tally
from archray.trainables.feature_maps.ridge import LinearModel, solve_ridge
from archray.trainables.feature_maps.solve_settings import SolveSettings


class FourierProblem(Problem):
    """Fourier features of a data set's images, which lie on the device where all is computed."""

    def __init__(self, data: Dataset, settings: SolveSettings) -> None:
        super().__init__(settings, settings.loss_for("images"), data.train.images.device)
        self.data = data
        self.sizes = (len(data.train), len(data.validation))
        self.test_count, self.classes = len(data.test), data.num_classes
        self.inputs = data.train.images.flatten(1)  # (n, p)
        self.statistics = Statistics.of(self.inputs)

    def check(self, maps: Sequence[FourierMap], dimension: int) -> None:
        points, inputs = self.inputs.shape
        check_fourier_memory(self.settings, points, inputs, self.data.num_classes, dimension)

    def fit(self, maps: Sequence[FourierMap], assignment: Assignment, dimension: int, seed: int) -> FourierSolution:
        settings = self.settings
        bases = FourierBases(self.inputs.shape[1], dimension, seed, settings.bases, self.device)
        features = FourierFeatures(self.inputs, maps, assignment, bases, self.statistics)
        labels = self.data.train.labels[features.order]
        memory = settings.memory_gib - fourier_memory(bases.inputs, dimension, settings.bases)
        begin = time.perf_counter()
        model = self._model(features, labels, memory, seed)
        seconds = time.perf_counter() - begin  # of featurising, too
        return FourierSolution(features.seconds, seconds - features.seconds, model, self, maps, bases)

    def _model(self, features: FourierFeatures, labels: Tensor, memory_gib: float, seed: int) -> LinearModel:
        lam, classes = self.settings.lam, self.data.num_classes
        if self.loss == "ridge":
            targets = signs(labels, classes)
            return solve_ridge(features, targets, lam, gram=self.settings.gram, memory_gib=memory_gib).model
        matrix = keep(features, rows_in_block(features.shape[1])).matrix.double().cpu().numpy()
        if self.loss == "svm":
            model = fit_svm(matrix, labels.cpu().numpy(), classes, lam, seed)
        else:
            model = fit_logistic(matrix, labels.cpu().numpy(), classes, lam)
        return LinearModel(model.weights.to(self.device), model.intercept.to(self.device))


@dataclass(frozen=True)
class FourierSolution(Solution):
    """Weights that the maps share."""

    problem: FourierProblem
    maps: Sequence[FourierMap]
    bases: FourierBases

    def score_assigned(self, assignment: Assignment, tally: Tally, part: Part = "validation") -> None:
        data, statistics = self.problem.data, self.problem.statistics
        split = data.validation if part == "validation" else data.test
        features = FourierFeatures(split.images.flatten(1), self.maps, assignment, self.bases, statistics)
        labels = split.labels[features.order]
        owners = torch.from_numpy(assignment).to(features.device)[features.order]
        for rows in blocks(len(labels), rows_in_block(self.bases.dimension)):
            tally.add(owners[rows], self.model.decisions(features.block(rows)), labels[rows])

    def score_all(self, tally: Tally) -> None:
        validation = self.problem.data.validation
        inputs, at_once = validation.images.flatten(1), rows_in_block(self.bases.dimension)
        for number, rows, features in every_map(inputs, self.maps, self.bases, self.problem.statistics, at_once):
            tally.add(number, self.model.decisions(features), validation.labels[rows])

    def classifier(self) -> FourierClassifier:
        (only,) = self.maps
        return FourierClassifier(only, self.bases, self.problem.statistics, self.model)


def check_fourier_memory(settings: SolveSettings, points: int, inputs: int, classes: int, dimension: int) -> None:
    """Raises: InvalidInput if a solve of so many points with so many inputs does not fit `memory_gib`."""
    own = fourier_memory(inputs, dimension, settings.bases)
    ridge = settings.loss_for("images") == "ridge"
    solver = (ridge_memory if ridge else dense_memory)(points, dimension, classes)
    side = min(points, dimension)
    matrix = f"with a Gram matrix of {side:,} x {side:,}" if ridge else "with all features at once"
    check_fits(own + solver, settings.memory_gib, f"a solve of {points:,} points and {dimension:,} features, {matrix},")
