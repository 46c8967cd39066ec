"""NAS-Bench-1Shot1's spaces: published sizes, strings, the published table of space 1, isomorphism."""

import itertools
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.errors import InvalidArchitecture
from archray.trainables.spaces import NASBench1Shot1Space1, NASBench1Shot1Space2, NASBench1Shot1Space3, get_space
from archray.trainables.spaces.nasbench1shot1 import OPERATIONS

ONE, TWO, THREE = SPACES = (NASBench1Shot1Space1(), NASBench1Shot1Space2(), NASBench1Shot1Space3())
KNOWN = "conv3x3-bn-relu~0+maxpool3x3~0,1+conv1x1-bn-relu~0,2+conv1x1-bn-relu~1,3+output~0,2"  # nodes 3, 4 loose


def members(space):
    return st.tuples(*[st.sampled_from(decision.choices) for decision in space.decisions])


any_space = st.sampled_from(SPACES).flatmap(lambda space: st.tuples(st.just(space), members(space)))
seeds = st.integers(0, 2**32 - 1)


def connections(space):
    """Returns all choices of parents (of nodes 1, 2, ..., output)."""
    return itertools.product(*(d.choices for d in space.decisions if d.name.startswith("parents")))


def test_published_sizes():
    assert [get_space(f"nasbench1shot1-{number}") for number in (1, 2, 3)] == list(SPACES)
    assert [space.size for space in SPACES] == [14_580, 29_160, 1_312_200]
    # Zela et al. 2020, table 1, give 6,240, 29,160 and 363,648. The second is the number of choices; the others count
    # no operation for a node without readers.
    counted = []
    for space in SPACES:
        feeding = (
            sum(any(str(node) in choice for choice in parents) for node in space.nodes)
            for parents in connections(space)
        )
        counted.append(sum(len(OPERATIONS) ** number for number in feeding))
    assert counted == [6_240, 16_632, 363_648]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_parents_are_those_of_the_paper(space):
    for names, count in zip((d for d in space.decisions if d.name.startswith("parents")), space.parents, strict=True):
        node = int(names.name.removeprefix("parents_"))
        assert names.choices == tuple(",".join(map(str, c)) for c in itertools.combinations(range(node), count))
    assert sum(space.parents) <= 9  # the maximum number of edges in NAS-Bench-101


@given(any_space)
def test_a_graph_equals_its_architecture(drawn):
    space, architecture = drawn
    assert space.architecture(*space.graph(architecture)) == architecture


def test_a_known_string():
    architecture = ONE.decode(KNOWN)
    assert architecture[:5] == ("conv3x3-bn-relu", "0", "maxpool3x3", "0,1", "conv1x1-bn-relu")
    assert ONE.encode(architecture) == KNOWN
    assert ONE.decode(KNOWN.replace("1,3", "3,1")) == architecture
    assert ONE.live(architecture) == (1, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"expected 4 nodes and the output as operation~parent"),
        (KNOWN.replace("output", "conv1x1-bn-relu"), "expected 4 nodes and the output"),
        (KNOWN + "+output~0,2", "expected 4 nodes and the output"),
        (KNOWN.replace("~1,3", "~1,³"), "expected 4 nodes and the output"),
        (KNOWN.replace("~1,3", "~1," + "9" * 5000), "expected 4 nodes and the output"),
        (KNOWN.replace("maxpool3x3", "avgpool3x3"), "no choice 'avgpool3x3' for operation_2. Choose one of conv1x1"),
        (KNOWN.replace("~1,3", "~1,4"), "no choice '1,4' for parents_4. Choose one of 0,1, 0,2"),
        (KNOWN.replace("~1,3", "~1"), "no choice '1' for parents_4"),
        (KNOWN.replace("~1,3", "~1,1"), "no choice '1,1' for parents_4"),
    ],
)
def test_invalid_strings_raise_an_error(text, message):
    with pytest.raises(InvalidArchitecture, match=message):
        ONE.decode(text)


