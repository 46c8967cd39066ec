"""The problem over hashed n-grams of texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from archray.seeds import named_seed
from archray.trainables.data import TextDataset
from archray.trainables.feature_maps.classifier import NGramClassifier
from archray.trainables.feature_maps.features import check_fits, vector_memory
from archray.trainables.feature_maps.hashed_ngrams import (
    BinWeights,
    Corpus,
    NGramMap,
    check_maps,
    corpus_of,
    featurise,
    weighted,
)
from archray.trainables.feature_maps.linear import decisions, fit_logistic, fit_sparse_ridge, fit_svm
from archray.trainables.feature_maps.problem import Assignment, Part, Problem, Solution, Tally
from archray.trainables.feature_maps.ridge import LinearModel
from archray.trainables.feature_maps.solve_settings import Bases, SolveSettings


class NGramProblem(Problem):
    """Bags of n-grams of a data set's texts, on the CPU."""

    def __init__(self, data: TextDataset, settings: SolveSettings) -> None:
        super().__init__(settings, settings.loss_for("text"), "cpu")
        self.data = data
        self.sizes = (len(data.train), len(data.validation))
        self.test_count, self.classes = len(data.test.texts), data.num_classes
        self.labels = np.asarray(data.train.labels)

    def check(self, maps: Sequence[NGramMap], dimension: int) -> None:
        check_maps(maps, self.data.num_classes)
        check_ngram_memory(self.settings, self.sizes[0], self.data.num_classes, dimension)

    def fit(self, maps: Sequence[NGramMap], assignment: Assignment, dimension: int, seed: int) -> NGramSolution:
        seeds = hash_seeds(len(maps), seed, self.settings.bases)
        begin = time.perf_counter()
        corpus = corpus_of(self.data.train.texts)
        counts = featurise(corpus, np.arange(len(corpus)), maps, assignment, dimension, seeds)
        bin_weights = BinWeights.fit(counts, self.labels, self.data.num_classes)
        features = weighted(counts, maps, assignment, bin_weights)
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        model = self._model(features, seed)
        seconds_solve = time.perf_counter() - begin
        return NGramSolution(seconds, seconds_solve, model, self.data, maps, seeds, bin_weights)

    def _model(self, features: csr_matrix, seed: int) -> LinearModel:
        lam, classes = self.settings.lam, self.data.num_classes
        if self.loss == "ridge":
            return fit_sparse_ridge(features, self.labels, classes, lam, self.settings.memory_gib)
        if self.loss == "svm":
            return fit_svm(features, self.labels, classes, lam, seed)
        return fit_logistic(features, self.labels, classes, lam)


@dataclass(frozen=True)
class NGramSolution(Solution):
    """Weights that the maps share. seeds: of the hash of each map."""

    data: TextDataset
    maps: Sequence[NGramMap]
    seeds: Sequence[int]
    bin_weights: BinWeights

    def score_assigned(self, assignment: Assignment, tally: Tally, part: Part = "validation") -> None:
        corpus, labels = self._points(part)
        dimension = len(self.model.weights)
        counts = featurise(corpus, np.arange(len(assignment)), self.maps, assignment, dimension, self.seeds)
        features = weighted(counts, self.maps, assignment, self.bin_weights)
        tally.add(torch.from_numpy(assignment), decisions(features, self.model), labels)

    def score_all(self, tally: Tally) -> None:
        corpus, labels = self._points("validation")
        rows = np.arange(len(corpus))
        only = np.zeros(len(rows), dtype=np.int64)
        counts: dict[tuple[object, ...], csr_matrix] = {}
        # Maps with equal counts follow each other, and only the last counts are held.
        keys = [
            (*(each[name] for name in ("tokens", "case", "stop_words", "order", "counts")), seed)
            for each, seed in zip(self.maps, self.seeds, strict=True)
        ]
        for number in sorted(range(len(keys)), key=lambda i: tuple(map(str, keys[i]))):
            each, key = [self.maps[number]], keys[number]
            if key not in counts:
                dimension = len(self.model.weights)
                counts = {key: featurise(corpus, rows, each, only, dimension, [self.seeds[number]])}
            features = weighted(counts[key], each, only, self.bin_weights)
            tally.add(number, decisions(features, self.model), labels)

    def _points(self, part: Part) -> tuple[Corpus, Tensor]:
        split = self.data.validation if part == "validation" else self.data.test
        return corpus_of(split.texts), torch.from_numpy(np.asarray(split.labels))

    def classifier(self) -> NGramClassifier:
        (only,), (seed,) = self.maps, self.seeds
        return NGramClassifier(only, seed, self.bin_weights, self.model)


def hash_seeds(maps: int, seed: int, bases: Bases) -> list[int]:
    """The seed of each map's hash: one for all if bases are shared, else one per map."""
    return [named_seed(seed, "hash", *([] if bases == "shared" else [number])) for number in range(maps)]


def check_ngram_memory(settings: SolveSettings, points: int, classes: int, dimension: int) -> None:
    """Raises: InvalidInput if the weights alone do not fit `memory_gib`: of sparse features nothing else need be held.

    ridge takes a solver without a Gram matrix where that matrix does not fit.
    """
    needed = vector_memory(points, dimension, classes)
    check_fits(needed, settings.memory_gib, f"the weights of {dimension:,} features and {classes} classes")
