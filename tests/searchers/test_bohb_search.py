"""BOHBSearch: its densities, the results that its model uses at each budget, and the conformance suite."""

from __future__ import annotations

import itertools
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ray import tune

from archray.errors import InvalidInput
from archray.searchers import BOHBSearch, drive
from archray.searchers.bohb_search import DecisionDensity, model_draws
from archray.searchers.testing import SearcherConformance, TunerConformance
from archray.trainables.spaces import get_space

DOMAINS = {"left": tune.choice(["a", "b", "c"]), "right": tune.randint(0, 4)}  # 12 configs; a model after 6 results


@pytest.mark.extra("bohb")
class TestOverDomains(SearcherConformance):
    """The model makes its last suggestions."""

    budget = 9

    def make(self, **arguments: Any) -> BOHBSearch:
        return BOHBSearch(DOMAINS, random_fraction=0.2, **arguments)


@pytest.mark.extra("bohb")
class TestOverSpace(SearcherConformance):
    """All of its suggestions precede the model."""

    def make(self, **arguments: Any) -> BOHBSearch:
        return BOHBSearch("nasbench201", **arguments)


@pytest.mark.extra("bohb")
@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(TunerConformance):
    budget = 8

    def make(self, **arguments: Any) -> BOHBSearch:
        return BOHBSearch(DOMAINS, random_fraction=0.2, **arguments)


@pytest.mark.extra("bohb")
def test_a_density_sums_to_one_and_is_the_mean_of_products() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([3, 2, 4])
    data = rng.integers(0, sizes, (5, 3)).astype(float)
    density = DecisionDensity(data, sizes)
    everything = list(itertools.product(*map(range, sizes)))
    assert sum(density.pdf(places) for places in everything) == pytest.approx(1)
    for places in everything[::5]:
        total = 0.0
        for row in data:
            product = 1.0
            for column, size in enumerate(sizes):
                width = (1 - 1 / size) * 5 ** (-1 / 7)
                product *= 1 - width if row[column] == places[column] else width / (size - 1)
            total += product / len(data)
        assert density.pdf(places) == pytest.approx(total)


@pytest.mark.extra("bohb")
def test_a_decision_with_one_choice_does_not_matter() -> None:
    sizes = np.array([1, 3])
    density = DecisionDensity(np.array([[0.0, 1.0], [0.0, 2.0]]), sizes)
    assert sum(density.pdf((0, place)) for place in range(3)) == pytest.approx(1)


def observations(good: int, bad: int) -> list[tuple[np.ndarray, float]]:
    """Observations of three decisions. The good ones have the last choice everywhere."""
    group = [(np.array([2, 2, 2]), 0.0)] * good + [(np.array([0, 0, 1]), 1.0)] * bad
    return [(places.copy(), loss) for places, loss in group]


@pytest.mark.extra("bohb")
def test_the_model_uses_the_largest_budget_with_enough_results() -> None:
    few = {1.0: observations(2, 2), 3.0: observations(1, 1)}
    assert not next(model_draws((3, 3, 3), few, 0, random_fraction=0.0))[1]
    worse = [(places, 1 - loss) for places, loss in observations(4, 4)]
    for observed, expected in (
        ({1.0: observations(4, 4), 3.0: observations(3, 4)}, 2),  # three decisions need more than seven
        ({1.0: worse, 3.0: observations(4, 4)}, 2),
        ({1.0: observations(4, 4), 3.0: worse}, 0),
    ):
        draws = list(itertools.islice(model_draws((3, 3, 3), observed, 0, random_fraction=0.0), 20))
        assert all(from_model for _, from_model in draws)
        assert sum(int(places[0]) == expected for places, _ in draws) > 15


@pytest.mark.extra("bohb")
def test_numpys_global_generator_is_restored() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = [places.tolist() for places, _ in itertools.islice(model_draws((5, 5), {}, 3), 5)]
    np.random.seed(1)  # noqa: NPY002
    again = [places.tolist() for places, _ in itertools.islice(model_draws((5, 5), {}, 3), 5)]
    assert first == again
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.random()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    next(model_draws((3, 3, 3), {1.0: observations(4, 4)}, 3))
    assert np.random.random() == expected  # noqa: NPY002
    assert len(before) == 624


