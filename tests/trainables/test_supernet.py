"""Supernets: a forced path equals the standalone network, fused edges equal plain ones, and weights become
architectures.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.references import load_reference
from archray.trainables.nets import NetworkSettings, build, count_parameters
from archray.trainables.nets.darts_network import darts_network
from archray.trainables.nets.nasbench1shot1_network import search_network
from archray.trainables.spaces import get_space
from archray.trainables.supernets.networks import MixtureWeights, build_supernet, copy_weights, discretize, groups
from archray.trainables.supernets.networks.cells import depthwise, normalized_sum

TINY = NetworkSettings(channels=4, cells=1)
SPACES = ("nasbench201", "darts", "darts-none", "nasbench1shot1-1", "nasbench1shot1-2", "nasbench1shot1-3")


def standalone(name: str, architecture: tuple[str, ...]) -> torch.nn.Module:
    """The standalone network in search form (notes G3 and P5)."""
    if name != "nasbench201":
        sizes = {"channels": 4, "cells": 1, "in_channels": 3, "num_classes": 10}
        if name.startswith("darts"):
            return darts_network(get_space(name), architecture, **sizes, normalization="search").train()
        return search_network(get_space(name), architecture, **sizes).train()
    return build(name, architecture, network=TINY, in_channels=3, num_classes=10, seed=1, for_scoring=True)


def mixture(name: str, *, seed: int = 0, **options: int) -> dict[str, torch.Tensor]:
    """Random weights of every group, each row on the simplex."""
    generator = torch.Generator().manual_seed(seed)
    return {
        group.name: torch.rand(group.shape, generator=generator).softmax(dim=1) for group in groups(name, **options)
    }


@pytest.mark.parametrize("name", SPACES)
def test_a_forced_path_equals_the_standalone_network(name: str) -> None:
    space, rng = get_space(name), np.random.default_rng(0)
    supernet = build_supernet(space, TINY, in_channels=3, num_classes=10, seed=0).double()
    images = torch.rand(6, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        architecture = space.sample(rng)
        alone = standalone(name, architecture).double()
        copy_weights(supernet, architecture, alone)
        forced = copy.deepcopy(supernet)(images, supernet.path(architecture))
        assert torch.allclose(forced, alone(images), atol=1e-9), architecture


@pytest.mark.parametrize("name", SPACES)
def test_a_path_equals_the_mixture_of_one_hot_rows(name: str) -> None:
    space = get_space(name)
    supernet = build_supernet(space, TINY, in_channels=3, num_classes=10, seed=0).double()
    images = torch.rand(4, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    path = supernet.path(space.sample(np.random.default_rng(1)))
    dense = {group: weights.dense.double() for group, weights in path.items()}
    mixed = copy.deepcopy(supernet)(images, dense)
    assert torch.allclose(mixed, copy.deepcopy(supernet)(images, path), atol=1e-10)


def unfused(supernet: torch.nn.Module) -> torch.nn.Module:
    """The same supernet with a separate module for every operation."""
    plain = copy.deepcopy(supernet)
    for cell in plain.cells:
        cell.mixed.fused = None
    return plain


@pytest.mark.parametrize(
    ("channels", "partial", "size"),
    [
        (4, 2, 7),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((4, 1, 8), (16, 1, 6), (16, 2, 8))),
    ],
)
def test_fused_edges_equal_plain_ones(channels: int, partial: int, size: int) -> None:
    """Compares outputs and the gradients of weights, parameters and images in float64."""
    settings = NetworkSettings(channels=channels, cells=1)
    fused = build_supernet("darts-none", settings, 3, 10, seed=0, partial_channels=partial).double()
    plain = unfused(fused)
    given = mixture("darts-none", partial_channels=partial)
    outcomes = []
    for supernet in (fused, plain):
        images = torch.rand(4, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        images.requires_grad_()
        weights = {name: rows.double().requires_grad_() for name, rows in given.items()}
        logits = supernet(images, weights)
        logits.square().sum().backward()
        named = dict(supernet.named_parameters())
        outcomes.append(
            {
                "logits": logits.detach(),
                "images": images.grad,
                **{f"weights {name}": rows.grad for name, rows in weights.items()},
                **{f"parameter {name}": value.grad for name, value in named.items() if value.grad is not None},
                **{f"buffer {name}": value.double() for name, value in supernet.named_buffers()},
            }
        )
    assert outcomes[0].keys() == outcomes[1].keys()
    for name, value in outcomes[0].items():
        assert torch.allclose(value, outcomes[1][name], rtol=1e-7, atol=1e-7), name


@pytest.mark.parametrize("name", SPACES)
def test_discretizing_a_path_gives_its_architecture(name: str) -> None:
    space, rng = get_space(name), np.random.default_rng(2)
    supernet = build_supernet(space, TINY, in_channels=3, num_classes=10, seed=0)
    for _ in range(5):
        architecture = space.sample(rng)
        if "none" in architecture and name == "darts-none":
            continue  # DARTS never keeps `none` (note G4)
        if name.startswith("nasbench1shot1") and len(space.live(architecture)) < len(space.nodes):
            continue  # a path has no operation on a loose end
        weights = {group: rows.dense + 1e-3 for group, rows in supernet.path(architecture).items()}
        assert discretize(space, weights) == space.encode(architecture)


def test_partial_channels_are_shuffled_into_the_bypassed_ones() -> None:
    """With no operation at all, the output is the bypassed channels times the edges' weights."""
    supernet = build_supernet("nasbench201", TINY, 3, 10, seed=0, partial_channels=2)
    images = torch.rand(4, 3, 16, 16)
    weights = mixture("nasbench201", partial_channels=2)
    assert torch.isfinite(supernet(images, weights)).all()
    changed = {**weights, "inputs_3": weights["inputs_3"].flip(1)}
    assert not torch.allclose(supernet(images, weights), supernet(images, changed))


