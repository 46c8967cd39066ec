"""Published cells: their shapes and sizes in Shu (2022), their names as architectures, and their variants."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from archray.errors import InvalidArchitecture
from archray.platform.methods.ensembles.config import OneArchitectureConfig
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.spaces import SPACES, DARTSWithNone, NASNet, get_space
from archray.trainables.spaces.genotypes import (
    CELLS,
    Genotype,
    cell_shape,
    connection_variants,
    named_architectures,
    operation_variants,
    spelled_out,
    widest,
)

ALL = [(space, name) for space in SPACES for name in SPACES.get(space).named]
SHAPES = {  # of the normal cells: Shu 2022, Figure 4.1
    "nasnet": (5, 2),
    "amoebanet": (4, 4),
    "enas": (5, 2),
    "darts-v2": (3.5, 3),
    "snas-mild": (4, 2),
}
WIDEST = {"darts-v2": 4, "snas-mild": 4, "nasnet": 5, "amoebanet": 5, "enas": 5}
# MB of parameters at 20 cells of 36 channels on CIFAR-10: Shu 2022, Table 4.3, column C_0
SIZES = {"darts-v2": 3.35, "enas": 3.86, "amoebanet": 3.15, "nasnet": 3.83}


def architecture_named(name):
    space = get_space(named_architectures()[name][0])
    return space, space.decode(space.named[name])


@pytest.mark.parametrize(("space", "name"), ALL)
def test_a_name_represents_its_string(space, name):
    space = get_space(space)
    text = spelled_out(space, name)
    assert spelled_out(space, text) == text == space.encode(space.decode(space.named[name]))
    network = build(space, name, network=NetworkSettings(channels=2, cells=1), in_channels=1, num_classes=3, seed=0)
    assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 3)


@pytest.mark.parametrize("name", SHAPES)
def test_width_and_depth_equal_those_of_the_figure(name):
    space, architecture = architecture_named(name)
    assert cell_shape(space.genotype(architecture).normal) == SHAPES[name]


@pytest.mark.parametrize("name", SIZES)
def test_sizes_equal_those_of_the_table(name):
    space, architecture = architecture_named(name)
    with torch.device("meta"):
        evaluation = NetworkSettings(channels=36, cells=6)
        network = build(space, architecture, network=evaluation, in_channels=3, num_classes=10, seed=None)
    assert count_parameters(network) / 1e6 == pytest.approx(SIZES[name], abs=0.005)


def test_printed_outputs_are_the_nodes_without_readers():
    space = NASNet()
    for name, reduce in (("nasnet", (4, 5, 6)), ("amoebanet", (3, 4, 6)), ("enas", (2, 3, 6))):
        _, architecture = architecture_named(name)
        assert space.outputs(space.genotype(architecture).reduce) == reduce
        wrong = space.named[name].replace(f"reduce_concat={list(reduce)}", "reduce_concat=range(2, 7)")
        with pytest.raises(InvalidArchitecture, match=r"expected reduce_concat=\[.*no other node reads, got \[2, 3, 4"):
            space.decode(wrong)


def test_a_node_that_reads_another_twice_has_its_operations_in_order():
    space, architecture = architecture_named("nasnet")
    normal, reduce = space.genotype(architecture)
    swapped = (*normal[:2], normal[3], normal[2], *normal[4:])  # node 3, whose two sources are one
    assert {source for _, source in normal[2:4]} == {0}
    other = space.architecture(Genotype(swapped, reduce))
    assert other != architecture
    assert space.canonical(other) == space.canonical(architecture)


@pytest.mark.parametrize(
    ("space", "text", "message"),
    [
        ("darts", "enas", "expected an architecture of the space darts, got 'enas', which is in nasnet. Choose"),
        (
            "nasnet",
            "darts-v2",
            "which is in darts and darts-none. Choose that space, or one of nasnet, amoebanet, enas",
        ),
        ("darts", "darts-v3", "no architecture 'darts-v3' in the space darts; did you mean 'darts-v"),
        ("nasbench201", "darts-v2", "expected an architecture of the space nasbench201, got 'darts-v2'"),
    ],
)
def test_a_name_of_another_space_raises_an_error_with_that_space(space, text, message):
    with pytest.raises(InvalidArchitecture, match=message) as caught:
        spelled_out(get_space(space), text)
    assert "\n" not in str(caught.value)


def test_a_configuration_accepts_a_name():
    config = OneArchitectureConfig(space="darts", architecture="darts-v2")
    assert config.architecture == spelled_out(get_space("darts"), "darts-v2")
    other = OneArchitectureConfig(space="darts", architecture="enas")
    with pytest.raises(InvalidArchitecture, match="which is in nasnet"):
        other.check()


# Variants


def edges_of(space, architecture):
    return list(zip(CELLS, space.genotype(architecture), strict=True))


@settings(max_examples=10)
@given(st.sampled_from(ALL), st.integers(0, 2**32 - 1))
def test_variants_keep_the_required_properties(of, seed):
    space = get_space(of[0])
    architecture = space.decode(space.named[of[1]])
    for draw in (connection_variants, operation_variants):
        variants = draw(space, architecture, 4, seed)
        assert variants == draw(space, architecture, 4, seed)
        assert len({space.canonical(variant) for variant in (*variants, architecture)}) == 5
        for variant in variants:
            space.check(variant)
            for (_, new), (_, old) in zip(edges_of(space, variant), edges_of(space, architecture), strict=True):
                for at in range(0, len(old), 2):
                    pairs = [sorted(each[at : at + 2], key=lambda edge: edge[0]) for each in (new, old)]
                    kept = 0 if draw is connection_variants else 1
                    assert sorted(e[kept] for e in pairs[0]) == sorted(e[kept] for e in pairs[1])


@pytest.mark.slow
def test_sources_are_uniform_over_the_previous_nodes():
    for space in (NASNet(), DARTSWithNone()):
        architecture = space.decode(next(iter(space.named.values())))
        drawn = [space.genotype(each).normal[-2:] for each in connection_variants(space, architecture, 1000, 0)]
        last = space.nodes[-1]
        shares = np.bincount([source for edges in drawn for _, source in edges], minlength=last) / 2000
        assert shares == pytest.approx(np.full(last, 1 / last), abs=0.04)
        assert any(one == other for (_, one), (_, other) in drawn) == space.repeated_inputs


@pytest.mark.parametrize("name", WIDEST)
def test_the_widest_form_is_widest_and_shallowest(name):
    space, architecture = architecture_named(name)
    form = widest(space, architecture)
    for _, edges in edges_of(space, form):
        assert cell_shape(edges) == (WIDEST[name], 2)
    assert widest(space, form) == form
    for (_, new), (_, old) in zip(edges_of(space, form), edges_of(space, architecture), strict=True):
        assert [operation for operation, _ in new] == [operation for operation, _ in old]