@pytest.mark.extra("bohb")
def test_it_learns_which_choices_are_good() -> None:
    means = []
    for seed, (mode, sign) in enumerate((("max", 1.0), ("min", -1.0))):
        search = BOHBSearch("nasbench201", budget=60, metric="m", mode=mode, seed=seed, random_fraction=0.1)
        frame = drive(search, lambda c, s=sign: s * c["architecture"].count("nor_conv_3x3"), concurrency=2)
        assert frame["architecture"].is_unique
        counts = frame["architecture"].str.count("nor_conv_3x3")
        means.append(counts[-30:].mean() - counts[:14].mean())
    assert min(means) > 0.5


@pytest.mark.extra("bohb")
def test_it_stores_the_value_at_every_budget_including_the_last() -> None:
    search = BOHBSearch(DOMAINS, 5, time_attr="epoch", budgets=(1, 4), metric="m", mode="max")
    configs: list[Any] = []
    for number, last in enumerate((4, 1, 2)):
        configs.append(search.suggest(f"t{number}"))
        for epoch in range(1, last):
            search.on_trial_result(f"t{number}", {"m": 10.0 * number + epoch, "epoch": epoch})
        search.on_trial_complete(f"t{number}", {"m": 10.0 * number + last, "epoch": last})
    search.suggest("t3")
    search.on_trial_complete("t3", error=True)
    losses = {budget: [loss for _, loss in group] for budget, group in search.observations(5).items()}
    assert losses == {1.0: [-1.0, -11.0, -21.0, np.inf], 4.0: [-4.0]}
    places = [[int(place) for place in places] for places, _ in search.observations(5)[1.0][:3]]
    assert places == [["abc".index(config["left"]), config["right"]] for config in configs]


@pytest.mark.extra("bohb")
def test_evaluated_points_count_at_the_largest_budget() -> None:
    search = BOHBSearch(DOMAINS, 5, time_attr="epoch", budgets=(1, 4), metric="m", mode="min")
    search.add_evaluated_point({"left": "b", "right": 3}, 0.5)
    assert {b: [(p.tolist(), v) for p, v in group] for b, group in search.observations(1).items()} == {
        4.0: [([1, 3], 0.5)]
    }


@pytest.mark.extra("bohb")
def test_every_config_of_a_small_dict_is_suggested_once() -> None:
    frame = drive(BOHBSearch(DOMAINS, budget=40, metric="m", mode="max"), lambda config: float(config["right"]))
    assert len(frame) == 12 and not frame.duplicated(["left", "right"]).any()


@pytest.mark.extra("bohb")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"space": {"lr": tune.loguniform(1e-4, 1)}}, "lr: expected a finite number of values"),
        ({"top_n_percent": 100}, "top_n_percent: expected a whole number from 1 to 99"),
        ({"num_samples": 0}, "num_samples: expected a whole number of 1 or more"),
        ({"random_fraction": 1.5}, "random_fraction: expected a number from 0 to 1"),
        ({"budgets": ()}, "budgets: expected numbers, or None"),
    ],
)
def test_wrong_arguments_raise_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        BOHBSearch(**{"space": "nasbench201", "budget": 5, **arguments})


@pytest.mark.parametrize("absent", ["hpbandster", "ConfigSpace"])
def test_missing_packages_are_named_in_the_error(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(InvalidInput, match=rf"{absent}.* cannot be imported.*pip install '\.\[bohb\]'"):
        BOHBSearch("nasbench201", budget=5)


@pytest.mark.extra("bohb")
def test_the_benchmark(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = runpy.run_path(str(repository / "benchmarks" / "bohb_nasbench201.py"), run_name="script")
    space = get_space("nasbench201")
    table = pd.DataFrame({"arch": [space.encode(cell) for cell in space.enumerate()]})
    table["cifar10_valid_12"] = table["cifar10_test_200"] = table["arch"].str.count("nor_conv_3x3")
    table.to_csv(tmp_path / "table.csv", index=False)
    benchmark["main"]([str(tmp_path / "table.csv"), "--seeds", "2", "--budget", "18"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "±" in line]
    assert [line.split(" | ")[0] for line in lines] == ["| random", "| hpbandster's densities", "| BOHBSearch"] * 3
