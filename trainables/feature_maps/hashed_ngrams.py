"""Hashed bags of n-grams, with a map per text. Khodak et al. 2020, appendix B.2.2; notes W2 and W8.

A map is a decoded configuration of the space `ngrams`. Featurization has separate steps, because Naive-Bayes and SIF
weights depend on bins that all training texts share: `featurize` counts, `BinWeights.fit` sums the counts of the
training texts, `weighted` applies each map's weights and scale. Bins contain counts, not signed counts, as both weights
need them. Each text is tokenized once per tokenizer.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix

from archray.errors import InvalidInput
from archray.registry import LazyModule
from archray.trainables.feature_maps.features import FeatureMap, check_fits, vector_memory
from archray.trainables.feature_maps.solve_settings import SolveSettings

if TYPE_CHECKING:
    from sklearn import utils
    from sklearn.feature_extraction import text as sklearn_text
else:  # half a second, and models that are networks do not need them
    utils, sklearn_text = LazyModule("sklearn.utils"), LazyModule("sklearn.feature_extraction.text")

Integers: TypeAlias = npt.NDArray[np.integer]
Hashes: TypeAlias = npt.NDArray[np.uint64]
Vector: TypeAlias = npt.NDArray[np.float64]

_TOKEN_DECISIONS = ("tokens", "stop_words", "case", "order")
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's increment (Steele et al. 2014); odd, so no hash is lost
_WORDS = re.compile(
    r"\w+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b"  # do n't, she 'll
    r"|\d+(?:[.,]\d+)+|\w+(?:-\w+)*|[-.=]{2,}|[^\w\s]",
    re.IGNORECASE,
)

TOKENISERS: dict[str, Callable[[str], list[str]]] = {
    "spaces": str.split,
    "punctuation": re.compile(r"\w+|[^\w\s]+").findall,  # runs of word characters, and of punctuation
    "words": _WORDS.findall,  # similar to NLTK: contractions, numbers and hyphenated words; separate marks
}


@dataclass(frozen=True)
class _Tokens:
    """All texts of a corpus, tokenized by one tokenizer."""

    ids: npt.NDArray[np.int32]  # (total,) indices of the distinct tokens, text after text
    starts: npt.NDArray[np.int64]  # (n + 1,) start of each text in `ids`
    hashes: Hashes  # (distinct,) of the distinct tokens
    stop: npt.NDArray[np.bool_]  # (distinct,) whether a token is a stop word, in any case


class Corpus:
    """Texts, and the n-grams of any of them. `corpus_of` caches one corpus per tuple of texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = tuple(texts)
        self._kept: dict[tuple[str, str], _Tokens] = {}

    def __len__(self) -> int:
        return len(self.texts)

    def ngrams(
        self, rows: npt.NDArray[np.integer], tokens: str, stop_words: str, case: str, order: int
    ) -> tuple[Hashes, Integers]:
        """Returns every n-gram of 1 to `order` tokens in the chosen texts, with repetitions.

        Stop words are dropped before n-grams are formed, and no n-gram extends over the end of a text.

        Args:
            rows: (m,) indices of texts. The others: as in the space `ngrams`.

        Returns: hashes (total,); the index in `rows` of each n-gram's text (total,).
        """
        cut = self._tokens(tokens, case)
        lengths = cut.starts[rows + 1] - cut.starts[rows]
        ends = np.cumsum(lengths)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        ids = cut.ids[np.repeat(cut.starts[rows], lengths) + within]
        places = np.repeat(np.arange(len(rows)), lengths)
        if stop_words == "drop":
            kept = ~cut.stop[ids]
            ids, places = ids[kept], places[kept]
        single = cut.hashes[ids]
        hashes, owners = [single], [places]
        longer, same = single, np.ones(len(single), dtype=bool)
        for reach in range(1, order):
            # longer[i] is the n-gram of `reach` tokens starting at token i; same[i]: it is within one text
            same = same[:-1] & (places[reach:] == places[:-reach]) if len(same) > 1 else same[:0]
            longer = mixed(longer[: len(same)], single[reach:])
            hashes.append(longer[same])
            owners.append(places[: len(same)][same])
        return np.concatenate(hashes), np.concatenate(owners)

    def _tokens(self, tokens: str, case: str) -> _Tokens:
        if (tokens, case) not in self._kept:
            self._kept[tokens, case] = _cut(self.texts, TOKENISERS[tokens], lower=case == "lower")
        return self._kept[tokens, case]


