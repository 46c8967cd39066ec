"""Architectures with the same choice everywhere: the extremes of a space by cost."""

from __future__ import annotations

import numpy as np
import pytest

from archray.trainables.costs import NetworkCosts
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.constrained_space import even_architectures


@pytest.mark.parametrize("name", ["nasbench201", "darts", "nasbench1shot1-1", "vit"])
def test_they_belong_to_the_space_and_are_canonical(name: str) -> None:
    space = get_space(name)
    forms = even_architectures(space)
    assert len(forms) == len(set(forms)) >= 3
    for form in forms:
        assert space.canonical(space.decode(space.encode(form))) == form


@pytest.mark.parametrize("name", ["nasbench201", "vit"])
def test_random_architectures_cost_no_less_and_no_more(name: str) -> None:
    space, rng = get_space(name), np.random.default_rng(0)
    costs = NetworkCosts(space, ("parameters",), network=NetworkSettings(channels=4, cells=1), image_size=8)
    ends = [costs(form)["parameters"] for form in even_architectures(space)]
    assert all(min(ends) <= costs(space.sample(rng))["parameters"] <= max(ends) for _ in range(10))
