"""The costs of operations on edges: exact for independent choices, their part of the gradient, and a target."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from archray.trainables.costs.networks import EdgeCosts, NetworkCosts, edge_costs
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.supernets.evaluation import feasible_architecture, log_probability, path_cost
from archray.trainables.supernets.mixing import Lesson, lesson_of
from archray.trainables.supernets.networks import MixtureWeights, build_supernet, groups
from archray.trainables.supernets.settings import CostPenaltySettings
from archray.trainables.supernets.trainer import CostPenalty

SMALL = NetworkSettings(channels=4, cells=1)
COSTS = NetworkCosts("nasbench201", ("flops",), network=SMALL, image_size=8)


@cache
def table() -> EdgeCosts:
    space = get_space("nasbench201")
    return edge_costs(space, groups(space, none=False), flops)


def flops(architecture: str) -> float:
    return COSTS(architecture)["flops"]


def test_the_cost_of_an_architecture_is_the_sum_over_its_edges() -> None:
    space = get_space("nasbench201")
    supernet = build_supernet(space, SMALL, 3, 10, 0, none=False)
    rng = np.random.default_rng(0)
    operations = groups(space, none=False)[0].operations
    for _ in range(5):
        name = space.encode(tuple(operations[number] for number in rng.integers(4, size=6)))
        assert path_cost(supernet, table(), name) == pytest.approx(flops(name), rel=1e-9)


def test_the_expected_cost_is_the_mean_over_sampled_architectures() -> None:
    # Two edges are random, the others fixed: the mean over all 16 architectures by their probabilities.
    space = get_space("nasbench201")
    [group] = groups(space, none=False)
    weights = torch.zeros(group.shape, dtype=torch.float64)
    weights[:, 0] = 1.0
    rng = np.random.default_rng(1)
    weights[1], weights[4] = (torch.from_numpy(rng.dirichlet(np.ones(4))) for _ in range(2))
    mean = 0.0
    for first, second in itertools.product(range(4), repeat=2):
        choices = [group.operations[0]] * 6
        choices[1], choices[4] = group.operations[first], group.operations[second]
        mean += float(weights[1, first] * weights[4, second]) * flops(space.encode(tuple(choices)))
    assert float(table().expected({"edges": weights})) == pytest.approx(mean, rel=1e-9)


def test_an_optional_edge_counts_with_its_probability() -> None:
    space = get_space("darts")
    [normal, _] = groups(space)
    calls: list[str] = []

    def convolutions(architecture: str) -> float:
        calls.append(architecture)
        return float(architecture.count("sep_conv_3x3"))

    entries = edge_costs(space, groups(space), convolutions).entries["normal"]
    column = normal.operations.index("sep_conv_3x3")
    edges = dict(zip(normal.decisions, entries, strict=True))
    assert edges["normal_2<-1"][column] == 1.0  # both edges into the first node are kept
    assert edges["normal_3<-2"][column] == pytest.approx(2 / 3)
    assert edges["normal_5<-0"][column] == pytest.approx(2 / 5)
    assert edges["normal_5<-0"][normal.operations.index("skip_connect")] == 0.0


def batch_without_gradient(expected: Any) -> Lesson:
    """A batch without a gradient, for mixtures like `expected`."""
    zero = torch.zeros(())
    return Lesson(lambda leaves: (zero, {"edges": torch.zeros_like(expected)}), lesson_of(lambda m: zero, zero).outcome)


def test_the_penalty_adds_the_gradient_of_the_expected_cost() -> None:
    shape = (6, 4)
    weights = torch.full(shape, 0.25, dtype=torch.float64, requires_grad=True)
    penalty = CostPenalty(CostPenaltySettings(weight=0.5), table(), {"edges": shape})
    loss, gradients = penalty.with_penalty(batch_without_gradient(weights)).gradient({"edges": MixtureWeights(weights)})
    assert float(loss) == pytest.approx(0.5)  # of the uniform mixture, whose cost is the unit
    [expected] = torch.autograd.grad(0.5 * table().expected({"edges": weights}) / penalty.unit, weights)
    torch.testing.assert_close(gradients["edges"].double(), expected, rtol=1e-5, atol=1e-9)


def test_the_weight_rises_above_a_target_and_falls_below_it() -> None:
    shape = (6, 4)
    weights = torch.full(shape, 0.25, dtype=torch.float64)
    cost = float(table().expected({"edges": weights}))
    for target, first in ((cost / 2, 0.1), (cost * 2, -0.05)):
        settings = CostPenaltySettings(weight=1.0, target=target, rate=0.1)
        penalty = CostPenalty(settings, table(), {"edges": shape})
        penalty.with_penalty(batch_without_gradient(weights)).gradient({"edges": MixtureWeights(weights)})
        assert penalty.weight == pytest.approx(1.0 + first)
        copy = CostPenalty(settings, table(), {"edges": shape})
        copy.load_state_dict(penalty.state_dict())
        assert copy.weight == penalty.weight


def test_the_result_under_a_constraint_is_the_most_probable_nearby() -> None:
    space = get_space("nasbench201")
    supernet = build_supernet(space, SMALL, 3, 10, 0, none=False)
    generator = torch.Generator().manual_seed(0)
    probabilities = {"edges": torch.rand((6, 4), generator=generator).softmax(-1)}
    probabilities["edges"][:, 2] += 1.0  # convolutions everywhere
    probabilities["edges"] /= probabilities["edges"].sum(-1, keepdim=True)
    derived = space.encode(("nor_conv_3x3",) * 6)

    def violation(name: str) -> float:
        return max(0.0, name.count("nor_conv_3x3") - 2) / 2

    found = feasible_architecture(supernet, derived, probabilities, violation, 0)
    assert found.count("nor_conv_3x3") == 2 and "none" not in found
    feasible = [
        choices
        for choices in itertools.product(groups(space, none=False)[0].operations, repeat=6)
        if choices.count("nor_conv_3x3") <= 2
    ]
    scores = sorted((log_probability(supernet, probabilities, choices) for choices in feasible), reverse=True)
    assert log_probability(supernet, probabilities, space.decode(found)) in scores[:5]
    assert feasible_architecture(supernet, found, None, violation, 0) == found
