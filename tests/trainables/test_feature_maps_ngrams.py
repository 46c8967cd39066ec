"""Hashed n-grams compared with slow references: a loop over tokens with dicts, and the weights' formulas in float64."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS
from sklearn.utils import murmurhash3_32

from archray.errors import InvalidInput
from archray.trainables.feature_maps.hashed_ngrams import (
    TOKENISERS,
    BinWeights,
    Corpus,
    check_maps,
    corpus_of,
    featurize,
    weighted,
)
from archray.trainables.spaces import get_space

SPACE = get_space("ngrams")
MASK64 = 2**64 - 1
TEXTS = (
    "The cat sat on the mat, and the cat didn't move.",
    "the THE The",
    "",
    "of and the",  # only stop words
    "mat",
    "A well-known 3.14 -- and so on... It's the cat; isn't it?",
    "cat cat cat cat",
    "ünïcode \ud800 日本語 _private x_y",
)


def make_map(**changes):
    values = {"tokens": "spaces", "stop_words": "keep", "case": "keep", "order": 1, "counts": "all"}
    return {**values, "weights": "none", "scale": "none", "alpha": 1.0, **changes}


# Reference: Python's integers, one n-gram at a time


def reference_mix(left, right):
    z = (left * 0x9E3779B97F4A7C15 + right) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def reference_hash(ngram):
    hashes = []
    for token in ngram:
        raw = token.encode("utf-8", "surrogatepass")
        hashes.append(murmurhash3_32(raw, 0, positive=True) * 2**32 + murmurhash3_32(raw, 1, positive=True))
    value = hashes[0]
    for each in hashes[1:]:
        value = reference_mix(value, each)
    return value


def reference_ngrams(text, each):
    text = text.lower() if each["case"] == "lower" else text
    tokens = TOKENISERS[each["tokens"]](text)
    if each["stop_words"] == "drop":
        tokens = [token for token in tokens if token.lower() not in ENGLISH_STOP_WORDS]
    return [
        tuple(tokens[i : i + length]) for length in range(1, each["order"] + 1) for i in range(len(tokens) - length + 1)
    ]


def reference_counts(text, each, seed, dimension):
    salt = reference_mix(seed, 1)
    counts = Counter(reference_mix(reference_hash(n), salt) % dimension for n in reference_ngrams(text, each))
    return {b: 1 if each["counts"] == "binary" else n for b, n in counts.items()}


def reference_weighted(rows, maps, labels=None):
    """Computes the formulas of notes W2 and W8, bin by bin. rows: counts per text, as dicts; maps: one map per text."""
    p, q = Counter(), Counter()
    for i, row in enumerate(rows):
        (p if labels is not None and labels[i] == 1 else q).update(row)
    dimension = 64
    total = sum(p.values()) + sum(q.values())
    features = []
    for row, each in zip(rows, maps, strict=True):
        alpha, found = each["alpha"], {}
        for b, n in row.items():
            if each["weights"] == "naive-bayes":
                positive = (alpha + p[b]) / sum(alpha + p[j] for j in range(dimension))
                negative = (alpha + q[b]) / sum(alpha + q[j] for j in range(dimension))
                n = n * math.log(positive / negative)
            elif each["weights"] == "sif":
                n = n * alpha / (alpha + (p[b] + q[b]) / total)
            found[b] = n
        size = {
            "none": 1.0,
            "average": sum(row.values()),
            "normalize": math.sqrt(sum(n * n for n in found.values())),
        }[each["scale"]]
        features.append({b: n / (size or 1.0) for b, n in found.items()})
    return features


def as_dicts(matrix):
    return [dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in matrix]


# Tokens


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ("spaces", ["It's", "3.14,", "well-known...", "don't!"]),
        ("punctuation", ["It", "'", "s", "3", ".", "14", ",", "well", "-", "known", "...", "don", "'", "t", "!"]),
        ("words", ["It", "'s", "3.14", ",", "well-known", "...", "do", "n't", "!"]),
    ],
)
def test_tokens(tokens, expected):
    assert TOKENISERS[tokens]("It's 3.14,  well-known...\n don't!") == expected


@given(st.text(max_size=60))
def test_no_tokenizer_loses_or_adds_a_character(text):
    for name, tokenize in TOKENISERS.items():
        assert "".join(tokenize(text)) == "".join(text.split()), name


# Counts


@pytest.mark.parametrize("tokens", list(TOKENISERS))
@pytest.mark.parametrize(
    ("stop_words", "case", "order", "counts"),
    [
        ("keep", "keep", 1, "all"),
        ("drop", "lower", 2, "all"),
        ("drop", "keep", 3, "binary"),
        ("keep", "lower", 2, "binary"),
    ],
)
def test_counts_against_the_loop(tokens, stop_words, case, order, counts):
    each = make_map(tokens=tokens, stop_words=stop_words, case=case, order=order, counts=counts)
    rows = np.arange(len(TEXTS))
    for dimension in (7, 65_536):  # 7: bins are shared
        found = featurize(Corpus(TEXTS), rows, [each], np.zeros(len(rows), dtype=int), dimension, [5])
        assert found.shape == (len(TEXTS), dimension)
        assert as_dicts(found) == [reference_counts(text, each, 5, dimension) for text in TEXTS]


@given(
    st.lists(st.lists(st.sampled_from(["a", "the", "b", "B", "x."]), max_size=6).map(" ".join), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
)
def test_every_text_with_its_own_map(texts, seed):
    rng = np.random.default_rng(seed)
    maps = [SPACE.configuration(SPACE.encode(SPACE.sample(rng))) for _ in range(4)]
    seeds = [int(s) for s in rng.integers(2**63, size=4)]
    rows, assignment = rng.integers(len(texts), size=6), rng.integers(4, size=6)  # a text may be requested twice
    found = featurize(Corpus(texts), rows, maps, assignment, 64, seeds)
    assert as_dicts(found) == [
        reference_counts(texts[row], maps[m], seeds[m], 64) for row, m in zip(rows, assignment, strict=True)
    ]


def test_no_ngram_crosses_the_end_of_a_text():
    each = make_map(order=3)
    found = featurize(Corpus(["a b", "c", "", "d e f"]), np.arange(4), [each], np.zeros(4, dtype=int), 2**20, [0])
    assert np.asarray(found.sum(axis=1)).ravel().tolist() == [3, 1, 0, 6]


def test_ngrams_depend_on_their_order():
    corpus = Corpus(["a b", "b a"])
    hashes, owners = corpus.ngrams(np.arange(2), "spaces", "keep", "keep", 2)
    first, second = (sorted(hashes[owners == i].tolist()) for i in range(2))
    assert len(set(first) & set(second)) == 2  # the single tokens, not the pairs


def test_seeds_of_maps_separate_their_bins():
    corpus, maps = Corpus(["alpha beta gamma"]), [make_map()] * 3
    found = as_dicts(featurize(corpus, np.zeros(3, dtype=int), maps, np.arange(3), 2**20, [1, 2, 1]))
    assert found[0] == found[2]
    assert set(found[0]).isdisjoint(found[1])


def test_empty_input_raises_an_error():
    found = featurize(Corpus(["a"]), np.arange(0), [make_map()], np.arange(0), 16, [0])
    assert found.shape == (0, 16) and found.nnz == 0
    blank = featurize(Corpus(["", " "]), np.arange(2), [make_map(order=3)], np.zeros(2, dtype=int), 16, [0])
    assert blank.shape == (2, 16) and blank.nnz == 0


def test_a_corpus_is_cached_per_texts():
    texts = ("a b", "c")
    assert corpus_of(texts) is corpus_of(("a b", "c"))
    assert len(corpus_of(texts)) == 2


# Weights and scale


@pytest.mark.parametrize("weights", ["none", "naive-bayes", "sif"])
@pytest.mark.parametrize(("scale", "counts"), [("none", "all"), ("normalize", "binary"), ("average", "all")])
def test_weights_against_the_loop(weights, scale, counts):
    maps = [
        make_map(weights=weights, scale=scale, counts=counts, alpha=alpha, case=case, order=order)
        for alpha, case, order in ((1e-5, "keep", 1), (0.3, "lower", 2), (10.0, "keep", 2))
    ]
    assignment = np.arange(len(TEXTS)) % 3
    labels = np.array([0, 1, 1, 0, 1, 0, 0, 1])
    found = featurize(Corpus(TEXTS), np.arange(len(TEXTS)), maps, assignment, 64, [0, 1, 2])
    before = found.copy()
    features = as_dicts(weighted(found, maps, assignment, BinWeights.fit(found, labels, 2)))
    assert (found != before).nnz == 0  # left unchanged
    expected = reference_weighted(as_dicts(found), [maps[m] for m in assignment], labels)
    for row, reference in zip(features, expected, strict=True):
        assert row == pytest.approx(reference, rel=1e-12, abs=1e-13)  # logs of ratios near 1 cancel


def test_maps_with_different_weights_side_by_side():
    maps = [make_map(weights=w, scale=s) for w in ("none", "naive-bayes", "sif") for s in ("none", "normalize")]
    texts = TEXTS[:6]
    labels, assignment = np.array([0, 1, 1, 0, 1, 0]), np.arange(6)
    found = featurize(Corpus(texts), np.arange(6), maps, assignment, 64, [0] * 6)
    features = as_dicts(weighted(found, maps, assignment, BinWeights.fit(found, labels, 2)))
    for row, reference in zip(features, reference_weighted(as_dicts(found), maps, labels), strict=True):
        assert row == pytest.approx(reference, rel=1e-12)


def test_weights_apply_to_texts_other_than_those_of_the_fit():
    maps = [make_map(weights="sif", alpha=0.01)]
    train = featurize(Corpus(["a a b"]), np.arange(1), maps, np.zeros(1, dtype=int), 2**20, [3])
    other = featurize(Corpus(["a new"]), np.arange(1), maps, np.zeros(1, dtype=int), 2**20, [3])
    values = weighted(other, maps, np.zeros(1, dtype=int), BinWeights.fit(train, np.zeros(1, dtype=int), 2)).data
    assert sorted(values) == pytest.approx([0.01 / (0.01 + 2 / 3), 1.0])


def test_naive_bayes_needs_two_classes():
    maps = [make_map(), make_map(weights="naive-bayes")]
    check_maps(maps, 2)
    check_maps(maps[:1], 5)
    with pytest.raises(InvalidInput, match=r"two classes for Naive-Bayes weights, got 5. Choose two libraries"):
        check_maps(maps, 5)
    counts = featurize(Corpus(["a", "b"]), np.arange(2), maps, np.arange(2), 16, [0, 1])
    three = BinWeights.fit(counts, np.array([0, 2]), 3)
    with pytest.raises(InvalidInput, match="two classes"):
        weighted(counts, maps, np.arange(2), three)
    assert weighted(counts, maps, np.zeros(2, dtype=int), three).nnz == 2
