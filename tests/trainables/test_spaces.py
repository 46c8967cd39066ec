"""Spaces: strings, sampling, mutation, references, and the table of NAS-Bench-201."""

from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.errors import InvalidArchitecture, InvalidInput, UnknownName
from archray.trainables.spaces import SPACES, Decision, NASBench201, Space, get_space
from archray.trainables.spaces.nasbench201 import OPERATIONS

SPACE = NASBench201()

seeds = st.integers(0, 2**32 - 1)


class Wine(Space):
    """A user's space without a string form and isomorphism."""

    name = "wine"
    decisions = (Decision("color", ("red", "white")), Decision("year", ("1999",)), Decision("size", ("s", "m", "l")))


# Every space


@pytest.mark.parametrize("name", list(SPACES))
@given(seeds)
def test_strings_round_trip_and_a_mutation_changes_one_decision(name, seed):
    space, rng = get_space(name), np.random.default_rng(seed)
    drawn = space.sample(rng)
    assert drawn == space.sample(np.random.default_rng(seed))
    assert space.decode(space.encode(drawn)) == drawn
    mutant = space.mutate(drawn, rng)
    space.check(mutant)
    assert sum(a != b for a, b in zip(drawn, mutant, strict=True)) == 1
    form = space.canonical(drawn)
    space.check(form)
    assert space.canonical(form) == form


@pytest.mark.parametrize("name", list(SPACES))
@given(seeds)
def test_samples_are_those_of_single_draws(name, seed):
    space, rng = get_space(name), np.random.default_rng(seed)
    assert space.samples(5, np.random.default_rng(seed)) == [space.sample(rng) for _ in range(5)]


@pytest.mark.parametrize("name", list(SPACES))
@given(st.text(), st.integers(0, 600), seeds)
def test_any_text_gives_an_architecture_or_raises_an_error(name, text, cut, seed):
    space = get_space(name)
    known = space.encode(space.sample(np.random.default_rng(seed)))
    for each in (text, known[:cut] + text, known[:cut] + text + known[cut:]):
        with suppress(InvalidArchitecture):
            space.check(space.decode(each))


# The registry, and NAS-Bench-201


def test_registry_names_and_lists():
    assert "nasbench201" in SPACES
    assert get_space("nasbench201") == SPACE
    with pytest.raises(UnknownName, match=r"no space 'nasbench202'; did you mean 'nasbench201'\? choose one of"):
        get_space("nasbench202")


def test_equal_by_class_and_hashable():
    assert NASBench201() == SPACE
    assert len({NASBench201(), SPACE, Wine()}) == 2
    assert Wine() != SPACE
    assert get_space(SPACE) is SPACE


def test_decisions_of_nasbench201():
    assert [d.name for d in SPACE.decisions] == ["1<-0", "2<-0", "2<-1", "3<-0", "3<-1", "3<-2"]
    assert SPACE.size == 5**6 == sum(1 for _ in SPACE.enumerate())


def test_known_string():
    cell = ("nor_conv_3x3", "none", "skip_connect", "avg_pool_3x3", "nor_conv_1x1", "none")
    text = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|avg_pool_3x3~0|nor_conv_1x1~1|none~2|"
    assert SPACE.encode(cell) == text


def test_every_string_of_the_benchmark(benchmark_data):
    strings = pd.read_csv(benchmark_data / "nasbench201.csv.gz", usecols=["arch"])["arch"].tolist()
    assert [SPACE.encode(SPACE.decode(text)) for text in strings] == strings
    assert set(strings) == {SPACE.encode(cell) for cell in SPACE.enumerate()}


def test_a_wrong_operation_lists_the_known_ones():
    text = SPACE.encode(("none",) * 6).replace("none~1", "conv5x5~1", 1)
    with pytest.raises(
        InvalidArchitecture,
        match=r"nasbench201 has no choice 'conv5x5' for 2<-1. Choose one of none, skip_connect, nor_conv_1x1",
    ):
        SPACE.decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rubbish",
        "|none~0|+|none~0|none~1|",
        "|none~0|+|none~0|none~1|+|none~0|none~1|none~1|",
        "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|+|none~0|",
        "none~0|+|none~0|none~1|+|none~0|none~1|none~2",
        "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|\n",
    ],
)
def test_a_malformed_string_raises_an_error_with_the_format(text):
    with pytest.raises(InvalidArchitecture) as caught:
        SPACE.decode(text)
    assert "|op~0|+|op~0|op~1|+|op~0|op~1|op~2|" in str(caught.value)
    assert repr(text) in str(caught.value)


