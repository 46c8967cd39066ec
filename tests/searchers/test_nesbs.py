"""NESBSSearch: ensembles without repeated members, the deltas of a run, and posteriors that are too sharp."""

from __future__ import annotations

import json
import logging
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import chisquare

from archray.errors import InvalidInput
from archray.searchers import NESBSSearch, drive
from archray.searchers.nesbs.posterior import Posterior
from archray.searchers.nesbs.samplers import SVGDRD, EnsembleSampler, MonteCarlo, TooSharp, Uniform
from archray.trainables.spaces import get_space


def normal_logits(space: str, scale: float = 1.0, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {d.name: scale * rng.standard_normal(len(d.choices)) for d in get_space(space).posterior_decisions}


def squared_delta(config: dict[str, Any]) -> float:
    return (config["delta"] - 0.25) ** 2


@pytest.mark.parametrize("space", ["nasbench201", "darts"])
@pytest.mark.parametrize("sampler", [MonteCarlo(), Uniform(), SVGDRD(iterations=200)], ids=lambda sampler: sampler.name)
def test_members_are_different_architectures_of_the_space(space: str, sampler: EnsembleSampler) -> None:
    search = NESBSSearch(normal_logits(space), 4, sampler, budget=3, space=space, delta_range=(-0.5, 1))
    configs = drive(search, lambda config: 1.0)
    found = get_space(space)
    assert len(configs) == 3
    for members in configs["members"]:
        assert len({found.encode(found.canonical(found.decode(member))) for member in members}) == 4
    assert configs["seed"].is_unique
    assert configs["delta"].isna().all() if not sampler.has_delta else configs["delta"].tolist() == [-0.5, 0.25, 1.0]


def test_single_members_are_sampled_from_the_posterior() -> None:
    logits = {"a": [0.0, 1.0, -1.0], "b": [0.5, 0.0]}
    configs = drive(NESBSSearch(logits, 1, "mc", budget=2000), lambda config: 1.0)
    p = [np.exp(row) / np.exp(row).sum() for row in logits.values()]
    counts = np.zeros((3, 2))
    for (member,) in configs["members"]:
        choice = json.loads(member)
        counts[choice["a"], choice["b"]] += 1
    assert chisquare(counts.ravel(), np.outer(*p).ravel() * 2000).pvalue > 0.001


def test_ensembles_are_sampled_from_the_posterior_without_repeats() -> None:
    posterior, rng = Posterior({"a": np.log([0.5, 0.3, 0.2])}), np.random.default_rng(0)
    counts = {(0, 1): 0, (0, 2): 0, (1, 2): 0}
    for _ in range(2000):
        pair = sorted(json.loads(member)["a"] for member in MonteCarlo().sample(posterior, 2, None, rng))
        counts[pair[0], pair[1]] += 1
    weights = np.array([0.15, 0.1, 0.06])
    assert chisquare(list(counts.values()), weights / weights.sum() * 2000).pvalue > 0.001


def test_best_has_the_lowest_loss_by_default() -> None:
    search = NESBSSearch(
        normal_logits("nasbench201"), 3, space="nasbench201", delta_range=(-0.5, 1.0), sampler=SVGDRD(iterations=50)
    )
    frame = drive(search, lambda config: {"validation_loss": squared_delta(config)})
    best = search.best()
    assert best["value"] == frame["value"].min()
    assert best["delta"] == 0.25
    assert len(best["members"]) == 3


def test_deltas_of_a_grid() -> None:
    logits = normal_logits("nasbench201")
    for budget, expected in ((4, [-2.0, -1.0, 0.0, 1.0]), (1, [-0.5])):
        search = NESBSSearch(logits, 2, delta="grid", budget=budget, space="nasbench201", sampler=SVGDRD(iterations=5))
        assert drive(search, squared_delta)["delta"].tolist() == expected


def test_fixed_delta_runs_from_fresh_particles() -> None:
    search = NESBSSearch(
        normal_logits("nasbench201"), 2, delta=0.5, budget=3, space="nasbench201", sampler=SVGDRD(iterations=20)
    )
    frame = drive(search, squared_delta)
    assert frame["delta"].tolist() == [0.5] * 3
    assert len({tuple(members) for members in frame["members"]}) > 1


def test_bayesian_optimization_finds_the_best_delta() -> None:
    search = NESBSSearch(
        normal_logits("nasbench201"), 2, delta="bo", budget=7, space="nasbench201", sampler=SVGDRD(iterations=5)
    )
    drive(search, squared_delta)
    best = search.best()
    assert abs(best["delta"] - 0.25) < 0.3
    questions = search.questions()
    assert questions["delta"].between(-2, 1).all()
    assert questions["number"].tolist() == list(range(1, 8))
    assert questions["value"].tolist() == pytest.approx([(delta - 0.25) ** 2 for delta in questions["delta"]])


def test_bayesian_optimization_keeps_a_loss_of_zero() -> None:
    """A perfect ensemble is not a failed one."""
    losses = iter([1.0, 0.0, 1.0, 1.0])
    plain, other = (
        NESBSSearch({"a": [0.0] * 4}, 2, delta="bo", budget=4, sampler=SVGDRD(iterations=3)) for _ in range(2)
    )
    drive(plain, lambda config: next(losses))
    drive(other, lambda config: 1.0)
    assert plain.questions()["delta"].tolist()[:2] == other.questions()["delta"].tolist()[:2]
    assert plain.questions()["delta"].tolist()[2:] != other.questions()["delta"].tolist()[2:]


def test_a_delta_at_which_particles_meet_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """At -1 nothing repels them, and the relaxed posterior has one mode (note E2)."""
    logits = normal_logits("nasbench201")
    search = NESBSSearch(logits, 2, delta="grid", budget=3, delta_range=(-1.0, 0.0), space="nasbench201")
    with caplog.at_level(logging.WARNING):
        frame = drive(search, squared_delta)
    assert frame["delta"].tolist() == [-0.5, 0.0]
    assert "Skipping delta -1" in caplog.text
    assert search.questions()["passed_over"].tolist() == [True, False, False]
    assert search.questions()["delta"].tolist() == [-1.0, -0.5, 0.0]


def test_bayesian_optimization_avoids_deltas_at_which_particles_meet() -> None:
    sharp = {name: [0.0, -8.0, -8.0] for name in "abc"}
    search = NESBSSearch(
        sharp, 3, delta="bo", budget=3, delta_range=(-1.0, 1.0), sampler=SVGDRD(iterations=200), seed=5
    )
    frame = drive(search, squared_delta)
    assert len(frame) == 3
    questions = search.questions()
    assert questions["passed_over"].any()
    assert (questions.loc[questions["passed_over"], "delta"] < 0).all()
    assert questions.loc[~questions["passed_over"], "number"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("sampler", [MonteCarlo(), SVGDRD(iterations=300)], ids=lambda sampler: sampler.name)
def test_a_posterior_that_is_too_sharp_raises_an_error(sampler: EnsembleSampler) -> None:
    logits = {"a": [0.0, -60.0, -60.0], "b": [0.0, -60.0]}
    delta = -1.0 if sampler.has_delta else None
    search = NESBSSearch(logits, 3, sampler, delta=delta)
    with pytest.raises(TooSharp, match=r"3 different members, got 1 at most.*too sharp.*Raise temperature.*lower"):
        search.suggest("t")
    warm = NESBSSearch(logits, 3, sampler, temperature=100.0, delta=None if delta is None else 1.0)
    assert isinstance(warm.suggest("t"), dict)
    with pytest.raises(InvalidInput, match="ensemble_size: expected 6 at most"):
        NESBSSearch(logits, 7, sampler)


def test_a_grid_whose_deltas_are_all_skipped_raises_an_error() -> None:
    search = NESBSSearch({"a": [0.0, -60.0]}, 2, budget=2, delta_range=(-1.0, -0.999), sampler=SVGDRD(iterations=300))
    with pytest.raises(TooSharp, match="Raise temperature or delta"):
        search.suggest("t")


@pytest.mark.parametrize("wrong", [{"bandwidth": 0.0}, {"iterations": 0}, {"step": -0.1}, {"momentum": 1.0}])
def test_settings_of_a_sampler_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        SVGDRD(**wrong)


def test_uniform_sampling_ignores_the_posterior_except_impossible_choices() -> None:
    learned, possible = ({"a": [*row, -np.inf]} for row in ([5.0, 0.0, -5.0], [0.0, 0.0, 0.0]))
    drawn = [Uniform().sample(Posterior(logits), 2, None, np.random.default_rng(0)) for logits in (learned, possible)]
    assert drawn[0] == drawn[1]
    assert drawn[0] == MonteCarlo().sample(Posterior(possible), 2, None, np.random.default_rng(0))


def test_temperature_flattens_the_posterior() -> None:
    logits = {"a": [0.0, 2.0]}
    for temperature in (0.1, 1.0, 10.0):
        found = NESBSSearch(logits, 1, "mc", temperature=temperature).posterior.log_probs[0]
        assert found[1] - found[0] == pytest.approx(2.0 / temperature)


def test_points_are_first_and_count_as_results() -> None:
    logits = {"a": [0.0] * 4}
    members = ['{"a": 0}', '{"a": 3}']
    points: list[dict[str, Any]] = [{"members": members}, {"delta": 0.75}, {"members": members, "delta": 0.5}]
    for delta in ("grid", "bo"):
        search = NESBSSearch(logits, 2, delta=delta, budget=5, sampler=SVGDRD(iterations=5), points_to_evaluate=points)
        frame = drive(search, lambda config: 0.0)
        assert len(frame) == 5
        assert frame["delta"].tolist()[1:3] == [0.75, 0.5]
        assert frame["members"][0] == frame["members"][2] == members
        assert search.questions()["given"].tolist() == [True, True, False, False]
        if delta == "grid":
            assert frame["delta"].tolist()[3:] == [-2.0, 1.0]


def test_an_evaluated_point_counts() -> None:
    search = NESBSSearch({"a": [0.0] * 4}, 2, delta="bo", budget=2, sampler=SVGDRD(iterations=5))
    search.add_evaluated_point({"members": ['{"a": 0}', '{"a": 3}'], "delta": 0.5}, -1.0)
    drive(search, lambda config: 0.0)
    assert search.best()["number"] == -1
    with pytest.raises(InvalidInput, match="got only delta"):
        search.add_evaluated_point({"delta": 0.5}, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ensemble_size": 0}, "ensemble_size"),
        ({"sampler": "svgd"}, "there is no sampler 'svgd'; did you mean 'svgd-rd'"),
        ({"temperature": 0.0}, "temperature"),
        ({"sampler": "mc", "delta": 0.0}, "delta: expected None for the sampler mc"),
        ({"delta": "random"}, "a number, grid or bo"),
        ({"delta": float("nan")}, "a number, grid or bo"),
        ({"delta_range": (1.0, 1.0)}, "low < high"),
        ({"posterior": {"a": [np.nan]}}, "finite"),
        ({"posterior": Posterior({"a": [0.0] * 4}), "space": "darts"}, "Pass the space to the Posterior"),
        ({"points_to_evaluate": [{}]}, "with members, or with delta"),
        ({"points_to_evaluate": [{"members": ["x"]}]}, "3 strings"),
        ({"points_to_evaluate": [{"members": ["x", "y", "x"]}]}, "a repeated one"),
        ({"points_to_evaluate": [{"delta": "high"}]}, "delta to be a number"),
    ],
)
def test_wrong_arguments_raise_an_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        NESBSSearch(**{"posterior": {"a": [0.0] * 4}, "ensemble_size": 3, **arguments})
