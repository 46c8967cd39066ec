"""NSGA2Search: the conformance suite, the parents of children, the trials that do not count, and the front that it
finds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import tune

from archray.errors import InvalidInput
from archray.searchers import NSGA2Search, RandomSearch, SearcherStateError, drive
from archray.searchers.pareto.front import hypervolume, non_dominated
from archray.searchers.testing import SearcherConformance, TunerConformance, hashed_score
from archray.trainables.spaces import Decision, Space


class Bits(Space):
    name = "bits"
    decisions = tuple(Decision(f"b{place}", ("0", "1")) for place in range(24))


DOMAINS = {"width": tune.choice([8, 16, 32]), "depth": tune.randint(1, 5), "lr": tune.loguniform(1e-4, 1)}
ARGUMENTS: dict[str, Any] = {"metric": "score", "mode": "max"}


def score_and_cost(config: Mapping[str, Any]) -> dict[str, float]:
    return {"score": hashed_score(config), "cost": hashed_score({**config, "of": "cost"})}


class TestOverASpace(SearcherConformance):
    evaluator = f"{__name__}:score_and_cost"

    def evaluate(self) -> Any:
        return score_and_cost

    def make(self, **arguments: Any) -> NSGA2Search:
        return NSGA2Search("nasbench201", further="-cost", population=3, **arguments)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(TunerConformance):
    """With results without costs, no result joins the population, and every suggestion is random."""

    def make(self, **arguments: Any) -> NSGA2Search:
        return NSGA2Search("nasbench201", further="-cost", population=3, **arguments)


class TestOverDomains(TestOverASpace):
    def make(self, **arguments: Any) -> NSGA2Search:
        return NSGA2Search(DOMAINS, further=["-cost"], population=3, **arguments)


def ones_and_changes(config: Mapping[str, Any]) -> dict[str, float]:
    """Returns the number of ones, and of changes between neighboring bits. No string of bits is best in both."""
    bits = Bits().decode(config["architecture"])
    return {"score": float(bits.count("1")), "changes": float(sum(a != b for a, b in itertools.pairwise(bits)))}


def losses(frame: Any) -> np.ndarray:
    return np.stack([-frame["score"], -frame["changes"]], axis=1)


@pytest.mark.slow
def test_it_finds_more_of_a_front_than_random_search() -> None:
    def volume(search: Any) -> float:
        return hypervolume(losses(drive(search, ones_and_changes, concurrency=2)), [0.0, 0.0])

    seeds = range(8)
    evolved = [volume(NSGA2Search(Bits(), 120, "changes", population=16, seed=s, **ARGUMENTS)) for s in seeds]
    drawn = [volume(RandomSearch(Bits(), 120, seed=s, **ARGUMENTS)) for s in seeds]
    assert all(nsga2 > random for nsga2, random in zip(evolved, drawn, strict=True))


def test_the_front_has_the_nondominated_trials() -> None:
    search = NSGA2Search(Bits(), 40, "changes", population=8, **ARGUMENTS)
    frame, front = drive(search, ones_and_changes), search.front()
    assert set(front["number"] - 1) == set(non_dominated(losses(frame)))
    assert front["value"].is_monotonic_decreasing and front["changes"].is_monotonic_increasing


def test_children_have_two_parents_and_one_mutation() -> None:
    """In a population of all zeros and all ones, a child of crossover alone is mixed."""
    space = Bits()
    ends = [{"architecture": "|".join(f"{d.name}={bit}" for d in space.decisions)} for bit in "01"]

    def kept(config: Mapping[str, Any]) -> dict[str, float]:
        pure = float(len(set(space.decode(config["architecture"]))) == 1)
        return {"score": pure * ones_and_changes(config)["score"] + pure, "cost": -pure * (1 - config["seed"] % 2)}

    for crossover, mixed in ((1.0, True), (0.0, False)):
        search = NSGA2Search(space, 20, "-cost", 2, crossover, points_to_evaluate=ends, **ARGUMENTS)
        names = drive(search, kept)["architecture"][2:]
        fewest = [min(space.decode(name).count(bit) for bit in "01") for name in names]
        assert any(few > 3 for few in fewest) == mixed


def test_a_trial_without_a_finite_cost_does_not_join_the_population() -> None:
    broken = {1: float("nan"), 2: None, 3: "high"}
    count = itertools.count(1)
    search = NSGA2Search(Bits(), 12, "-cost", population=4, **ARGUMENTS)
    drive(search, lambda config: {"score": 1.0, "cost": broken.get(next(count), 2.0)})
    assert search.front()["number"].tolist() == [4]  # all others are equal, or do not count
    lone = NSGA2Search(Bits(), 6, "-cost", population=4, **ARGUMENTS)
    drive(lone, lambda config: 1.0)
    assert lone.front().empty


def test_other_objectives_are_another_search(tmp_path: Path) -> None:
    NSGA2Search(Bits(), 9, "-cost", population=3, **ARGUMENTS).save(str(tmp_path / "state"))
    search = NSGA2Search(Bits(), 9, "cost", population=3, **ARGUMENTS)
    search.restore(str(tmp_path / "state"))
    with pytest.raises(SearcherStateError, match="further"):
        search.suggest("a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": 5, "population": 5}, "budget: expected more than the population"),
        ({"crossover": 1.5}, "crossover: expected a number in"),
        ({"further": ""}, "expected names"),
        ({"further": "-cost,cost"}, "distinct names, got cost twice"),
        ({"further": "a b"}, "got 'a b'"),
        ({"further": []}, "expected names"),
        ({"further": "--cost"}, "expected names"),
    ],
)
def test_wrong_arguments_raise_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        NSGA2Search(**{"space": Bits(), "budget": 9, "population": 3, "further": "-cost", **arguments})
