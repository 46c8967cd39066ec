"""NESBSSearch passes the conformance suite with each sampler and each choice of delta."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from archray.searchers import NESBSSearch
from archray.searchers.nesbs.samplers import SVGDRD
from archray.searchers.testing import ConformanceSuite, SearcherConformance, TunerConformance


def posterior() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(4) for name in ("a", "b", "c")}


class BayesianOptimization(ConformanceSuite):
    budget = 3

    def make(self, **arguments: Any) -> NESBSSearch:
        return NESBSSearch(posterior(), 3, delta="bo", sampler=SVGDRD(iterations=10), **arguments)


class TestBayesianOptimization(BayesianOptimization, SearcherConformance):
    pass


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(BayesianOptimization, TunerConformance):
    pass


class TestGrid(SearcherConformance):
    def make(self, **arguments: Any) -> NESBSSearch:
        return NESBSSearch(posterior(), 3, delta="grid", sampler=SVGDRD(iterations=10), **arguments)


@pytest.mark.slow
class TestSkippedDelta(SearcherConformance):
    """The first delta of seven gives no ensemble."""

    def make(self, **arguments: Any) -> NESBSSearch:
        return NESBSSearch(
            posterior(), 2, delta="grid", delta_range=(-1, 1), sampler=SVGDRD(iterations=150), **arguments
        )

    def expected_trials(self, budget: int) -> int:
        return budget - 1


class TestUniform(SearcherConformance):
    def make(self, **arguments: Any) -> NESBSSearch:
        return NESBSSearch(posterior(), 3, "uniform", **arguments)


class TestMonteCarlo(SearcherConformance):
    def make(self, **arguments: Any) -> NESBSSearch:
        return NESBSSearch(posterior(), 3, "mc", **arguments)