@lru_cache(maxsize=6)  # three parts of two data sets
def corpus_of(texts: tuple[str, ...]) -> Corpus:
    """Returns the corpus of these texts, which caches its tokens in this process."""
    return Corpus(texts)


def token_hash(token: str) -> int:
    """Computes 64 bits: MurmurHash3 with two seeds, as in scikit-learn."""
    encoded, murmurhash = token.encode("utf-8", "surrogatepass"), utils.murmurhash3_32
    return murmurhash(encoded, 0, positive=True) << 32 | murmurhash(encoded, 1, positive=True)


def mixed(left: Hashes, right: Hashes | np.uint64) -> Hashes:
    """Computes hashes of ordered pairs of hashes, by the finalizer of splitmix64."""
    with np.errstate(over="ignore"):  # arithmetic is modulo 2^64
        z = left * _GOLDEN + right
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def _cut(texts: Sequence[str], tokenize: Callable[[str], list[str]], *, lower: bool) -> _Tokens:
    numbers: dict[str, int] = {}
    parts: list[npt.NDArray[np.int32]] = []
    for text in texts:
        words = tokenize(text.lower() if lower else text)
        parts.append(np.array([numbers.setdefault(token, len(numbers)) for token in words], dtype=np.int32))
    starts, stop_words = np.zeros(len(texts) + 1, dtype=np.int64), sklearn_text.ENGLISH_STOP_WORDS
    np.cumsum([len(part) for part in parts], out=starts[1:])
    return _Tokens(
        ids=np.concatenate([np.empty(0, dtype=np.int32), *parts]),
        starts=starts,
        hashes=np.array([token_hash(token) for token in numbers], dtype=np.uint64),
        stop=np.array([token.lower() in stop_words for token in numbers], dtype=bool),
    )


def check_maps(maps: Sequence[FeatureMap], num_classes: int) -> None:
    """Raises: InvalidInput if a map has Naive-Bayes weights and the number of classes is not two (note W8)."""
    if num_classes != 2 and any(values["weights"] == "naive-bayes" for values in maps):
        raise InvalidInput(
            f"expected two classes for Naive-Bayes weights, got {num_classes}. Choose two libraries "
            "(docstrings:numpy,torch), or candidates with weights=none or sif"
        )


def featurize(
    corpus: Corpus,
    rows: Integers,
    maps: Sequence[FeatureMap],
    assignment: Integers,
    dimension: int,
    seeds: Sequence[int],
) -> csr_matrix:
    """Counts n-grams in hashed bins, each text by its assigned map; without weights and scale.

    Args:
        rows: (m,) indices of texts of the corpus.
        assignment: (m,) index into `maps` per text.
        dimension: Number of bins.
        seeds: One per map; maps with different seeds hash the same n-gram to unrelated bins.

    Returns: (m, dimension) float64; ones for maps with counts=binary.
    """
    keys = [tuple(values[name] for name in _TOKEN_DECISIONS) for values in maps]
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
    counts = csr_matrix((np.ones(len(row)), (row, column)), shape=(len(rows), dimension))  # sums duplicates
    binary = np.array([values["counts"] == "binary" for values in maps])[assignment]
    counts.data[np.repeat(binary, np.diff(counts.indptr))] = 1.0
    return counts


