"""canonical merges exactly the cells that are the same network, compared with two slow, independent references."""

import itertools
import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from archray.trainables.nets import NetworkSettings, build
from archray.trainables.spaces import NASBench201
from archray.trainables.spaces.nasbench201 import EDGES, OPERATIONS

SPACE = NASBench201()
CONVOLUTIONS = ("nor_conv_1x1", "nor_conv_3x3")
cells = st.tuples(*[st.sampled_from(OPERATIONS)] * 6)


@cache
def cells_of_forms():
    """Returns the cells of each canonical form, in enumeration order."""
    forms = {}
    for cell in SPACE.enumerate():
        forms.setdefault(SPACE.canonical(cell), []).append(cell)
    return forms


def spellings_of(cell):
    return cells_of_forms()[SPACE.canonical(cell)]


def fingerprint(cell):
    """A number that two cells share exactly when they compute the same function up to renaming of their layers.

    The cell is evaluated on numbers: pooling multiplies by a constant (it is linear), and each layer is a different
    nonlinear function that maps 0 to 0. The lowest outcome over all assignments of six functions per kind of layer does
    not depend on the names of layers. Two different expressions agree with probability 0.
    """
    layers = [[e for e, op in enumerate(cell) if op == kind] for kind in CONVOLUTIONS]
    chosen = [list(itertools.permutations(range(6), len(edges))) for edges in layers]
    grid = list(itertools.product(*chosen))
    rates = np.zeros((6, len(grid)))
    for column, pair in enumerate(grid):
        for kind, (edges, numbers) in enumerate(zip(layers, pair, strict=True)):
            for edge, number in zip(edges, numbers, strict=True):
                rates[edge, column] = math.sqrt(2 + number) + 3.1 * kind
    nodes = [np.full(len(grid), 0.7), *[np.zeros(len(grid)) for _ in range(3)]]
    for edge, ((target, source), op) in enumerate(zip(EDGES, cell, strict=True)):
        x = nodes[source]
        if op == "skip_connect":
            nodes[target] = nodes[target] + x
        elif op == "avg_pool_3x3":
            nodes[target] = nodes[target] + 0.61803 * x
        elif op != "none":
            nodes[target] = nodes[target] + np.sin(rates[edge] * x) * rates[edge]
    return round(float(nodes[3].min()), 9)


def assert_same_partition(some_cells):
    forms, prints = {}, {}
    for cell in some_cells:
        form, number = SPACE.canonical(cell), fingerprint(cell)
        assert forms.setdefault(form, number) == number, f"{cell} is merged with another function, {form}"
        assert prints.setdefault(number, form) == form, f"{cell} and {form} are one function, yet kept apart"


def test_canonical_merges_exactly_the_cells_with_the_same_function():
    rng = np.random.default_rng(0)
    drawn = [SPACE.sample(rng) for _ in range(400)]
    related = [spelling for cell in drawn[:60] for spelling in spellings_of(cell)[:6]]
    assert_same_partition(drawn + related)


@pytest.mark.slow
def test_canonical_on_the_whole_space():
    assert_same_partition(SPACE.enumerate())


def benchmark_unique_string(cell):
    """NAS-Bench-201's string of a cell: zeros and skips are resolved, and the sum of a node is sorted."""
    nodes, terms = {0: "0"}, {1: [], 2: [], 3: []}
    for (target, source), op in zip(EDGES, cell, strict=True):
        if source not in nodes:
            nodes[source] = "+".join(sorted(terms[source]))
        if op == "none" or nodes[source] == "#":
            terms[target].append("#")
        else:
            terms[target].append(nodes[source] if op == "skip_connect" else f"({nodes[source]})@{op}")
    return "+".join(sorted(terms[3]))


