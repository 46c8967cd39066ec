"""Spaces of feature maps: strings, the constant, canonical forms, and methods that a continuous space lacks."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.errors import InvalidArchitecture, InvalidInput
from archray.searchers import RandomSearch
from archray.trainables.spaces import SPACES, Decision, FeatureMapSpace, LogUniform, get_space

FOURIER, NGRAMS = get_space("fourier"), get_space("ngrams")
BOTH = pytest.mark.parametrize("space", [FOURIER, NGRAMS], ids=lambda space: space.name)
seeds = st.integers(0, 2**32 - 1)


@BOTH
@given(seeds)
def test_a_configuration_has_every_decision(space, seed):
    drawn = space.sample(np.random.default_rng(seed))
    values = space.configuration(space.encode(drawn))
    assert list(values) == [d.name for d in space.decisions] + [space.constant.name]
    assert [str(value) for value in list(values.values())[:-1]] == list(drawn[:-1])
    assert space.constant.low <= values[space.constant.name] <= space.constant.high


@given(st.floats(1e-5, 10.0))
def test_a_constant_keeps_six_digits(value):
    decoded = FOURIER.decode(f"kernel=laplace|preprocess=minmax|gamma={value!r}")
    assert float(decoded[-1]) == pytest.approx(value, rel=5e-6)
    assert FOURIER.decode(FOURIER.encode(decoded)) == decoded


def test_known_strings():
    text = "kernel=gaussian|preprocess=standard|gamma=0.0123"
    assert FOURIER.configuration(text) == {"kernel": "gaussian", "preprocess": "standard", "gamma": 0.0123}
    assert FOURIER.encode(FOURIER.decode(text.replace("0.0123", "1.23e-2"))) == text
    text = "tokens=words|stop_words=drop|case=lower|order=2|counts=binary|weights=sif|scale=normalize|alpha=1e-05"
    values = NGRAMS.configuration(text)
    assert values["order"] == 2 and values["alpha"] == 1e-5 and values["weights"] == "sif"
    assert NGRAMS.encode(NGRAMS.decode(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"fourier: expected kernel=\.\.\.\|preprocess=\.\.\.\|gamma=\.\.\., got ''"),
        ("kernel=gaussian|preprocess=none", r"expected kernel=.*gamma="),
        ("kernel=gaussian|gamma=1|preprocess=none", r"expected kernel=.*gamma="),
        ("kernel=gaussian|preprocess=none|gamma=1|gamma=1", r"expected kernel=.*gamma="),
        ("kernel=cosine|preprocess=none|gamma=1", "no choice 'cosine' for kernel. Choose one of gaussian, laplace"),
        ("kernel=gaussian|preprocess=none|gamma=10.1", r"gamma as a number in \[1e-05, 10\], got '10.1'"),
        ("kernel=gaussian|preprocess=none|gamma=nan", r"gamma as a number in \[1e-05, 10\], got 'nan'"),
        ("kernel=gaussian|preprocess=none|gamma=wide", r"gamma as a number in \[1e-05, 10\], got 'wide'"),
    ],
)
def test_invalid_feature_maps_raise_an_error(text, message):
    with pytest.raises(InvalidArchitecture, match=message):
        FOURIER.decode(text)


def test_invalid_values_cannot_be_encoded():
    with pytest.raises(InvalidArchitecture, match="2 choices and the constant gamma, got 2 entries"):
        FOURIER.encode(("gaussian", "none"))
    with pytest.raises(InvalidArchitecture, match=r"6 significant digits, '0.01', got '1e-2'"):
        FOURIER.encode(("gaussian", "none", "1e-2"))


def test_mutate_reaches_every_entry():
    rng = np.random.default_rng(0)
    drawn = NGRAMS.sample(rng)
    mutants = [NGRAMS.mutate(drawn, rng) for _ in range(200)]
    assert {i for mutant in mutants for i in range(8) if mutant[i] != drawn[i]} == set(range(8))


def test_the_constant_is_log_uniform():
    rng = np.random.default_rng(0)
    logs = np.log10([float(FOURIER.sample(rng)[-1]) for _ in range(4000)])
    assert logs.min() >= -5 and logs.max() <= 1
    counts = np.histogram(logs, bins=6, range=(-5, 1))[0]
    assert np.abs(counts - 4000 / 6).max() < 5 * math.sqrt(4000 * 5 / 36)  # five standard deviations


@BOTH
@given(seeds)
def test_canonical_leaves_out_a_constant_without_an_effect(space, seed):
    drawn = space.sample(np.random.default_rng(seed))
    form = space.canonical(drawn)
    assert form[:-1] == drawn[:-1]
    weights = space.configuration(space.encode(drawn)).get("weights")
    assert form[-1] == ("1" if weights == "none" else drawn[-1])


@BOTH
def test_continuous(space):
    assert math.isinf(space.size)
    with pytest.raises(InvalidInput, match=f"{space.name}, which is continuous in {space.constant.name}; sample it"):
        space.enumerate()


def test_kinds():
    kinds = {name: SPACES.get(name).kind for name in ("fourier", "nasbench201", "ngrams")}
    assert kinds == {"fourier": "feature map", "nasbench201": "network", "ngrams": "feature map"}
    assert (FOURIER.data_kind, NGRAMS.data_kind) == ("images", "text")


def test_the_list_marks_continuous_spaces():
    from archray.platform.api import list_names  # not at the top: it loads Ray and torch

    assert list_names("spaces")["ngrams"] == "feature maps, continuous"


def test_random_search_samples_feature_maps():
    searcher = RandomSearch("fourier", budget=5, metric="score", mode="min", seed=3)
    drawn = [searcher.suggest(f"t{i}")["architecture"] for i in range(5)]
    assert len(set(drawn)) == 5
    assert [FOURIER.encode(FOURIER.decode(text)) for text in drawn] == drawn


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (2.0, 1.0), (1.0, math.inf), (1.23456789, 2.0)])
def test_bounds_of_a_constant(bounds):
    with pytest.raises(ValueError, match=r"expected .* 'c', got"):
        LogUniform("c", *bounds)


def test_a_space_of_the_user():
    class Splines(FeatureMapSpace):
        name = "splines"
        data_kind = "images"
        decisions = (Decision("degree", ("1", "3")),)
        constant = LogUniform("knots", 1.0, 2.0)

    space = Splines()
    drawn = space.sample(np.random.default_rng(0))
    assert space.configuration(space.encode(drawn))["degree"] == int(drawn[0])
