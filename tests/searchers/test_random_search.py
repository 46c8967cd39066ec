"""RandomSearch: distinct canonical forms, and the conformance suite."""

from __future__ import annotations

from typing import Any

import pytest
from ray import tune

from archray.errors import InvalidInput
from archray.searchers import RandomSearch, drive
from archray.searchers.testing import ConformanceSuite, SearcherConformance, TunerConformance
from archray.trainables.spaces import Decision, Space, get_space


class Pair(Space):
    name = "pair"
    decisions = (Decision("left", ("a", "b", "c")), Decision("right", ("a", "b", "c")))

    def canonical(self, architecture: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(architecture))


class OverSpace(ConformanceSuite):
    def make(self, **arguments: Any) -> RandomSearch:
        return RandomSearch("nasbench201", **arguments)


class TestOverSpace(OverSpace, SearcherConformance):
    pass


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.usefixtures("ray_session")
class TestInATuner(OverSpace, TunerConformance):
    test_tuner_without_param_space = pytest.mark.slow(TunerConformance.test_tuner_without_param_space)


class TestOverCandidates(SearcherConformance):
    def make(self, **arguments: Any) -> RandomSearch:
        return RandomSearch([f"a{row}" for row in range(20)], **arguments)


class TestOverDomains(SearcherConformance):
    def make(self, **arguments: Any) -> RandomSearch:
        return RandomSearch({"width": tune.choice([8, 16, 32]), "lr": tune.loguniform(1e-4, 1)}, **arguments)


def test_every_config_of_a_small_dict_is_suggested_once() -> None:
    domains = {"width": tune.choice([8, 16, 16]), "shape": tune.choice(["relu", None])}
    frame = drive(RandomSearch(domains, budget=100, metric="m", mode="max"), lambda config: 0.0)
    assert len(frame) == 4
    assert not frame.duplicated(["width", "shape"]).any()


def test_canonical_forms_are_suggested_once() -> None:
    space = get_space("nasbench201")
    frame = drive(RandomSearch(space, budget=60, metric="m", mode="max"), lambda config: 0.0, concurrency=4)
    assert frame["architecture"].is_unique
    assert all(space.encode(space.canonical(space.decode(name))) == name for name in frame["architecture"])


def test_a_small_space_is_exhausted_before_the_budget() -> None:
    frame = drive(RandomSearch(Pair(), budget=100, metric="m", mode="max"), lambda config: 0.0)
    assert len(frame) == 6
    assert frame["architecture"].is_unique


def test_every_candidate_is_suggested() -> None:
    names = ["a", "b", "c"]
    frame = drive(RandomSearch(names, budget=10, metric="m", mode="max"), lambda config: 0.0)
    assert sorted(frame["architecture"]) == names


def test_points_to_evaluate_are_first_and_not_repeated() -> None:
    points = [{"architecture": "left=b|right=a"}]
    search = RandomSearch(Pair(), budget=100, metric="m", mode="max", points_to_evaluate=points)
    names = drive(search, lambda config: 0.0)["architecture"].tolist()
    assert names[0] == "left=a|right=b"
    assert len(names) == len(set(names)) == 6


@pytest.mark.parametrize("candidates", [[], ["a", "a"]])
def test_candidates_must_be_distinct(candidates: list[str]) -> None:
    with pytest.raises(InvalidInput, match="distinct"):
        RandomSearch(candidates, budget=3)
