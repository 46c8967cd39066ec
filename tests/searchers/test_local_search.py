"""LocalSearch: it climbs as Algorithm 1 of White et al. (2021), and passes the conformance suite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ray import tune

from archray.errors import InvalidInput
from archray.searchers import LocalSearch, RandomSearch, drive
from archray.searchers.testing import SearcherConformance, TunerConformance
from archray.trainables.spaces import Decision, Space, get_space

DIGITS = {name: tune.choice(list(range(5))) for name in "abc"}


class Bits(Space):
    name = "bits"
    decisions = tuple(Decision(f"bit{place}", ("0", "1")) for place in range(8))


class Ring:
    """Whole numbers. The neighbors of a number are the next and the previous one. Numbers are equal modulo 30."""

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"place": int(rng.integers(60))}

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"place": int(config["place"] + rng.choice([-1, 1])) % 60}

    def encode(self, config: Mapping[str, Any]) -> str:
        return str(config["place"] % 30)


def ones(config: Mapping[str, Any]) -> float:
    return float(config["architecture"].count("=1"))


def distance(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    return sum(first[name] != second[name] for name in DIGITS)


class TestOverSpace(SearcherConformance):
    budget = 14  # ten random ones, and some neighbors

    def make(self, **arguments: Any) -> LocalSearch:
        return LocalSearch("nasbench201", **arguments)


class TestOverDomains(SearcherConformance):
    budget = 12

    def make(self, **arguments: Any) -> LocalSearch:
        domains = {"width": tune.choice([8, 16, 32]), "lr": tune.loguniform(1e-4, 1)}
        return LocalSearch(domains, initial=3, **arguments)


class TestWholeNeighborhood(SearcherConformance):
    budget = 20

    def make(self, **arguments: Any) -> LocalSearch:
        return LocalSearch(Ring(), initial=2, whole_neighborhood=True, **arguments)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(TunerConformance):
    budget = 6

    def make(self, **arguments: Any) -> LocalSearch:
        return LocalSearch("nasbench201", initial=3, **arguments)


def test_each_trial_is_a_neighbor_of_the_best_of_its_climb() -> None:
    search = LocalSearch(DIGITS, budget=60, initial=4, metric="m", mode="max")
    rows = drive(search, lambda c: c["a"] + 0.3 * c["b"] - 0.2 * c["c"]).to_dict("records")
    optimum = next(row for row, trial in enumerate(rows) if (trial["a"], trial["b"], trial["c"]) == (4, 4, 0))
    for row in range(4, optimum + 1):
        assert distance(rows[row], max(rows[:row], key=lambda trial: trial["value"])) == 1


def test_the_next_climb_starts_when_every_neighbor_is_evaluated() -> None:
    """With one peak and all values of a decision as neighbors, at most 4 x 3 evaluations follow the peak."""
    search = LocalSearch(DIGITS, budget=60, initial=4, metric="m", mode="max")
    rows = drive(search, lambda c: float(c["a"] == c["b"] == c["c"] == 4)).to_dict("records")
    peak = next((row for row, trial in enumerate(rows) if trial["value"] == 1), None)
    after = rows[4 if peak is None else peak + 1 :]
    near = [distance(trial, rows[peak or 0]) == 1 for trial in after]
    assert not all(near) and len({tuple(trial[name] for name in DIGITS) for trial in rows}) == 60


def test_whole_neighborhood_moves_to_its_best() -> None:
    """From one start, up by one bit at a time: 8 neighbors of the first position are evaluated, and 7 of each other."""
    search = LocalSearch(Bits(), budget=9 + 7, initial=1, whole_neighborhood=True, metric="m", mode="max")
    weights = np.arange(1, 9)
    rows = drive(search, lambda c: float(weights @ [int(bit[-1]) for bit in c["architecture"].split("|")]))
    best = rows["value"][:9].max()
    moved = rows["architecture"][int(rows["value"][:9].argmax())]
    assert best > rows["value"][0]
    for name in rows["architecture"][9:]:
        assert sum(a != b for a, b in zip(name, moved, strict=True)) == 1


def test_a_users_space_decides_which_configs_are_equal() -> None:
    rows = drive(LocalSearch(Ring(), budget=100, initial=3, metric="m", mode="max"), lambda c: -abs(c["place"] - 31))
    assert len(rows) == rows["place"].mod(30).nunique() == 30  # each class once, then it is finished


def test_failed_trials_are_not_positions_of_a_climb() -> None:
    search = LocalSearch(Bits(), budget=30, initial=4, metric="m", mode="max")
    rows = drive(search, lambda c: float("nan") if ones(c) > 4 else ones(c))
    assert rows["value"].max() == 4 and len(rows) == 30


def test_the_first_climb_starts_at_the_evaluated_points() -> None:
    best = "|".join(f"{decision.name}=1" for decision in Bits.decisions)
    search = LocalSearch(Bits(), budget=6, initial=1, metric="m", mode="max")
    search.add_evaluated_point({"architecture": best}, 8.0)
    rows = drive(search, ones)
    assert (rows["value"][1:] == 7).all()


def test_it_finds_better_cells_than_random_search() -> None:
    space = get_space("nasbench201")
    worth = {"none": 0.0, "skip_connect": 1.0, "nor_conv_1x1": 2.0, "nor_conv_3x3": 4.0, "avg_pool_3x3": 0.5}

    def value(config: Mapping[str, Any]) -> float:
        return sum(worth[operation] for operation in space.decode(config["architecture"]))

    keywords: dict[str, Any] = {"budget": 100, "metric": "m", "mode": "max"}
    climbed = [drive(LocalSearch(space, seed=s, **keywords), value, concurrency=2)["value"].max() for s in range(5)]
    drawn = [drive(RandomSearch(space, seed=s, **keywords), value)["value"].max() for s in range(5)]
    assert np.mean(climbed) > np.mean(drawn) + 1


def test_a_table_is_climbed_by_its_nearest_rows(tmp_path: Path) -> None:
    rows = [f"({a}, {b}, {c})" for a in range(4) for b in range(4) for c in range(4)]
    pd.DataFrame({"arch": rows}).to_csv(tmp_path / "rows.csv", index=False)
    search = LocalSearch(f"table:{tmp_path / 'rows.csv'}", budget=40, initial=4, metric="m", mode="max")
    frame = drive(search, lambda c: sum(int(digit) for digit in c["architecture"] if digit.isdigit()), concurrency=2)
    assert frame["architecture"].is_unique and frame["value"].max() == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"initial": 0}, "initial: expected a whole number"),
        ({"budget": 0}, "budget: expected a whole number"),
        ({"space": ["a", "b"]}, "got a list of candidates"),
        ({"space": {"width": tune.choice([1])}}, "2 values or more"),
        ({"points_to_evaluate": [{"members": []}]}, "a point with architecture"),
    ],
)
def test_wrong_arguments_raise_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        LocalSearch(**{"space": Bits(), "budget": 5, **arguments})