def test_partial_channels_with_operations_on_nodes() -> None:
    """Operations are narrower, and a node without an operation still passes on the bypassed channels."""
    whole, partial = (build_supernet("nasbench1shot1-1", TINY, 3, 10, seed=0, partial_channels=k) for k in (1, 2))
    assert count_parameters(partial) < count_parameters(whole)
    images = torch.rand(4, 3, 16, 16)
    weights = mixture("nasbench1shot1-1", partial_channels=2)
    none = {**weights, "operations": torch.zeros_like(weights["operations"])}
    assert torch.isfinite(partial(images, weights)).all()
    passed = [partial(images, {**none, "parents_2": row}) for row in torch.eye(2)[:, None]]
    assert not torch.allclose(*passed)


def test_wrong_weights_and_sizes_raise_an_error() -> None:
    supernet = build_supernet("nasbench201", TINY, 3, 10, seed=0)
    images = torch.rand(2, 3, 16, 16)
    with pytest.raises(InvalidInput, match="expected weights for edges, got none"):
        supernet(images, {})
    with pytest.raises(InvalidInput, match=r"shape \(6, 5\)"):
        supernet(images, {"edges": torch.ones(6, 4)})
    with pytest.raises(InvalidInput, match="divide"):
        build_supernet("nasbench201", TINY, 3, 10, seed=0, partial_channels=3)
    with pytest.raises(InvalidInput, match="partial_channels"):
        groups("darts", partial_channels=0)
    with pytest.raises(InvalidInput, match="divide"):
        build_supernet("nasbench1shot1-1", TINY, 3, 10, seed=0, partial_channels=3)
    with pytest.raises(InvalidInput, match="search form"):
        build_supernet("darts", NetworkSettings(normalization="training"), 3, 10, seed=0)
    with pytest.raises(InvalidInput, match="with or without none"):
        discretize("nasbench201", {"edges": torch.ones(6, 3)})
    whole = standalone("nasbench201", ("nor_conv_3x3",) * 6)
    partial = build_supernet("nasbench201", TINY, 3, 10, seed=0, partial_channels=2)
    with pytest.raises(InvalidInput, match="partial_channels 1"):
        copy_weights(partial, ("nor_conv_3x3",) * 6, whole)
    wide = build_supernet("nasbench201", NetworkSettings(channels=8, cells=1), 3, 10, seed=0)
    with pytest.raises(InvalidInput, match="size"):
        copy_weights(wide, ("nor_conv_3x3",) * 6, whole)


@pytest.mark.parametrize("partial", [pytest.param(1, marks=pytest.mark.slow), 4])
def test_the_benchmarks_reference_agrees(partial: int) -> None:
    """One module per operation and a shuffle per edge, as in the original: outputs and gradients."""
    benchmark = Path(__file__).parents[2] / "benchmarks" / "supernet_step.py"
    assert load_reference(f"{benchmark}:agree")(partial)