def test_number_of_networks_equals_the_published_count():
    published, ours = {}, set()
    for cell in SPACE.enumerate():
        published.setdefault(benchmark_unique_string(cell), set()).add(SPACE.canonical(cell))
        ours.add(SPACE.canonical(cell))
    assert len(published) == 6466  # Dong and Yang 2020, sec. 2.1
    # archray counts fewer because the published count keeps dead zeros and the order of nested sums. On the other hand,
    # it gives one string to a layer that is used twice and to two equal layers, which archray distinguishes.
    assert len(ours) == 5044
    assert sum(len(forms) > 1 for forms in published.values()) == 430
    live = [cell for cell in SPACE.enumerate() if SPACE.canonical(cell) != ("none",) * 6]
    assert len(live) == 15284  # cells with any path from input to output


@given(cells)
def test_canonical_is_the_lowest_spelling(cell):
    form = SPACE.canonical(cell)
    spellings = spellings_of(cell)
    assert cell in spellings
    assert spellings[0] == form
    index = {op: i for i, op in enumerate(OPERATIONS)}
    assert min(spellings, key=lambda c: [index[op] for op in c]) == form


@given(cells)
def test_relabeling_the_two_inner_nodes_when_nothing_joins_them(cell):
    a, b, _, d, e, f = cell
    assert SPACE.canonical((a, b, "none", d, e, f)) == SPACE.canonical((b, a, "none", d, f, e))


@given(cells, st.sampled_from(OPERATIONS), st.sampled_from(OPERATIONS))
def test_dead_parts_do_not_matter(cell, first, second):
    a, b, _c, d, e, f = cell
    # Node 1 leads nowhere; node 2 is never reached.
    assert SPACE.canonical((a, b, "none", d, "none", f)) == SPACE.canonical((first, b, "none", d, "none", f))
    assert SPACE.canonical((a, "none", "none", d, e, first)) == SPACE.canonical((a, "none", "none", d, e, second))


def canonical(*operations):
    return SPACE.canonical(operations)


def test_a_shared_layer_differs_from_two_layers():
    conv, skip = "nor_conv_3x3", "skip_connect"
    shared = canonical(conv, "none", skip, "none", skip, skip)  # 2 conv_a(x)
    apart = canonical(conv, conv, "none", "none", skip, skip)  # conv_a(x) + conv_b(x)
    assert shared != apart


def test_cells_without_a_path_are_equal():
    assert canonical("none", "none", "nor_conv_3x3", "none", "skip_connect", "avg_pool_3x3") == ("none",) * 6


@settings(max_examples=10)
@given(cells, st.integers(0, 5))
def test_spellings_are_one_network_with_copied_weights(cell, pick):
    """Some assignment of one network's edge weights to the other's edges gives the same outputs."""
    spellings = spellings_of(cell)
    other = spellings[(pick * 7919) % len(spellings)]
    network = NetworkSettings(channels=2, cells=1)
    ours, theirs = (
        build(SPACE, c, network=network, in_channels=1, num_classes=3, seed=seed, for_scoring=True).double()
        for seed, c in enumerate((cell, other))
    )
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    expected = ours(images)
    differences = []
    for assignment in assignments(cell, other, ours, theirs):
        copy_weights(ours, theirs, assignment)
        differences.append((theirs(images) - expected).abs().max().item())
    assert min(differences) < 1e-9


def assignments(cell, other, ours, theirs):
    """Returns all assignments of their live convolution edges to those of the first network of the same kind."""
    mine, yours = (
        [[e for e in network_cell(n).live if c[e] == kind] for kind in CONVOLUTIONS]
        for c, n in ((cell, ours), (other, theirs))
    )
    assert [len(edges) for edges in mine] == [len(edges) for edges in yours]
    for orders in itertools.product(*(itertools.permutations(edges) for edges in mine)):
        yield [pair for to, order in zip(yours, orders, strict=True) for pair in zip(to, order, strict=True)]


def network_cell(network):
    return next(module for module in network.modules() if hasattr(module, "live"))


def copy_weights(source: nn.Module, target: nn.Module, assignment):
    state = source.state_dict()
    for name in target.state_dict():
        if ".edges." not in name:
            target.state_dict()[name].copy_(state[name])
    names = [f"{t}<-{s}" for t, s in EDGES]
    for to, edge in assignment:
        for name, tensor in target.state_dict().items():
            if f".edges.{names[to]}." in name:
                tensor.copy_(state[name.replace(names[to], names[edge])])
