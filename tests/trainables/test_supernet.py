"""Supernets: a forced path is the standalone network, fused edges are the plain ones, weights become architectures."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from archray.errors import InvalidInput
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.nets.darts import build_darts
from archray.trainables.nets.supernet import build_supernet, copy_weights, discretise, groups
from archray.trainables.spaces import get_space

TINY = NetworkSettings(channels=4, cells=1)
SPACES = ("nasbench201", "darts", "darts-none")


def standalone(name: str, architecture: tuple[str, ...]) -> torch.nn.Module:
    """The standalone network in search form (notes G3 and P5)."""
    if name.startswith("darts"):
        sizes = {"channels": 4, "cells": 1, "in_channels": 3, "num_classes": 10}
        return build_darts(get_space(name), architecture, **sizes, normalisation="search").train()
    return build(name, architecture, network=TINY, in_channels=3, num_classes=10, seed=1, for_scoring=True)


def mixture(name: str, *, seed: int = 0, **options: int) -> dict[str, torch.Tensor]:
    """Random weights of every group, each row on the simplex."""
    generator = torch.Generator().manual_seed(seed)
    return {
        group.name: torch.rand(group.shape, generator=generator).softmax(dim=1) for group in groups(name, **options)
    }


@pytest.mark.parametrize("name", SPACES)
def test_forced_path_is_the_standalone_network(name: str) -> None:
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
def test_a_path_is_the_mixture_of_one_hot_rows(name: str) -> None:
    space = get_space(name)
    supernet = build_supernet(space, TINY, in_channels=3, num_classes=10, seed=0).double()
    images = torch.rand(4, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    path = supernet.path(space.sample(np.random.default_rng(1)))
    dense = {group: weights.dense.double() for group, weights in path.items()}
    mixed = copy.deepcopy(supernet)(images, dense)
    assert torch.allclose(mixed, copy.deepcopy(supernet)(images, path), atol=1e-10)


def unfused(supernet: torch.nn.Module) -> torch.nn.Module:
    """The same supernet, every operation by its own module."""
    plain = copy.deepcopy(supernet)
    for cell in plain.cells:
        cell.mixed.fused = None
    return plain


@pytest.mark.parametrize("channels", [4, 16])
@pytest.mark.parametrize("partial", [1, 2])
def test_fused_edges_are_the_plain_ones(channels: int, partial: int) -> None:
    """Outputs, gradients of weights, parameters and images, and running statistics, in float64."""
    settings = NetworkSettings(channels=channels, cells=1)
    fused = build_supernet("darts-none", settings, 3, 10, seed=0, partial_channels=partial).double()
    plain = unfused(fused)
    given = mixture("darts-none", partial_channels=partial)
    told = []
    for supernet in (fused, plain):
        images = torch.rand(4, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        images.requires_grad_()
        weights = {name: rows.double().requires_grad_() for name, rows in given.items()}
        logits = supernet(images, weights)
        logits.square().sum().backward()
        named = dict(supernet.named_parameters())
        told.append(
            {
                "logits": logits.detach(),
                "images": images.grad,
                **{f"weights {name}": rows.grad for name, rows in weights.items()},
                **{f"parameter {name}": value.grad for name, value in named.items() if value.grad is not None},
                **{f"buffer {name}": value.double() for name, value in supernet.named_buffers()},
            }
        )
    assert told[0].keys() == told[1].keys()
    for name, value in told[0].items():
        assert torch.allclose(value, told[1][name], rtol=1e-7, atol=1e-7), name


@pytest.mark.parametrize("name", SPACES)
def test_discretising_a_path_gives_its_architecture(name: str) -> None:
    space, rng = get_space(name), np.random.default_rng(2)
    supernet = build_supernet(space, TINY, in_channels=3, num_classes=10, seed=0)
    for _ in range(5):
        architecture = space.sample(rng)
        if "none" in architecture and name == "darts-none":
            continue  # DARTS never keeps `none` (note G4)
        weights = {group: rows.dense + 1e-3 for group, rows in supernet.path(architecture).items()}
        assert discretise(space, weights) == space.encode(architecture)


def test_partial_channels_shuffle_into_what_passes_by() -> None:
    """With no operation at all, what arrives is what passed by, times the edges' weights."""
    supernet = build_supernet("nasbench201", TINY, 3, 10, seed=0, partial_channels=2)
    images = torch.rand(4, 3, 16, 16)
    weights = mixture("nasbench201", partial_channels=2)
    assert torch.isfinite(supernet(images, weights)).all()
    changed = {**weights, "inputs_3": weights["inputs_3"].flip(1)}
    assert not torch.allclose(supernet(images, weights), supernet(images, changed))


def test_wrong_weights_and_sizes_are_refused() -> None:
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
