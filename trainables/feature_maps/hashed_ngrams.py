"""Hashed bags of n-grams, every text by its own map. Khodak et al. 2020, appendix B.2.2; notes W2 and W8.

A map is a configuration of the space `ngrams`, decoded. Featurising goes in two steps, because Naive-Bayes and SIF
weights are those of bins that all training texts share: `featurise` counts, `BinWeights.fit` adds up the counts of the
training texts, `weighted` applies each map's weights and scale. Bins get counts, not signed counts, as both weights
need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from archray.errors import InvalidInput
from archray.trainables.feature_maps.tokens import Corpus, mixed

NGramMap: TypeAlias = Mapping[str, str | int | float]  # `NGrams.configuration` of a string
Integers: TypeAlias = npt.NDArray[np.integer]
Vector: TypeAlias = npt.NDArray[np.float64]

_TOKEN_DECISIONS = ("tokens", "stop_words", "case", "order")


def check_maps(maps: Sequence[NGramMap], num_classes: int) -> None:
    """Raises: InvalidInput if a map has Naive-Bayes weights and there are other than two classes (note W8)."""
    if num_classes != 2 and any(each["weights"] == "naive-bayes" for each in maps):
        raise InvalidInput(
            f"expected two classes for Naive-Bayes weights, got {num_classes}; choose two libraries "
            "(docstrings:numpy,torch), or candidates with weights=none or sif"
        )


def featurise(
    corpus: Corpus,
    rows: Integers,
    maps: Sequence[NGramMap],
    assignment: Integers,
    dimension: int,
    seeds: Sequence[int],
) -> csr_matrix:
    """Counts of n-grams in hashed bins, each text by the map assigned to it; no weights, no scale yet.

    Args:
        rows: (m,) which texts of the corpus.
        maps: the candidates.
        assignment: (m,) index into `maps` per text.
        dimension: number of bins.
        seeds: one per map; maps of different seeds hash the same n-gram to unrelated bins.

    Returns: (m, dimension) float64; ones where the map says counts=binary.
    """
    keys = [tuple(each[name] for name in _TOKEN_DECISIONS) for each in maps]
    distinct = list(dict.fromkeys(keys))
    group = np.array([distinct.index(key) for key in keys])[assignment]  # (m,)
    salts = mixed(np.array(seeds, dtype=np.uint64), np.uint64(1))[assignment]  # (m,)
    places: list[npt.NDArray[np.int64]] = []
    bins: list[npt.NDArray[np.int64]] = []
    for number, (tokens, stop_words, case, order) in enumerate(distinct):
        members = np.flatnonzero(group == number)
        hashes, owners = corpus.ngrams(rows[members], str(tokens), str(stop_words), str(case), int(order))
        place = members[owners]
        places.append(place)
        bins.append((mixed(hashes, salts[place]) % np.uint64(dimension)).astype(np.int64))
    row, column = np.concatenate(places), np.concatenate(bins)
    counts = csr_matrix((np.ones(len(row)), (row, column)), shape=(len(rows), dimension))  # adds up what coincides
    binary = np.array([each["counts"] == "binary" for each in maps])[assignment]
    counts.data[np.repeat(binary, np.diff(counts.indptr))] = 1.0
    return counts


@dataclass(frozen=True)
class BinWeights:
    """What the weights of the bins are computed from: the training texts' counts, each by its own map, added up.

    Attributes:
        total: (dimension,) over all training texts.
        positive: (dimension,) over those of class 1; None if there are other than two classes.
    """

    total: Vector
    positive: Vector | None

    @classmethod
    def fit(cls, counts: csr_matrix, labels: Integers, num_classes: int) -> BinWeights:
        """Adds up the counts (n, dimension) of all training texts, whose labels (n,) are 0..num_classes-1."""
        total = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()
        if num_classes != 2:
            return cls(total, None)
        return cls(total, np.asarray(counts[labels == 1].sum(axis=0), dtype=np.float64).ravel())

    def naive_bayes(self, bins: Integers, alpha: Vector) -> Vector:
        """log of (alpha + p_b) / |alpha + p|_1 over (alpha + q_b) / |alpha + q|_1 (Wang and Manning 2012).

        p and q are the counts of classes 1 and 0. bins, alpha: (k,), one pair per weight. Raises: InvalidInput if
        there are other than two classes.
        """
        if self.positive is None:
            raise InvalidInput("Naive-Bayes weights need two classes; choose candidates with weights=none or sif")
        p, q = self.positive, self.total - self.positive
        norms = np.log((alpha * len(q) + q.sum()) / (alpha * len(p) + p.sum()))
        return np.log((alpha + p[bins]) / (alpha + q[bins])) + norms

    def sif(self, bins: Integers, alpha: Vector) -> Vector:
        """alpha / (alpha + frequency of the bin among all counts) (Arora et al. 2017). bins, alpha: (k,)."""
        frequency = self.total[bins] / max(float(self.total.sum()), 1.0)  # without any count every frequency is 0
        return alpha / (alpha + frequency)


def weighted(counts: csr_matrix, maps: Sequence[NGramMap], assignment: Integers, bin_weights: BinWeights) -> csr_matrix:
    """The features: counts (m, dimension) weighted and scaled as each text's map says.

    scale=average divides a text's features by the sum of its counts, normalise gives them length 1; a text without
    any stays zero. Raises: InvalidInput for Naive-Bayes weights with other than two classes.
    """
    per_row = np.diff(counts.indptr)
    owner = np.repeat(np.arange(counts.shape[0]), per_row)  # (nnz,) the row of each entry
    data = counts.data.astype(np.float64, copy=True)
    weights, scale = (np.array([str(each[name]) for each in maps])[assignment] for name in ("weights", "scale"))
    alpha = np.array([float(each["alpha"]) for each in maps])[assignment]
    for kind, weigh in (("naive-bayes", bin_weights.naive_bayes), ("sif", bin_weights.sif)):
        entries = np.flatnonzero(np.repeat(weights == kind, per_row))
        if len(entries):
            data[entries] *= weigh(counts.indices[entries], alpha[owner[entries]])
    divisor = np.ones(counts.shape[0])
    for kind, size in (
        ("average", np.bincount(owner, counts.data, minlength=len(per_row))),
        ("normalise", np.sqrt(np.bincount(owner, data**2, minlength=len(per_row)))),
    ):
        chosen = (scale == kind) & (size > 0)
        divisor[chosen] = size[chosen]
    return csr_matrix((data / divisor[owner], counts.indices, counts.indptr), shape=counts.shape)
