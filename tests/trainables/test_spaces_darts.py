"""DARTS' space: genotypes in the format of DARTS, read without evaluation, and the order of nodes."""

import itertools
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archray.errors import InvalidArchitecture
from archray.trainables.spaces import DARTS, DARTSWithNone, get_space
from archray.trainables.spaces.darts import NODES
from archray.trainables.spaces.genotypes import Genotype, cell_shape

SPACE, WITH_NONE = DARTS(), DARTSWithNone()
# Liu et al. 2019, in the format of their program: edges by strength, the older form of the concatenation.
DARTS_V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], normal_concat=[2, 3, 4, 5], "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0), "
    "('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=[2, 3, 4, 5])"
)


def members(space):
    return st.tuples(*[st.sampled_from(decision.choices) for decision in space.decisions])


both = st.sampled_from([SPACE, WITH_NONE]).flatmap(lambda space: st.tuples(st.just(space), members(space)))
seeds = st.integers(0, 2**32 - 1)


def test_names_and_sizes():
    assert get_space("darts") == SPACE != WITH_NONE == get_space("darts-none")
    pairs = 1 * 3 * 6 * 10  # of inputs: Liu et al. 2019, section 3.1, count 10^9 cells
    assert SPACE.size == (pairs * 7**8) ** 2
    assert WITH_NONE.size == (pairs * 8**8) ** 2
    first, second = itertools.islice(SPACE.enumerate(), 2)  # lazily: the space has 10^18
    assert sum(a != b for a, b in zip(first, second, strict=True)) == 1


@given(both)
def test_strings_have_the_format_of_darts_and_round_trip(drawn):
    space, architecture = drawn
    printed = namedtuple("Genotype", "normal normal_concat reduce reduce_concat")
    genotype = space.genotype(architecture)
    text = space.encode(architecture)
    assert text == repr(printed(list(genotype.normal), range(2, 6), list(genotype.reduce), range(2, 6)))
    assert space.decode(text) == architecture
    assert space.architecture(genotype) == architecture


def test_a_published_genotype():
    architecture = SPACE.decode(DARTS_V2)
    assert architecture[:6] == ("0,1", "sep_conv_3x3", "sep_conv_3x3", "0,1", "sep_conv_3x3", "sep_conv_3x3")
    assert architecture[6:12] == ("0,1", "skip_connect", "sep_conv_3x3", "0,2", "skip_connect", "dil_conv_3x3")
    assert SPACE.decode(DARTS_V2.replace("[2, 3, 4, 5]", "range(2, 6)")) == architecture
    assert SPACE.decode(f" {DARTS_V2}\n") == architecture


@given(members(SPACE), st.lists(st.booleans(), min_size=8, max_size=8))
def test_the_order_of_the_edges_of_a_node_does_not_matter(architecture, swapped):
    cells = []
    for edges, swaps in zip(SPACE.genotype(architecture), (swapped[:4], swapped[4:]), strict=True):
        pairs = [edges[at : at + 2] for at in range(0, 8, 2)]
        ordered = [pair[::-1] if swap else pair for pair, swap in zip(pairs, swaps, strict=True)]
        cells.append(tuple(itertools.chain(*ordered)))
    assert SPACE.decode(str(Genotype(*cells))) == architecture


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sep_conv_3x3", "conv_7x7", r"darts has no choice 'conv_7x7' for normal_2_lower. Choose one of max_pool_3x3"),
        ("sep_conv_3x3", "none", r"darts has no choice 'none'"),
        ("('sep_conv_3x3', 1)", "('sep_conv_3x3', 0)", "two different inputs of node 2 of normal .* got 0 and 0"),
        ("('dil_conv_3x3', 2)", "('dil_conv_3x3', 5)", "node 5 of normal .* 0 to 4, got 0 and 5"),
        ("('dil_conv_3x3', 2)", "('dil_conv_3x3', -1)", "got -1 and 0"),
        (", ('dil_conv_3x3', 2)", "", "expected 8 edges in normal, got 7"),
        ("('dil_conv_3x3', 2)", "('dil_conv_3x3', True)", "not a pair of an operation and a node number"),
        ("('dil_conv_3x3', 2)", "'dil_conv_3x3'", "not a pair of an operation and a node number"),
        ("('dil_conv_3x3', 2)", "('dil_' + 'conv_3x3', 2)", "expected Genotype"),
        ("normal_concat=[2, 3, 4, 5]", "normal_concat=range(3, 6)", r"expected normal_concat=range\(2, 6\)"),
        ("normal_concat=[2, 3, 4, 5]", "normal_concat=range(6)", "range needs two numbers"),
        ("normal_concat=[2, 3, 4, 5]", "normal_concat=4", "expected Genotype"),
        ("reduce=", "other=", "its arguments are not normal, normal_concat, reduce, reduce_concat"),
        ("reduce_concat=[2, 3, 4, 5]", "**{}", "its arguments are not"),
        ("Genotype(", "Genotype('x', ", "its arguments are not"),
        ("Genotype", "Cells", r"not a Genotype\(...\)"),
        ("Genotype(", "Genotype((", "expected Genotype"),
        ("'sep_conv_3x3'", r"'\w'", "it contains a backslash"),
    ],
)
@pytest.mark.filterwarnings("error")  # Python's warning about an unknown escape
def test_invalid_strings_raise_an_error(old, new, message):
    with pytest.raises(InvalidArchitecture, match=message):
        SPACE.decode(DARTS_V2.replace(old, new, 1))


