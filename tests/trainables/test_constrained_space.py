"""The part of a space that meets constraints: rare architectures are found, and an empty part raises an error after
tens of networks.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from archray.errors import InvalidInput
from archray.trainables.costs import CostFailed, Violation
from archray.trainables.costs.networks import NetworkCosts
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import ConstrainedSpace, get_space
from archray.trainables.spaces.constrained_space import parse_constraints

WEIGHTS = {"nor_conv_3x3": 9.0, "nor_conv_1x1": 1.0, "conv_3x3": 9.0, "conv_5x5": 25.0}


class Beyond:
    """The violation of bounds by 1 + the weights of an architecture's operations; it records its calls."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high, self.one_sided = low, high, low <= 0
        self.requests: Counter[str] = Counter()

    def cost(self, architecture: str) -> float:
        return 1.0 + sum(weight * architecture.count(name) for name, weight in WEIGHTS.items())

    def __call__(self, architecture: str) -> float:
        self.requests[architecture] += 1
        cost = self.cost(architecture)
        return max(0.0, cost / self.high - 1.0) + (max(0.0, 1.0 - cost / self.low) if self.low > 0 else 0.0)

    def describe(self, architecture: str) -> str:
        return f"weight {self.cost(architecture):g}"


@pytest.mark.parametrize("name", ["nasbench201", "darts"])
def test_impossible_constraints_raise_after_tens_of_networks_and_name_the_least_violation(name: str) -> None:
    beyond = Beyond(0.0, 0.8)
    space = ConstrainedSpace(get_space(name), beyond, "weight <= 0.8")
    with pytest.raises(InvalidInput, match=r"that meets weight <= 0.8; .* has weight 1 \(25 % beyond\)"):
        space.check_met(np.random.default_rng(0))
    assert len(beyond.requests) <= 50


def test_the_first_extreme_that_meets_it_is_enough() -> None:
    beyond = Beyond(0.0, 1.0)
    ConstrainedSpace(get_space("nasbench201"), beyond, "weight <= 1").check_met(np.random.default_rng(0))
    assert len(beyond.requests) == 1


def test_bounds_on_both_sides_are_searched_everywhere() -> None:
    rng = np.random.default_rng(0)
    ConstrainedSpace(get_space("nasbench201"), Beyond(21.0, 21.0), "weight").check_met(rng)  # two of 9, two of 1
    with pytest.raises(InvalidInput, match="100 random architectures"):
        ConstrainedSpace(get_space("nasbench201"), Beyond(17.1, 17.9), "weight").check_met(rng)


def test_architectures_too_rare_for_sampling_are_sampled_from_the_extremes() -> None:
    whole, rng = get_space("nasbench201"), np.random.default_rng(0)
    only = whole.encode(whole.canonical(("nor_conv_3x3",) * 6))
    space = ConstrainedSpace(whole, lambda architecture: float(architecture != only), "the one")
    assert whole.encode(space.sample(rng)) == only


def test_costs_bounded_from_one_side() -> None:
    def one_sided(text: str) -> bool:
        costs = NetworkCosts("nasbench201", ("flops", "parameters"), network=NetworkSettings())
        return Violation(parse_constraints(text), costs).one_sided

    assert one_sided("flops <= 5, parameters < 2") and one_sided("flops > 5")
    assert not one_sided("flops <= 5, parameters > 2")


def test_networks_without_costs_do_not_count() -> None:
    def failing(architecture: str) -> float:
        try:
            raise CostFailed(f"{architecture} has no flops")
        except CostFailed:
            return float("inf")

    space = ConstrainedSpace(get_space("nasbench201"), failing, "flops <= 5")
    with pytest.raises(InvalidInput, match="its costs are unknown"):
        space.check_met(np.random.default_rng(0))