@dataclass(frozen=True)
class BinWeights:
    """The sums behind the weights of the bins: the training texts' counts, each by its assigned map."""

    total: Vector  # (dimension,) over all training texts
    positive: Vector | None  # (dimension,) over those of class 1; None unless there are two classes

    @classmethod
    def fit(cls, counts: csr_matrix, labels: Integers, num_classes: int) -> "BinWeights":
        """Sums the counts (n, dimension) of all training texts, whose labels (n,) are 0..num_classes-1."""
        total = np.asarray(counts.sum(axis=0), dtype=np.float64).ravel()
        if num_classes != 2:
            return cls(total, None)
        return cls(total, np.asarray(counts[labels == 1].sum(axis=0), dtype=np.float64).ravel())

    def naive_bayes(self, bins: Integers, alpha: Vector) -> Vector:
        """Computes log of (alpha + p_b) / |alpha + p|_1 over (alpha + q_b) / |alpha + q|_1 (Wang and Manning 2012).

        p and q are the counts of classes 1 and 0. bins, alpha: (k,), one pair per weight.

        Raises: InvalidInput unless there are two classes.
        """
        if self.positive is None:
            raise InvalidInput(
                "expected two classes for Naive-Bayes weights, got another number. Choose candidates with weights=none "
                "or sif"
            )
        p, q = self.positive, self.total - self.positive
        norms = np.log((alpha * len(q) + q.sum()) / (alpha * len(p) + p.sum()))
        return np.log((alpha + p[bins]) / (alpha + q[bins])) + norms

    def sif(self, bins: Integers, alpha: Vector) -> Vector:
        """Computes alpha / (alpha + frequency of the bin in all counts) (Arora et al. 2017). bins, alpha: (k,)."""
        frequency = self.total[bins] / max(float(self.total.sum()), 1.0)  # without counts every frequency is 0
        return alpha / (alpha + frequency)


def weighted(
    counts: csr_matrix, maps: Sequence[FeatureMap], assignment: Integers, bin_weights: BinWeights
) -> csr_matrix:
    """Computes the features: counts (m, dimension), weighted and scaled by each text's map.

    scale=average divides a text's features by the sum of its counts, normalize scales them to length 1; a text without
    features stays zero. Raises: InvalidInput for Naive-Bayes weights unless there are two classes.
    """
    per_row = np.diff(counts.indptr)
    owner = np.repeat(np.arange(counts.shape[0]), per_row)  # (nnz,) the row of each entry
    data = counts.data.astype(np.float64, copy=True)
    weights, scale = (np.array([str(values[name]) for values in maps])[assignment] for name in ("weights", "scale"))
    alpha = np.array([float(values["alpha"]) for values in maps])[assignment]
    for kind, weigh in (("naive-bayes", bin_weights.naive_bayes), ("sif", bin_weights.sif)):
        entries = np.flatnonzero(np.repeat(weights == kind, per_row))
        if len(entries):
            data[entries] *= weigh(counts.indices[entries], alpha[owner[entries]])
    divisor = np.ones(counts.shape[0])
    for kind, size in (
        ("average", np.bincount(owner, counts.data, minlength=len(per_row))),
        ("normalize", np.sqrt(np.bincount(owner, data**2, minlength=len(per_row)))),
    ):
        chosen = (scale == kind) & (size > 0)
        divisor[chosen] = size[chosen]
    return csr_matrix((data / divisor[owner], counts.indices, counts.indptr), shape=counts.shape)


def check_ngram_memory(settings: SolveSettings, points: int, classes: int, dimension: int) -> None:
    """Raises: InvalidInput if the weights do not fit into `memory_gib`. Sparse features need no other memory.

    ridge uses a solver without a Gram matrix if that matrix does not fit.
    """
    needed = vector_memory(points, dimension, classes)
    check_fits(needed, settings.memory_gib, f"the weights of {dimension:,} features and {classes} classes")