@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 1, 1), (5, 1, 1), (3, 1, 2), (5, 1, 2), (5, 2, 1)])
@pytest.mark.parametrize(
    ("size", "layout"),
    [((4, 4), torch.contiguous_format), ((5, 7), torch.channels_last), ((12, 8), torch.channels_last)],
)
def test_depthwise_gradients(
    kernel: int, stride: int, dilation: int, size: tuple[int, int], layout: torch.memory_format
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *size, dtype=torch.float64, generator=generator).contiguous(memory_format=layout)
    weight = torch.randn(3, 1, kernel, kernel, dtype=torch.float64, generator=generator).requires_grad_()
    x.requires_grad_()
    expected = F.conv2d(x, weight, None, stride, dilation * (kernel // 2), dilation, groups=3)
    found = depthwise(x, weight, stride, dilation)
    assert torch.allclose(found, expected)
    above = torch.randn(expected.shape, dtype=torch.float64, generator=generator)
    for ours, torchs in zip(
        torch.autograd.grad(found, (x, weight), above), torch.autograd.grad(expected, (x, weight), above), strict=True
    ):
        assert torch.allclose(ours, torchs, rtol=1e-10, atol=1e-10)


def test_the_gradient_of_a_normalized_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 3, 2, 2, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2)]
    mixture = torch.rand(2, 3, dtype=torch.float64, generator=generator).requires_grad_()
    for relu in (False, True):
        assert torch.autograd.gradcheck(
            lambda w, *y, relu=relu: normalized_sum(y, w, relu=relu), (mixture, *inputs), atol=1e-6
        )


def test_only_the_chosen_operation_is_evaluated_and_its_weight_has_a_gradient() -> None:
    supernet = build_supernet("darts", TINY, 3, 10, seed=0)
    weights = {}
    for group in supernet.groups:
        dense = torch.zeros(group.shape)
        dense[:, 4] = 1.0
        weights[group.name] = MixtureWeights(dense.requires_grad_(), torch.full((group.edges,), 4))
    supernet(torch.rand(2, 3, 8, 8), weights).square().sum().backward()
    for name, parameter in supernet.named_parameters():
        if ".edges." in name:
            assert (parameter.grad is not None) == (".sep_conv_3x3." in name), name
    for each in weights.values():
        assert each.dense.grad is not None
        assert (each.dense.grad[:, 4] != 0).all()
        assert not each.dense.grad[:, :4].any()


@pytest.mark.parametrize("partial", [1, 2])
def test_none_on_every_edge(partial: int) -> None:
    supernet = build_supernet("darts", TINY, 3, 10, seed=0, partial_channels=partial)
    weights = {
        group.name: MixtureWeights(torch.zeros(group.shape), torch.full((group.edges,), -1))
        if group.name in ("normal", "reduce")
        else torch.ones(group.shape)
        for group in supernet.groups
    }
    assert supernet(torch.rand(2, 3, 7, 7), weights).isfinite().all()


def test_darts_keeps_the_two_strongest_edges_of_a_node() -> None:
    names = groups("darts")[0].operations
    rows = {group.name: torch.full(group.shape, 0.1) for group in groups("darts", partial_channels=4)}
    node_3 = slice(2, 5)  # its three edges
    rows["normal"][node_3, names.index("none")] = 0.9  # never kept, and not ranked
    rows["normal"][node_3, names.index("dil_conv_5x5")] = torch.tensor([0.5, 0.4, 0.3])
    kept = get_space("darts").genotype(get_space("darts").decode(discretize("darts", rows))).normal
    assert kept[2:4] == (("dil_conv_5x5", 0), ("dil_conv_5x5", 1))
    rows["normal_inputs_3"] = torch.tensor([[0.1, 0.2, 0.7]])  # products 0.05, 0.08, 0.21
    kept = get_space("darts").genotype(get_space("darts").decode(discretize("darts", rows))).normal
    assert kept[2:4] == (("dil_conv_5x5", 1), ("dil_conv_5x5", 2))
    without = {group.name: torch.rand(group.shape) for group in groups("darts", none=False)}
    assert "none" not in discretize("darts", without)


def test_the_seed_determines_the_weights_and_leaves_the_global_generator() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (build_supernet("nasbench201", TINY, 3, 10, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(one.classifier.weight, other.classifier.weight)
