"""The space of vision transformers: its shapes, its size, and the effect of a layer beyond the depth."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.errors import InvalidArchitecture
from archray.trainables.spaces import VisionTransformers, get_space
from archray.trainables.spaces.vit import DEPTHS, HEADS, RATIOS, WIDTHS

SPACE = VisionTransformers()
TEXT = (
    "depth=3|width=6|heads_1=2|ratio_1=4|heads_2=3|ratio_2=1|heads_3=4|ratio_3=2"
    "|heads_4=3|ratio_4=2|heads_5=2|ratio_5=1|heads_6=4|ratio_6=4"
)


def test_a_string_and_its_shape():
    assert get_space("vit") == SPACE
    shape = SPACE.shape(SPACE.decode(TEXT))
    assert shape.width == 6
    assert shape.layers == ((2, 4), (3, 1), (4, 2))
    assert SPACE.shape(SPACE.smallest).layers == ((2, 1),) * 3
    assert SPACE.shape(SPACE.largest) == (8, ((4, 4),) * 6)


def test_sizes():
    layers = len(HEADS) * len(RATIOS)
    assert SPACE.size == len(DEPTHS) * len(WIDTHS) * layers**6
    assert sum(len(WIDTHS) * layers ** int(depth) for depth in DEPTHS) == 1_793_340


@given(st.integers(0, 2**32 - 1))
def test_equal_canonical_forms_have_equal_shapes(seed):
    rng = np.random.default_rng(seed)
    first = SPACE.sample(rng)
    second = SPACE.mutate(first, rng)
    assert (SPACE.canonical(first) == SPACE.canonical(second)) == (SPACE.shape(first) == SPACE.shape(second))
    assert SPACE.shape(SPACE.canonical(first)) == SPACE.shape(first)


def test_the_canonical_form_is_the_first_of_its_network():
    form = SPACE.canonical(SPACE.decode(TEXT))
    assert SPACE.encode(form) == TEXT[: TEXT.index("|heads_4")] + "".join(
        f"|heads_{i}=2|ratio_{i}=1" for i in (4, 5, 6)
    )
    spellings = itertools.product(*(decision.choices for decision in SPACE.decisions[8:]))
    assert form == min(((*form[:8], *rest) for rest in spellings), key=SPACE.rank)


def test_a_decision_matters_where_its_condition_holds():
    rng = np.random.default_rng(0)
    for _ in range(200):
        architecture = SPACE.sample(rng)
        mutant = SPACE.mutate(architecture, rng)
        (place,) = [i for i, (a, b) in enumerate(zip(architecture, mutant, strict=True)) if a != b]
        condition = SPACE.condition(SPACE.decisions[place].name)
        matters = condition is None or (condition[0] == "depth" and architecture[0] in condition[1])
        assert matters == (SPACE.shape(architecture) != SPACE.shape(mutant))


def test_invalid_architectures_raise_an_error():
    with pytest.raises(InvalidArchitecture, match=r"vit has no choice '5' for heads_3\. Choose one of 2, 3, 4"):
        SPACE.decode(TEXT.replace("heads_3=4", "heads_3=5"))
    with pytest.raises(InvalidArchitecture, match="vit: expected a choice for each of depth, width, heads_1"):
        SPACE.decode("depth=3|width=6")
