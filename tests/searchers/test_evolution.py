"""RegularizedEvolution: the conformance suite, aging, custom selection of parents, and the cells that it finds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray import tune

from archray.errors import InvalidInput
from archray.searchers import RandomSearch, RegularizedEvolution, SearcherStateError, drive
from archray.searchers.testing import ConformanceSuite, SearcherConformance, TunerConformance
from archray.trainables.spaces import Decision, Space, get_space


class Bits(Space):
    name = "bits"
    decisions = tuple(Decision(f"b{place}", ("0", "1")) for place in range(12))


class One(Space):
    name = "one"
    decisions = (Decision("only", ("a",)),)


class OverSpace(ConformanceSuite):
    def make(self, **arguments: Any) -> RegularizedEvolution:
        return RegularizedEvolution("nasbench201", population=3, sample_size=2, **arguments)


class TestOverSpace(OverSpace, SearcherConformance):
    pass


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(OverSpace, TunerConformance):
    pass


def two_youngest(population: Sequence[Mapping[str, Any]]) -> list[int]:
    return list(range(len(population)))[-2:]


class TestChosenParents(SearcherConformance):
    def make(self, **arguments: Any) -> RegularizedEvolution:
        return RegularizedEvolution(Bits(), population=3, parents=two_youngest, **arguments)


DOMAINS = {
    "width": tune.choice([8, 16, 32, 64]),
    "depth": tune.randint(1, 5),
    "lr": tune.loguniform(1e-4, 1),
    "dropout": tune.quniform(0, 1, 0.25),
    "only": tune.choice([{"name": "adam"}]),
}


class TestOverDomains(SearcherConformance):
    def make(self, **arguments: Any) -> RegularizedEvolution:
        return RegularizedEvolution(DOMAINS, population=3, sample_size=2, **arguments)


class Walk:
    """The small protocol: a position on a line."""

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"place": int(rng.integers(100))}

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"place": config["place"] + (1 if rng.random() < 0.5 else -1)}


class TestOverAnObjectOfTheUser(SearcherConformance):
    def make(self, **arguments: Any) -> RegularizedEvolution:
        return RegularizedEvolution(Walk(), population=3, sample_size=2, **arguments)


def keys_changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    return [name for name in DOMAINS if one[name] != other[name]]


def test_a_mutation_of_a_dict_changes_one_key() -> None:
    search = RegularizedEvolution(DOMAINS, budget=80, population=1, sample_size=1, metric="m", mode="max")
    entry = drive(search, lambda config: 0.0).to_dict("records")
    changed = [keys_changed(*pair) for pair in itertools.pairwise(entry)]
    assert all(len(names) == 1 for names in changed)
    assert {name for names in changed for name in names} == set(DOMAINS) - {"only"}
    assert all(domain.is_valid(config[name]) for config in entry for name, domain in DOMAINS.items())


def test_it_climbs_with_an_object_of_the_user() -> None:
    search = RegularizedEvolution(Walk(), budget=200, population=5, sample_size=5, metric="m", mode="max")
    places = drive(search, lambda config: float(config["place"]))["place"].tolist()
    assert places[-1] > max(places[:5]) + 30


def test_parents_receive_the_keys_of_a_dict() -> None:
    entry: list[Mapping[str, Any]] = []

    def parents(population: Sequence[Mapping[str, Any]]) -> list[int]:
        entry[:] = population
        return [0]

    search = RegularizedEvolution(DOMAINS, budget=4, population=3, parents=parents, metric="m", mode="max")
    drive(search, lambda config: 0.0)
    assert entry[0].keys() == {"number", "value", *DOMAINS}


def test_another_dict_is_another_search(tmp_path: Path) -> None:
    """A domain is identified by its values and its distribution."""
    made = {"budget": 9, "population": 3, "metric": "m", "mode": "max"}
    RegularizedEvolution({"lr": tune.qloguniform(0.5, 2, 0.25)}, **made).save(str(tmp_path / "state"))
    for other in (tune.qloguniform(0.5, 2, 0.5), tune.quniform(0.5, 2, 0.25), tune.qloguniform(0.5, 3, 0.25)):
        search = RegularizedEvolution({"lr": other}, **made)
        search.restore(str(tmp_path / "state"))
        with pytest.raises(SearcherStateError, match="space"):
            search.suggest("a")


def distance(one: str, other: str) -> int:
    """Returns the number of decisions that differ."""
    space = Bits()
    return sum(a != b for a, b in zip(space.decode(one), space.decode(other), strict=True))


def ones(config: Mapping[str, Any]) -> float:
    return float(Bits().decode(config["architecture"]).count("1"))


def test_a_child_is_one_mutation_from_the_best_of_the_population() -> None:
    """With S far above P, every sample contains the best of the P youngest."""
    search = RegularizedEvolution(Bits(), budget=40, population=5, sample_size=400, metric="m", mode="max")
    frame = drive(search, ones)
    names, values = frame["architecture"].tolist(), frame["value"].to_numpy()
    for row in range(5, 40):
        best = row - 5 + int(np.argmax(values[row - 5 : row]))  # the oldest of equal ones
        assert distance(names[row], names[best]) == 1


def test_the_oldest_leaves_even_if_it_is_the_best() -> None:
    """The best architecture, an evaluated point, is no parent after five others have joined."""
    best = "|".join(f"{decision.name}=1" for decision in Bits.decisions)
    search = RegularizedEvolution(Bits(), budget=30, population=5, sample_size=400, metric="m", mode="max")
    search.add_evaluated_point({"architecture": best}, 1e9)
    names = drive(search, lambda config: 0.0)["architecture"].tolist()
    assert distance(names[4], best) == 1  # of four random ones and itself
    assert [distance(*pair) for pair in zip(names[5:], names, strict=False)] == [1] * 25  # of the oldest of equal ones


def test_failed_trials_do_not_join_the_population() -> None:
    """At first they are replaced by random ones, and they are never parents."""
    failing = {1, 2, 3}
    count = iter(range(1, 100))
    seen: list[list[int]] = []

    def parents(population: Sequence[Mapping[str, Any]]) -> list[int]:
        seen.append([entry["number"] for entry in population])
        return [0]

    search = RegularizedEvolution(Bits(), budget=12, population=4, parents=parents, metric="m", mode="max")
    drive(search, lambda config: float("nan") if next(count) in failing else 1.0)
    assert seen[0] == [4, 5, 6, 7]
    assert len(seen) == 5


def test_parents_receive_the_stored_entries() -> None:
    entry: list[Mapping[str, Any]] = []

    def parents(population: Sequence[Mapping[str, Any]]) -> list[int]:
        entry[:] = population
        return [len(population) - 1]

    search = RegularizedEvolution(
        Bits(), budget=6, population=3, parents=parents, keep=["place"], metric="m", mode="max"
    )
    frame = drive(search, lambda config: {"m": ones(config), "place": "/there", "other": 1})
    assert entry[0].keys() == {"number", "architecture", "value", "place"} and entry[0]["place"] == "/there"
    names = frame["architecture"].tolist()
    assert [distance(*names[row : row + 2]) for row in (2, 3, 4)] == [1, 1, 1]


def test_mutations_change_the_network() -> None:
    space = get_space("nasbench201")
    search = RegularizedEvolution(space, budget=60, population=1, sample_size=1, metric="m", mode="max")
    names = drive(search, lambda config: 0.0)["architecture"].tolist()
    assert all(before != after for before, after in itertools.pairwise(names))
    assert all(space.encode(space.canonical(space.decode(name))) == name for name in names)


def test_it_finds_better_cells_than_random_search() -> None:
    """Over ten seeds with 150 evaluations each, on an objective that is a sum over the edges of a cell."""
    space = get_space("nasbench201")
    worth = {
        (decision.name, choice): value
        for decision in space.decisions
        for choice, value in zip(decision.choices, (0.0, 1.0, 2.0, 4.0, 0.5), strict=True)
    }

    def value(config: Mapping[str, Any]) -> float:
        names = [decision.name for decision in space.decisions]
        return sum(worth[pair] for pair in zip(names, space.decode(config["architecture"]), strict=True))

    def best(search: Any) -> float:
        return float(drive(search, value, concurrency=2)["value"].max())

    entry = {"budget": 150, "metric": "m", "mode": "max"}
    evolved = [best(RegularizedEvolution(space, population=20, sample_size=5, seed=s, **entry)) for s in range(10)]
    drawn = [best(RandomSearch(space, seed=s, **entry)) for s in range(10)]
    assert all(ours >= theirs for ours, theirs in zip(evolved, drawn, strict=True))
    assert np.mean(evolved) > np.mean(drawn) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": 5, "population": 5}, "budget: expected more than the population"),
        ({"budget": 5, "population": 0}, "population"),
        ({"budget": 5, "population": 2, "sample_size": 0}, "sample_size"),
        ({"budget": 5, "population": 2, "points_to_evaluate": [{"members": []}]}, "a point with architecture"),
        ({"budget": 5, "population": 2, "space": One()}, "2 or more architectures"),
        ({"budget": 5, "population": 2, "space": {}}, "an empty dict"),
        ({"budget": 5, "population": 2, "space": {"width": [1, 2]}}, "width: expected a Tune domain"),
        ({"budget": 5, "population": 2, "space": {"width": tune.grid_search([1])}}, "width: expected a Tune domain"),
        ({"budget": 5, "population": 2, "space": {"width": tune.sample_from(ones)}}, "width: expected a Tune domain"),
        ({"budget": 5, "population": 2, "space": {"width": tune.choice([(1, 2)])}}, "width: expected JSON values"),
        ({"budget": 5, "population": 2, "space": {"width": tune.choice([1])}}, "2 values or more"),
        ({"budget": 5, "population": 2, "space": {"seed": tune.choice([1, 2])}}, "got 'seed'"),
        ({"budget": 5, "population": 2, "space": ["a", "b"]}, "got a list of candidates"),
        ({"budget": 5, "population": 2, "space": 3}, "an object with sample"),
        ({"budget": 5, "population": 2, "space": DOMAINS, "points_to_evaluate": [{"width": 8}]}, "with the keys"),
        (
            {"budget": 5, "population": 2, "space": {"a": tune.choice([1, 2])}, "points_to_evaluate": [{"a": 3}]},
            "a point's a to be in",
        ),
    ],
)
def test_wrong_arguments_raise_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        RegularizedEvolution(**{"space": Bits(), **arguments})