def test_no_code_in_a_string_is_executed(tmp_path):
    written = tmp_path / "written"
    call = f"__import__('pathlib').Path({str(written)!r}).touch()"
    for text in (call, DARTS_V2.replace("[2, 3, 4, 5]", call, 1), DARTS_V2.replace("'sep_conv_3x3'", call, 1)):
        with pytest.raises(InvalidArchitecture):
            SPACE.decode(text)
    assert not written.exists()


@pytest.mark.parametrize("text", ["(" * 1000, "[" * 4000, "-" * 4000, "9" * 100_000])
def test_texts_that_are_hard_for_a_parser(text):
    with pytest.raises(InvalidArchitecture, match="expected Genotype"):
        SPACE.decode(text)


def test_wrong_tuples_raise_an_error():
    with pytest.raises(InvalidArchitecture, match="24 choices, got 3 choices"):
        SPACE.encode(("0,1", "none", "none"))
    with pytest.raises(InvalidArchitecture, match=r"no choice '1,0' for normal_2_inputs\. Choose one of 0,1"):
        SPACE.encode(("1,0", *SPACE.decode(DARTS_V2)[1:]))


def layers(edges, order):
    """The edges of a cell (target, source, operation), without `none`, with node n called order[n]."""
    name = {0: 0, 1: 1, **dict(zip(NODES, order, strict=True))}
    return {
        (name[2 + number // 2], name[source], operation)
        for number, (operation, source) in enumerate(edges)
        if operation != "none"
    }


def isomorphic(one, other):
    """Whether some renaming of the nodes turns one cell into the other, by trying all, with or without an effect."""
    return any(layers(one, order) == layers(other, NODES) for order in itertools.permutations(NODES))


@given(both)
def test_canonical_is_the_first_of_the_isomorphic_cells(drawn):
    space, architecture = drawn
    form = space.canonical(architecture)
    for one, other in zip(space.genotype(architecture), space.genotype(form), strict=True):
        assert isomorphic(one, other)
    rank = [d.choices.index(choice) for d, choice in zip(space.decisions, architecture, strict=True)]
    lowest = [d.choices.index(choice) for d, choice in zip(space.decisions, form, strict=True)]
    assert lowest <= rank


@given(both, seeds)
def test_canonical_merges_isomorphic_cells_and_no_others(drawn, seed):
    space, architecture = drawn
    rng = np.random.default_rng(seed)
    genotype = space.genotype(architecture)
    # Another spelling of the same cells: nodes in a random order that their edges allow.
    spelled = []
    for edges in genotype:
        allowed = []
        for order in itertools.permutations(NODES):
            named = {0: 0, 1: 1, **dict(zip(NODES, order, strict=True))}
            nodes = {named[2 + n]: [(op, named[s]) for op, s in edges[2 * n : 2 * n + 2]] for n in range(4)}
            if all(source < node for node, pair in nodes.items() for _, source in pair):
                allowed.append(tuple(itertools.chain(*(nodes[node] for node in NODES))))
        spelled.append(allowed[rng.integers(len(allowed))])
    assert space.canonical(space.architecture(Genotype(*spelled))) == space.canonical(architecture)
    # A neighbor: merged exactly if it is isomorphic.
    mutant = space.mutate(architecture, rng)
    same = all(isomorphic(*cells) for cells in zip(genotype, space.genotype(mutant), strict=True))
    assert (space.canonical(mutant) == space.canonical(architecture)) == same


def test_the_source_of_a_none_does_not_matter():
    architecture = WITH_NONE.decode(DARTS_V2.replace("('dil_conv_3x3', 2)", "('none', 2)"))
    other = WITH_NONE.decode(DARTS_V2.replace("('dil_conv_3x3', 2)", "('none', 4)"))
    assert architecture != other
    assert WITH_NONE.canonical(architecture) == WITH_NONE.canonical(other)


def cell_of(*sources):
    return tuple(("skip_connect", source) for source in sources)


def test_width_and_depth_of_a_cell():
    """DARTS' normal cell is 3.5 wide and 3 deep (Shu 2022, section 4.2.2); then the extremes."""
    genotype = SPACE.genotype(SPACE.decode(DARTS_V2))
    assert cell_shape(genotype.normal) == (3.5, 3)
    assert cell_shape(cell_of(*(0, 1) * 4)) == (4.0, 2), "the widest and shallowest"
    assert cell_shape(cell_of(0, 1, 1, 2, 2, 3, 3, 4)) == (1.5, 5), "the narrowest and deepest"
    for architecture in map(SPACE.sample, [np.random.default_rng(0)] * 50):
        for cell in SPACE.genotype(architecture)[:2]:
            width, depth = cell_shape(cell)
            assert 1 <= width <= 4 and 2 <= depth <= 5
