"""NAS-Bench-1Shot1's networks: a published size, widths of vertices, plain second implementations, and the forms."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.nets import NetworkSettings, build, count_multiply_adds, count_parameters
from archray.trainables.nets.nasbench1shot1_network import OPERATIONS as MODULES
from archray.trainables.nets.nasbench1shot1_network import (
    Cell,
    ConvBNReLU,
    nasbench1shot1_network,
    search_network,
    vertex_channels,
)
from archray.trainables.spaces import NASBench1Shot1Space1, NASBench1Shot1Space2, NASBench1Shot1Space3, NASBench201
from archray.trainables.spaces.nasbench1shot1 import OPERATIONS

SPACES = ONE, TWO, THREE = (NASBench1Shot1Space1(), NASBench1Shot1Space2(), NASBench1Shot1Space3())
KNOWN = {
    ONE: "conv3x3-bn-relu~0+maxpool3x3~0,1+conv1x1-bn-relu~0,2+conv1x1-bn-relu~1,3+output~0,4",
    TWO: "conv3x3-bn-relu~0+conv1x1-bn-relu~1+maxpool3x3~0,2+conv3x3-bn-relu~1,3+output~2,3,4",
    THREE: "conv3x3-bn-relu~0+maxpool3x3~1+conv1x1-bn-relu~0+conv3x3-bn-relu~2,3+conv1x1-bn-relu~0,4+output~4,5",
}
SMALL = NetworkSettings(channels=4, cells=1)
by_name = pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
any_space = st.sampled_from(SPACES).flatmap(
    lambda space: st.tuples(st.just(space), st.tuples(*[st.sampled_from(d.choices) for d in space.decisions]))
)


def network_of(space, architecture=None, *, form="training", channels=4, cells=1, in_channels=1):
    torch.manual_seed(0)
    architecture = architecture or space.decode(KNOWN[space])
    sizes = {"channels": channels, "cells": cells, "in_channels": in_channels, "num_classes": 10}
    if form == "search":
        return search_network(space, architecture, **sizes)
    return nasbench1shot1_network(space, architecture, **sizes, normalization=form)


def images(n=4, channels=1, size=8):
    return torch.randn(n, channels, size, size, generator=torch.Generator().manual_seed(0))


def test_the_published_size_of_an_inception_cell():
    """Ying et al. 2019, figure 1; their program prints 2694282 trainable parameters for it."""
    edges = {(0, 1), (0, 2), (0, 3), (0, 5), (1, 6), (2, 6), (3, 4), (4, 6), (5, 6)}
    matrix = tuple(tuple(int((a, b) in edges) for b in range(7)) for a in range(7))
    one, three, pool = OPERATIONS
    module = matrix, ("input", one, three, three, three, pool, "output")
    stacks = [Cell(*module, 128, 128, "training") for _ in range(3)]
    for width in (256, 512):
        stacks += [Cell(*module, given, width, "training") for given in (width // 2, width, width)]
    parts = [ConvBNReLU(3, 128, 3, affine=True, running=True), *stacks, nn.Linear(512, 10)]
    assert sum(count_parameters(part) for part in parts) == 2_694_282


def test_nine_cells_as_in_the_benchmark():
    network = network_of(ONE, channels=128, cells=3, in_channels=3)
    cells = [layer for layer in network.stacks if isinstance(layer, Cell)]
    assert [cell.widths[-1] for cell in cells] == [128] * 3 + [256] * 3 + [512] * 3
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in network.stacks) == 2


@given(any_space, st.integers(3, 64))
def test_widths_share_the_output(drawn, channels):
    space, architecture = drawn
    matrix = space.to_nasbench101(architecture, pad=False).matrix
    widths, last = vertex_channels(matrix, channels), len(matrix) - 1
    shared = [widths[v] for v in range(1, last) if matrix[v][last]]
    assert sum(shared) == channels == widths[last]
    assert max(shared) - min(shared) <= 1
    for vertex in range(1, last):
        fed = [widths[f] for f in range(vertex + 1, last) if matrix[vertex][f]]
        assert all(widths[vertex] >= width > 0 for width in fed)
        assert matrix[vertex][last] or widths[vertex] == max(fed)


def plain_norm(state, x, name):
    return F.batch_norm(x, None, None, state.get(f"{name}.weight"), state.get(f"{name}.bias"), True, eps=1e-5)


def conv_norm_relu(state, x, name):
    weight = state[f"{name}.0.weight"]
    return plain_norm(state, F.conv2d(x, weight, padding=weight.shape[-1] // 2), f"{name}.1").clamp(min=0)


def apply_operation(state, x, name, kind):
    if kind == "maxpool3x3":
        return F.pad(x, (1, 1, 1, 1), value=-torch.inf).unfold(2, 3, 1).unfold(3, 3, 1).flatten(4).amax(-1)
    return conv_norm_relu(state, x, name)


def plain_evaluation_cell(state, name, space, architecture, channels, x):
    """Built from the graph with its loose ends, and widths by the published rule."""
    operations, parents = space.graph(architecture)
    live = space.live(architecture)
    number = {node: at for at, node in enumerate([*live, len(parents)], 1)}
    branches = [p for p in parents[-1] if p > 0]
    shares = {p: channels // len(branches) + (at < channels % len(branches)) for at, p in enumerate(branches)}

    def width(node):
        return shares.get(node) or max(width(fed) for fed in live if node in parents[fed - 1])

    values = {}
    for node in live:
        terms = [values[p][:, : width(node)] for p in parents[node - 1] if p > 0]
        if 0 in parents[node - 1]:
            terms.append(conv_norm_relu(state, x, f"{name}.projections.{number[node]}"))
        values[node] = apply_operation(state, sum(terms), f"{name}.operations.{number[node]}", operations[node - 1])
    out = torch.cat([values[p] for p in branches], 1)
    if 0 in parents[-1]:
        out = out + conv_norm_relu(state, x, f"{name}.projections.{number[len(parents)]}")
    return out


def plain_search_cell(state, name, space, architecture, channels, x):
    """Computes all nodes in order. Nodes that are not parents of the output are zeros in its concatenation."""
    operations, parents = space.graph(architecture)
    zeros = torch.zeros(len(x), channels, *x.shape[2:], dtype=x.dtype)
    values = []
    for node in space.nodes:
        if node not in space.live(architecture):
            values.append(zeros)
            continue
        terms = [values[p - 1] for p in parents[node - 1] if p > 0]
        if 0 in parents[node - 1]:
            terms.append(conv_norm_relu(state, x, f"{name}.projections.{node}"))
        values.append(apply_operation(state, sum(terms), f"{name}.operations.{node}", operations[node - 1]))
    first = conv_norm_relu(state, x, f"{name}.projections.output") if 0 in parents[-1] else zeros
    return torch.cat([first, *(v if n in parents[-1] else zeros for n, v in enumerate(values, 1))], 1)


@settings(max_examples=12)
@given(any_space, st.sampled_from(["search", "training", "scoring"]))
def test_outputs_equal_a_plain_implementation(drawn, form):
    space, architecture = drawn
    # 5 channels: branches of unequal width.
    network = network_of(space, architecture, form=form, channels=5).double()
    state, x = network.state_dict(), images().double()
    plain_cell = plain_search_cell if form == "search" else plain_evaluation_cell
    expected = conv_norm_relu(state, x, "stem")
    for number in range(3):
        if number > 0:
            expected = expected.unflatten(-1, (-1, 2)).unflatten(-3, (-1, 2)).amax(dim=(-1, -3))
        expected = plain_cell(state, f"stacks.{2 * number}", space, architecture, 5 * 2**number, expected)
    if form == "search":
        expected = plain_norm(state, F.conv2d(expected.clamp(min=0), state["head.1.weight"]), "head.2")
    expected = expected.mean(dim=(2, 3)) @ state["classifier.weight"].T + state["classifier.bias"]
    torch.testing.assert_close(network(x), expected, rtol=1e-9, atol=1e-9)


@by_name
def test_loose_ends_do_not_matter(space):
    def canonical_network(architecture):
        network = network_of(space, architecture, channels=12)
        return {name: tensor.shape for name, tensor in network.state_dict().items()}, network(images())

    for architecture in list(space.enumerate())[:: space.size // 15]:
        loose = [node for node in space.nodes if node not in space.live(architecture)]
        changed = list(architecture)
        for node in loose:
            changed[2 * node - 2] = "maxpool3x3" if changed[2 * node - 2] != "maxpool3x3" else "conv3x3-bn-relu"
        (shapes, logits), (other_shapes, other) = canonical_network(architecture), canonical_network(tuple(changed))
        assert shapes == other_shapes
        assert torch.equal(logits, other)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_keeps_the_shape(operation):
    for form in ("search", "training", "scoring"):
        assert MODULES[operation](6, form)(torch.randn(2, 6, 5, 7)).shape == (2, 6, 5, 7)
    assert tuple(MODULES) == OPERATIONS


@by_name
def test_normalization_of_the_forms(space):
    for form, running, affine in (("search", False, False), ("training", True, True), ("scoring", False, False)):
        for name, layer in network_of(space, form=form).named_modules():
            if isinstance(layer, nn.BatchNorm2d):
                assert layer.track_running_stats is running
                assert layer.affine is (True if name.startswith("stem") else affine)


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 32), (3, 15), (2, 4)])
@pytest.mark.parametrize("form", ["search", "training"])
def test_input_sizes(channels, size, form):
    assert network_of(TWO, form=form, in_channels=channels)(images(4, channels, size)).shape == (4, 10)


def test_flops_by_hand():
    # One node: stem 3 x 3, per stack the projection to the node and its 3 x 3, the projection to the output.
    text = "conv3x3-bn-relu~0+conv1x1-bn-relu~0,1+conv1x1-bn-relu~0,1+conv1x1-bn-relu~0,1+output~0,1"
    network = build(ONE, text, network=SMALL, in_channels=1, num_classes=10, seed=0)
    by_stack = [(64, 4, 4), (16, 4, 8), (4, 8, 16)]  # positions, channels before, channels
    cells = sum(at * (2 * before * width + 9 * width * width) for at, before, width in by_stack)
    assert count_multiply_adds(network, (1, 8, 8)) == 64 * 9 * 4 + cells + 16 * 10


def test_invalid_networks_raise_an_error():
    with pytest.raises(InvalidArchitecture, match="expected 4 nodes and the output"):
        build(TWO, KNOWN[THREE], network=SMALL, in_channels=1, num_classes=2, seed=0)
    with pytest.raises(InvalidInput, match="at least one channel per branch of a cell, 3 channels, got 2"):
        network_of(TWO, channels=2)
    options = {"channels": 4, "cells": 1, "in_channels": 1, "num_classes": 2, "normalization": "training"}
    with pytest.raises(InvalidInput, match=r"expected a space of NAS-Bench-1Shot1, got 'nasbench201'"):
        nasbench1shot1_network(NASBench201(), ("none",) * 6, **options)
