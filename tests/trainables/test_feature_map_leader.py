"""The best candidate of a solve on validation and test points, and the bound of clipped losses."""

import math

import numpy as np
import pytest
import torch

from archray.trainables.data import DataSettings, load_images
from archray.trainables.feature_maps.classifier import FourierClassifier
from archray.trainables.feature_maps.linear import clipped, loss_bound, point_losses
from archray.trainables.feature_maps.problems import FourierProblem
from archray.trainables.feature_maps.solve_settings import SolveSettings
from archray.trainables.spaces import get_space
from archray.trainables.tune.feature_map_trainable import FeatureMapTrainable

DIGITS = {"name": "digits", "limit": 150}


def maps(number: int, space: str = "fourier") -> list[str]:
    found, rng = get_space(space), np.random.default_rng(0)
    return [found.encode(found.canonical(found.sample(rng))) for _ in range(number)]


@pytest.mark.parametrize("loss", ["ridge", "svm", "logistic"])
@pytest.mark.parametrize("classes", [2, 5])
def test_clipped_losses_are_within_their_bound_and_reach_it(loss: str, classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    decisions = 10 * torch.randn(400, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(classes, (400,), generator=generator)
    bound = loss_bound(loss, classes)
    losses = point_losses(clipped(decisions), labels, loss)
    assert losses.min() >= 0 and losses.max() <= bound * (1 + 1e-12)
    worst = torch.ones(1, classes, dtype=torch.float64)
    worst[0, 0] = -1  # wrong for every class
    assert point_losses(worst, torch.tensor([0]), loss).item() == pytest.approx(bound)
    assert point_losses(decisions, labels, loss).max() > bound


@pytest.mark.parametrize("bases", ["shared", "independent"])
@pytest.mark.parametrize("validation", ["all", "assigned"])
def test_a_candidate_of_a_shared_solve_is_tested_with_its_weights(bases: str, validation: str) -> None:
    data, space = load_images(DataSettings(**DIGITS)), get_space("fourier")
    problem = FourierProblem(data, SolveSettings(bases=bases, validation=validation))
    chosen = [space.configuration(name) for name in maps(4)]
    solved = problem.solve(chosen, 60, 3)
    # The classifier of a map uses the basis of the first map. With independent bases only the first map has its basis.
    for number in range(4 if bases == "shared" else 1):
        solution = solved.solution
        alone = FourierClassifier(chosen[number], solution.bases, problem.statistics, solution.model)
        wrong = float((alone.predict(data.test.images) != data.test.labels).double().mean())
        tested = problem.test(solved, number)
        assert (1 - tested.accuracy, tested.points) == (pytest.approx(wrong), len(data.test))
    assert solved.solution.weight_norm == pytest.approx(float(solved.solution.model.weights.square().sum().sqrt()))


def test_the_leader_is_the_best_candidate() -> None:
    candidates = maps(6)
    for score, best in (("loss", np.argmin), ("accuracy", np.argmax)):
        settings = {"data": DIGITS, "dimension": 60, "solve": {"score": score, "validation": "all"}}
        result = FeatureMapTrainable({"settings": settings, "candidates": candidates, "seed": 3}).step()
        place = int(best(result["scores"]))
        assert result["leader"] == candidates[place]
        assert result["leader_points"] == result["points"][place]
        if score == "accuracy":
            assert result["leader_validation_error"] == pytest.approx(1 - result["scores"][place])
        assert 0 <= result["leader_test_error"] <= 1
        assert 0 <= result["leader_test_clipped"] <= result["loss_bound"] == 40


@pytest.mark.parametrize("space", ["fourier", "ngrams"])
def test_the_leader_of_a_standalone_solve_is_its_map(space: str) -> None:
    data = DIGITS if space == "fourier" else {"name": "docstrings:numpy,torch", "limit": 60}
    (name,) = maps(1, space)
    config = {"settings": {"space": space, "data": data, "dimension": 64}, "architecture": name}
    result = FeatureMapTrainable(config).step()
    assert result["leader"] == name and result["weight_norm"] > 0
    assert result["leader_test_error"] == pytest.approx(1 - result["test_accuracy"])
    assert result["leader_validation_error"] == pytest.approx(1 - result["validation_accuracy"])
    config["settings"]["evaluate_test"] = False
    blind = FeatureMapTrainable(config).step()
    assert math.isnan(blind["leader_test_error"]) and blind["leader_validation_error"] == pytest.approx(
        result["leader_validation_error"]
    )
