"""ReinforceSearch: its gradient compared with finite differences, its learning, and the conformance suite."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ray import tune

from archray.errors import InvalidInput
from archray.searchers import ReinforceSearch, drive
from archray.searchers.reinforce_search import Policy, policy_gradient
from archray.searchers.testing import SearcherConformance, TunerConformance
from archray.trainables.spaces import get_space

SIZES = (3, 2, 4)


class Pairs:
    """A space of the user with decisions."""

    decisions = {"left": ["a", "b", "c"], "right": [1, 2]}  # noqa: RUF012

    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        return {name: values[rng.integers(len(values))] for name, values in self.decisions.items()}

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {**config, "left": "abc"[rng.integers(3)]}


class Undecided:
    def sample(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"place": 1}

    def mutate(self, config: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return dict(config)


class TestOverSpace(SearcherConformance):
    def make(self, **arguments: Any) -> ReinforceSearch:
        return ReinforceSearch("nasbench201", learning_rate=0.3, **arguments)


class TestOverConditionalDecisions(SearcherConformance):
    def make(self, **arguments: Any) -> ReinforceSearch:
        return ReinforceSearch("darts", learning_rate=0.3, entropy=0.01, **arguments)


class TestOverDomains(SearcherConformance):
    def make(self, **arguments: Any) -> ReinforceSearch:
        domains = {"width": tune.choice([8, 16, 32]), "depth": tune.randint(1, 5)}
        return ReinforceSearch(domains, learning_rate=0.3, **arguments)


class TestOverNames(SearcherConformance):
    def make(self, **arguments: Any) -> ReinforceSearch:
        return ReinforceSearch([f"a{row}" for row in range(9)], learning_rate=0.3, **arguments)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
class TestInATuner(TunerConformance):
    budget = 5

    def make(self, **arguments: Any) -> ReinforceSearch:
        return ReinforceSearch(Pairs(), learning_rate=0.3, **arguments)


def log_probability(logits: np.ndarray, chosen: np.ndarray) -> float:
    """Computes one decision after another."""
    return sum(float(row[place] - np.log(np.exp(row).sum())) for row, place in zip(logits, chosen, strict=True))


def entropy(logits: np.ndarray) -> float:
    total = 0.0
    for row in logits:
        finite = row[np.isfinite(row)]
        p = np.exp(finite) / np.exp(finite).sum()
        total -= float((p * np.log(p)).sum())
    return total


def test_the_gradient_equals_finite_differences() -> None:
    rng = np.random.default_rng(0)
    exists = np.arange(4) < np.array(SIZES)[:, None]
    logits = np.where(exists, rng.standard_normal((3, 4)), -np.inf)
    chosen, advantage, weight = np.array([2, 0, 3]), -1.7, 0.3
    ours = policy_gradient(Policy(logits).probabilities, chosen, advantage, weight)
    assert (ours[~exists] == 0).all()
    for row, column in zip(*np.nonzero(exists), strict=True):
        values = []
        for step in (1e-5, -1e-5):
            moved = logits.copy()
            moved[row, column] += step
            values.append(advantage * log_probability(moved, chosen) + weight * entropy(moved))
        assert ours[row, column] == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-8)


def test_samples_have_the_probabilities_of_the_policy() -> None:
    logits = np.array([[0.0, 1.0, -np.inf], [2.0, 0.0, 1.0]])
    policy = Policy(logits)
    rng = np.random.default_rng(0)
    draws = np.array([policy.sample(rng) for _ in range(20_000)])
    shares = [[(draws[:, row] == place).mean() for place in range(3)] for row in range(2)]
    np.testing.assert_allclose(shares, policy.probabilities, atol=0.012)
    assert shares[0][2] == 0


def test_adam_and_the_baseline_step_by_step() -> None:
    """Three rewards and one decision, compared with the formulas in numbers."""
    policy = Policy.uniform([2], learning_rate=0.1, momentum=0.5)
    logits, first, second, baseline, weight = np.zeros(2), np.zeros(2), np.zeros(2), 0.0, 0.0
    for step, (choice, reward) in enumerate([(0, 1.0), (1, 3.0), (1, 2.0)], 1):
        policy.learn(np.array([choice]), reward)
        baseline, weight = 0.5 * baseline + 0.5 * reward, 0.5 * weight + 0.5
        p = np.exp(logits) / np.exp(logits).sum()
        gradient = (reward - baseline / weight) * (np.eye(2)[choice] - p)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        logits = logits + 0.1 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        np.testing.assert_allclose(policy.logits, [logits], atol=1e-12)


def test_it_learns_which_choices_are_good() -> None:
    space = get_space("nasbench201")
    for mode, sign in (("max", 1.0), ("min", -1.0)):
        search = ReinforceSearch(space, budget=200, learning_rate=0.1, metric="m", mode=mode)
        frame = drive(search, lambda c, s=sign: s * c["architecture"].count("nor_conv_3x3"), concurrency=3)
        counts = frame["architecture"].str.count("nor_conv_3x3")
        assert counts[-40:].mean() > counts[:40].mean() + 2


def test_sampling_existing_rows_equals_rejection_sampling() -> None:
    rng = np.random.default_rng(0)
    policy = Policy(rng.standard_normal((2, 3)))
    existing = np.array([[0, 1], [2, 2], [1, 1]])
    likely = np.prod(policy.probabilities[[0, 1], existing], axis=1)
    drawn = [policy.sample(rng, existing).tolist() for _ in range(4000)]
    shares = [drawn.count(row) / 4000 for row in existing.tolist()]
    assert np.allclose(shares, likely / likely.sum(), atol=0.035)  # 4.5 standard deviations at most


def test_a_table_is_searched_by_its_codes(tmp_path: Path) -> None:
    """The table has half of the combinations. The policy learns to prefer a combination that is not in it."""
    rows = [f"({a}, {b}, {c})" for a in range(4) for b in range(4) for c in range(4) if (a + b + c) % 2 == 0]
    pd.DataFrame({"arch": rows}).to_csv(tmp_path / "rows.csv", index=False)
    search = ReinforceSearch(f"table:{tmp_path / 'rows.csv'}", budget=300, learning_rate=0.3, metric="m", mode="max")
    assert [len(choices) for choices in search.choices.values()] == [4, 4, 4]
    frame = drive(search, lambda c: sum(int(digit) for digit in c["architecture"] if digit.isdigit()))
    assert set(frame["architecture"]) <= set(rows) and len(frame) == 300
    assert frame["value"][-50:].mean() > frame["value"][:15].mean() + 1


def test_entropy_keeps_the_policy_wide() -> None:
    def spread(weight: float) -> float:
        search = ReinforceSearch(
            Pairs(), budget=150, learning_rate=0.1, entropy=weight, metric="m", mode="max", max_concurrent=1
        )
        drive(search, lambda config: float(config["left"] == "b"))
        return float(search.policy(151).probabilities.max())

    assert spread(0.5) < spread(0.0)


def test_it_learns_from_evaluated_points() -> None:
    search = ReinforceSearch("darts", budget=1, learning_rate=0.5, metric="m", mode="max")
    space = get_space("darts")
    names = [space.encode(space.canonical(space.sample(np.random.default_rng(seed)))) for seed in range(2)]
    for value, name in enumerate(names):
        search.add_evaluated_point({"architecture": name}, float(value))
    search.suggest("t")
    inputs = [row for row, name in enumerate(search.choices) if name.endswith("_inputs")]
    operations = [row for row, name in enumerate(search.choices) if "<-" in name]
    moved = [np.ptp(row[np.isfinite(row)]) > 0 for row in search.policy(1).logits]
    assert any(itertools.compress(moved, [row in inputs for row in range(len(moved))]))
    assert not any(moved[row] for row in operations)  # the name does not show which edge an operation is on


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"space": {"width": tune.choice([8, 16]), "lr": tune.loguniform(1e-4, 1)}}, "lr: expected a finite number of"),
        ({"space": {"n": tune.randint(0, 10_000)}}, "n: expected a finite number of values"),
        ({"space": "fourier"}, "categorical decisions, got fourier, which is continuous"),
        ({"space": Undecided()}, "Undecided.decisions to be a dictionary from each key"),
        ({"learning_rate": 0}, "learning_rate: expected a positive number"),
        ({"momentum": 1.0}, "momentum: expected a number in"),
        ({"entropy": -1}, "entropy: expected a non-negative number"),
    ],
)
def test_wrong_arguments_raise_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ReinforceSearch(**{"space": "nasbench201", "budget": 5, **arguments})
