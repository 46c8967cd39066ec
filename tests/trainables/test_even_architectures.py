"""Architectures of one choice throughout: the ends of a space, by what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from archray.trainables.costs import NetworkCosts
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.constrained_space import even_architectures


@pytest.mark.parametrize("name", ["nasbench201", "darts", "nasbench1shot1-1", "vit"])
def test_they_are_of_the_space_and_canonical(name: str) -> None:
    space = get_space(name)
    forms = even_architectures(space)
    assert len(forms) == len(set(forms)) >= 3
    for form in forms:
        assert space.canonical(space.decode(space.encode(form))) == form


@pytest.mark.parametrize("name", ["nasbench201", "vit"])
def test_what_is_drawn_costs_no_less_and_no_more(name: str) -> None:
    space, rng = get_space(name), np.random.default_rng(0)
    costs = NetworkCosts(space, ("parameters",), network=NetworkSettings(channels=4, cells=1), image_size=8)
    ends = [costs(form)["parameters"] for form in even_architectures(space)]
    assert all(min(ends) <= costs(space.sample(rng))["parameters"] <= max(ends) for _ in range(10))