def test_wrong_graphs_raise_an_error():
    with pytest.raises(InvalidArchitecture, match="expected 4 operations and the parents of 5 nodes, got 3 and 5"):
        ONE.architecture(OPERATIONS, [[0], [0, 1], [0, 1], [0, 1], [0, 1]])
    with pytest.raises(InvalidArchitecture, match="9 choices, got 2 choices"):
        ONE.encode(("conv1x1-bn-relu", "0"))


def test_nasbench101_form():
    module = ONE.to_nasbench101(ONE.decode(KNOWN))
    edges = {(a, b) for a, row in enumerate(module.matrix) for b, fed in enumerate(row) if fed}
    assert edges == {(0, 1), (0, 2), (1, 2), (0, 6), (2, 6)}
    loose = ("conv1x1-bn-relu",) * 3
    assert module.operations == ("input", "conv3x3-bn-relu", "maxpool3x3", *loose, "output")
    bare = ONE.to_nasbench101(ONE.decode(KNOWN), pad=False)
    assert bare.matrix == ((0, 1, 1, 1), (0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 0, 0))
    assert bare.operations == ("input", "conv3x3-bn-relu", "maxpool3x3", "output")


@given(any_space)
def test_nasbench101_form_has_no_loose_ends(drawn):
    space, architecture = drawn
    padded, bare = space.to_nasbench101(architecture), space.to_nasbench101(architecture, pad=False)
    assert len(padded.operations) == 7
    matrix = np.array(bare.matrix)
    assert (matrix == np.triu(matrix, 1)).all()
    assert (matrix.sum(0)[1:] > 0).all()  # every vertex has an input
    assert (matrix.sum(1)[:-1] > 0).all()  # and an output
    on_paths = np.array(padded.matrix)
    kept = [0, *(v for v in range(1, 6) if on_paths[v].any()), 6]
    assert (on_paths[np.ix_(kept, kept)] == matrix).all()
    assert on_paths.sum() == matrix.sum() <= 9


def test_the_published_table_of_space_1(benchmark_data):
    """Every row of the table, with matrices cut to their first row, is a cell of archray's space, and equally many are
    distinct.
    """
    modules = {ONE.to_nasbench101(architecture) for architecture in ONE.enumerate()}
    ours = Counter((module.matrix[0], module.operations) for module in modules)
    table = pd.read_csv(benchmark_data / "nasbench1shot1_ss1.csv.gz")
    rows = [tuple(int(float(entry)) for entry in text.strip("[]").split()) for text in table["adj_matrix"]]
    names = table[["input", *(f"node{number}" for number in range(1, 6)), "output"]].itertuples(index=False, name=None)
    published = Counter(zip(rows, names, strict=True))
    assert published.total() == 2_487
    assert not published - ours
    # The authors' enumeration leaves out some of the cells whose nodes come in another order.
    assert len(modules) == 3_702
    assert {row for row, _ in published} == {row for row, _ in ours}


def wiring(space, architecture, order):
    """The live part of a cell as edges, and as operations by node, with node n called order[n]."""
    operations, parents = space.graph(architecture)
    live = space.live(architecture)
    name = {0: 0, len(parents): "out", **dict(zip(space.nodes, order, strict=True))}
    edges = {(name[parent], name[node]) for node in (*live, len(parents)) for parent in parents[node - 1]}
    return edges, {name[node]: operations[node - 1] for node in live}


def isomorphic(space, one, other):
    plain = wiring(space, other, space.nodes)
    return any(wiring(space, one, order) == plain for order in itertools.permutations(space.nodes))


@given(any_space, seeds)
def test_canonical_merges_isomorphic_cells_and_no_others(drawn, seed):
    space, architecture = drawn
    form = space.canonical(architecture)
    assert isomorphic(space, architecture, form)
    rng = np.random.default_rng(seed)
    for other in (space.mutate(architecture, rng), space.mutate(space.mutate(architecture, rng), rng)):
        same = isomorphic(space, architecture, other)
        assert (space.canonical(other) == form) == same


@pytest.mark.slow
def test_canonical_is_the_first_in_enumeration_order():
    first = {}
    for architecture in ONE.enumerate():
        form = first.setdefault(ONE.canonical(architecture), architecture)
        assert ONE.canonical(architecture) == form
    assert len(first) == 2_685