def test_wrong_arity_of_a_tuple():
    with pytest.raises(InvalidArchitecture, match=r"6 choices, got 5 choices"):
        SPACE.encode(("none",) * 5)


def test_mutate_never_changes_a_decision_with_one_choice():
    space, rng = Wine(), np.random.default_rng(0)
    cell = ("red", "1999", "s")
    mutants = {space.mutate(cell, rng) for _ in range(100)}
    assert mutants == {("white", "1999", "s"), ("red", "1999", "m"), ("red", "1999", "l")}


def test_sample_is_seeded_and_uniform():
    draw = [SPACE.sample(np.random.default_rng(7)) for _ in range(2)]
    assert draw[0] == draw[1]
    rng = np.random.default_rng(0)
    samples = [SPACE.sample(rng) for _ in range(5000)]
    counts = np.array([[sum(s[i] == op for s in samples) for op in OPERATIONS] for i in range(6)])
    # Each count is Binomial(5000, 1/5): within five standard deviations (28 each).
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(5000 * 0.2 * 0.8)


@given(st.tuples(*[st.sampled_from(d.choices) for d in Wine.decisions]))
def test_default_strings_of_a_users_space(architecture):
    space = Wine()
    assert space.decode(space.encode(architecture)) == architecture


def test_invalid_default_strings_raise_an_error():
    with pytest.raises(InvalidArchitecture, match="color, year, size"):
        Wine().decode("color=red|size=s")
    with pytest.raises(InvalidArchitecture, match=r"wine has no choice 'blue' for color\. Choose one of red, white"):
        Wine().decode("color=blue|year=1999|size=s")


@pytest.mark.parametrize(
    "decisions",
    [
        "Decision('a=b', ('x', 'y')),",
        "Decision('a|b', ('x', 'y')),",
        "Decision('a', ('x|y', 'z')),",
        "Decision('a', ('x', 'y')), Decision('a', ('x', 'y')),",
        "Decision('a', (1, 2)),",
        "Decision('a', ()),",
    ],
)
def test_decisions_with_ambiguous_strings_raise_an_error(tmp_path, decisions):
    file = tmp_path / "mine.py"
    file.write_text(
        "from archray.trainables.spaces import Decision, Space\n"
        f"class Mine(Space):\n    name, decisions = 'mine', ({decisions})\n"
    )
    with pytest.raises(InvalidInput, match="'a"):
        get_space(f"{file}:Mine")


def test_reference_to_a_class_an_instance_and_another_object(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from archray.trainables.spaces import Decision, Space\n"
        "class Mine(Space):\n"
        "    name = 'mine'\n"
        "    decisions = (Decision('a', ('x', 'y')),)\n"
        "made = Mine()\n"
        "class Sized(Mine):\n"
        "    def __init__(self, n):\n"
        "        self.decisions = (Decision('a', tuple(map(str, range(n)))),)\n"
        "three = Sized(3)\n"
        "class Nameless(Space):\n"
        "    decisions = (Decision('a', ('x', 'y')),)\n"
        "number = 3\n"
    )
    assert get_space(f"{file}:Mine") == get_space(f"{file}:made")
    assert get_space(f"{file}:three").size == 3
    with pytest.raises(InvalidInput, match="expected a space class without required arguments"):
        get_space(f"{file}:Sized")
    with pytest.raises(InvalidInput, match=r"Expected a function of a model with choices, .*got int"):
        get_space(f"{file}:number")
    with pytest.raises(InvalidInput, match="expected the attribute name"):
        get_space(f"{file}:Nameless")
    with pytest.raises(UnknownName, match="has no 'Other'"):
        get_space(f"{file}:Other")
    with pytest.raises(UnknownName, match="does not exist"):
        get_space(f"{tmp_path / 'absent.py'}:Mine")
