"""Architectures learned image by image (XNAS) and by reward (ENAS): updates by hand, toys, exact continuation."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.data import Dataset, DataSettings, Split, load_images
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import Decision, get_space
from archray.trainables.supernets import SupernetTrainingSettings, build_mixing
from archray.trainables.supernets.controllers import Controller, Reinforce, ReinforcedController
from archray.trainables.supernets.mixing import Lesson, Mixing, Mixture, Outcome
from archray.trainables.supernets.networks import Supernet, build_supernet
from archray.trainables.supernets.optimizers import PointLearner, xnas_rate
from archray.trainables.supernets.relaxations import ArchitectureParameters
from archray.trainables.supernets.settings import (
    AdamSettings,
    ControllerSettings,
    MirrorDescentSettings,
    NoOptimizerSettings,
    ReinforceSettings,
    SimplexSettings,
    SoftmaxSettings,
    XNASSettings,
)
from archray.trainables.supernets.trainer import Batches, SupernetTrainer
from archray.trainables.tune.settings import SupernetOptions
from archray.trainables.tune.supernet_trainable import SupernetTrainable

METHODS: dict[str, dict[str, Any]] = {
    "xnas": {"relaxation": {"name": "simplex"}, "optimizer": {"name": "xnas"}},
    "enas": {"relaxation": {"name": "controller"}, "optimizer": {"name": "reinforce"}},
}
SPACES = ("nasbench201", "darts", "nasbench1shot1-1")


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """20 images to train on, 16 to validate on."""
    whole = load_images(DataSettings(name="digits", limit=40))
    train, validation = whole.train, whole.validation
    return replace(
        whole,
        train=Split(train.images[:20], train.labels[:20]),
        validation=Split(validation.images[:16], validation.labels[:16]),
    )


def make_supernet(space: str = "nasbench201", **options: Any) -> Supernet:
    return build_supernet(space, NetworkSettings(channels=2, cells=1), 1, 10, seed=0, **options)


def make_mixing(supernet: Supernet, method: str) -> Mixing:
    options = SupernetOptions.model_validate(METHODS[method])
    return build_mixing(supernet, options.relaxation, options.optimizer, seed=0)


def make_points(supernet: Supernet, **settings: Any) -> ArchitectureParameters:
    """The simplex mixture, learned by XNAS."""
    mixing = build_mixing(supernet, SimplexSettings(), XNASSettings(**settings), seed=0)
    return mixing


def make_trainer(dataset: Dataset, method: str, space: str = "nasbench201", **training: Any) -> SupernetTrainer:
    supernet = make_supernet(space)
    settings = SupernetTrainingSettings(**{"epochs": 1, "batch_size": 4, **training})
    return SupernetTrainer(supernet, dataset, make_mixing(supernet, method), settings, seed=0)


def parameters_of(mixing: Mixing) -> list[Tensor]:
    if isinstance(mixing, ReinforcedController):
        return [each.detach().clone() for each in mixing.controller.parameters()]
    return [each.detach().clone() for each in mixing.parameters.values()]


def states_equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def synthetic_lesson(outcome: Any) -> Lesson:
    """A lesson without a supernet."""
    return Lesson(gradient=lambda mixture: pytest.fail("the gradient must not be used"), outcome=outcome)


# Both methods


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "space", [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("darts")) for name in SPACES]
)
def test_weights_and_architecture_change_and_stay_finite(digits: Dataset, space: str, method: str) -> None:
    trainer = make_trainer(digits, method, space)
    mixing = trainer.mixing
    weights = [each.detach().clone() for each in trainer.supernet.parameters()]
    parameters = parameters_of(mixing)
    metrics = trainer.epoch()
    assert math.isfinite(metrics.loss) and 0 <= metrics.accuracy <= 1
    assert not states_equal([each.detach() for each in trainer.supernet.parameters()], weights)
    assert not states_equal(parameters_of(mixing), parameters)
    assert all(torch.isfinite(each).all() for each in parameters_of(mixing))
    assert math.isfinite(trainer.evaluate(digits.validation).loss)
    architecture = trainer.derive()
    assert architecture is not None and architecture == trainer.derive()
    trainer.supernet.space.decode(architecture)
    relaxation = SupernetOptions.model_validate(METHODS[method]).relaxation
    rows = {name: len(each) for name, each in mixing.entropies().items()}
    assert rows == relaxation.entropy_rows(trainer.supernet.space, trainer.supernet.groups)


@pytest.mark.parametrize("method", METHODS)
def test_results_of_a_trial_and_of_a_failed_trial(method: str) -> None:
    settings: dict[str, Any] = {
        "data": {"name": "digits", "limit": 16},
        "network": {"channels": 2, "cells": 1},
        "training": {"epochs": 1, "batch_size": 4, "threads": 1},
        "space": "nasbench1shot1-1",
        **METHODS[method],
    }
    result = SupernetTrainable({"settings": settings, "seed": 1}).step()
    get_space("nasbench1shot1-1").decode(result["architecture"])
    assert result["failure"] is None and result["done"]
    assert 0 <= result["entropy"] <= math.log(10)
    assert ("entropies_decisions" in result) == (method == "enas")
    assert result["discretization_drop"] == result["mixture_accuracy"] - result["shared_accuracy"]
    json.dumps(result)
    diverging = settings | {"training": settings["training"] | {"lr": 1e30, "grad_clip": None}}
    failed = SupernetTrainable({"settings": diverging, "seed": 1}).step()
    assert failed["failure"] is not None and failed["architecture"] is None
    assert {key: len(result[key]) for key in result if key.startswith("entropies")} == {
        key: len(failed[key]) for key in failed if key.startswith("entropies")
    }
    assert set(failed) == set(result)


def test_incompatible_options_raise_an_error(digits: Dataset) -> None:
    for relaxation, optimizer, reason in (
        ({"name": "softmax"}, {"name": "xnas"}, "expected the relaxation simplex"),
        ({"name": "gumbel"}, {"name": "xnas"}, "expected the relaxation simplex"),
        ({"name": "path"}, {"name": "xnas"}, "expected the relaxation simplex"),
        ({"name": "controller"}, {"name": "adam"}, "Choose both or neither"),
        ({"name": "controller"}, {"name": "none"}, "Choose both or neither"),
        ({"name": "simplex"}, {"name": "reinforce"}, "Choose both or neither"),
    ):
        with pytest.raises(ValidationError, match=reason):
            SupernetOptions.model_validate({"relaxation": relaxation, "optimizer": optimizer})
    with pytest.raises(ValidationError, match="expected partial_channels 1"):
        SupernetOptions.model_validate(METHODS["enas"] | {"partial_channels": 2})
    supernet, partial = make_supernet(), make_supernet(partial_channels=2)
    with pytest.raises(InvalidInput, match="expected the relaxation simplex"):
        build_mixing(supernet, SoftmaxSettings(), XNASSettings(), seed=0)
    with pytest.raises(InvalidInput, match="expected partial_channels 1"):
        build_mixing(partial, ControllerSettings(), ReinforceSettings(), seed=0)
    for method in METHODS:
        with pytest.raises(ValidationError, match="expected the objective bilevel or erm"):
            SupernetOptions.model_validate(METHODS[method] | {"training": {"objective": "bilevel-second-order"}})
        with pytest.raises(InvalidInput, match="expected the objective bilevel or erm"):
            make_trainer(digits, method, objective="bilevel-second-order")
    with pytest.raises(InvalidInput, match=r"epochs after the warm-up of 3 .*got 3"):
        make_trainer(digits, "xnas", epochs=3, warmup_epochs=3)


def test_settings_make_the_mixing_that_they_name() -> None:
    supernet = make_supernet()
    assert isinstance(make_points(supernet).learner, PointLearner)
    assert isinstance(make_mixing(supernet, "enas"), ReinforcedController)
    for optimizer in (MirrorDescentSettings(), NoOptimizerSettings()):
        assert type(build_mixing(supernet, SimplexSettings(), optimizer, seed=0)) is ArchitectureParameters
    assert type(build_mixing(supernet, SoftmaxSettings(), AdamSettings(), seed=0)) is ArchitectureParameters


# Blocks and their images


def test_phases_train_the_weights_first(digits: Dataset) -> None:
    class Watched(ReinforcedController):
        log = ""

        def draw(self, progress: float) -> Mixture:
            self.log += "w"
            return super().draw(progress)

        def learn(self, lesson: Lesson, progress: float) -> Tensor:
            self.log += "a"
            return super().learn(lesson, progress)

    supernet = make_supernet()
    mixing = Watched(supernet, ControllerSettings(), ReinforceSettings(), seed=0)
    settings = SupernetTrainingSettings(epochs=2, batch_size=5, blocks="phases", lr=0.1, lr_min=0.0)
    trainer = SupernetTrainer(supernet, digits, mixing, settings, seed=0)
    trainer.epoch()
    assert mixing.log == "wwaa"  # 10 images for each
    rate = 0.05 * (1 + math.cos(math.pi / 4))  # the second of four steps
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(rate)


@pytest.mark.parametrize("blocks", ["alternating", "random", "phases"])
@pytest.mark.parametrize("fraction", [0.3, 0.7])
def test_xnas_receives_the_number_of_images(digits: Dataset, blocks: str, fraction: float) -> None:
    training: dict[str, Any] = {"epochs": 3, "warmup_epochs": 1, "batch_size": 4, "blocks": blocks}
    trainer = make_trainer(digits, "xnas", "nasbench1shot1-1", architecture_fraction=fraction, **training)
    mixing = trainer.mixing
    assert isinstance(mixing, ArchitectureParameters) and isinstance(mixing.learner, PointLearner)
    optimizer = mixing.learner.optimizer
    while not trainer.finished:
        trainer.epoch()
    [group] = optimizer.param_groups
    assert {state["round"] for state in optimizer.state.values()} == {group["rounds"]}
    assert all(bool((rows.amax(-1) == 1.0).all()) for rows in mixing.probabilities().values())  # one is left
    assert set(itertools.chain.from_iterable(mixing.entropies().values())) == {0.0}


def test_batches_have_the_number_of_their_images(digits: Dataset) -> None:
    for count, size in ((7, 3), (8, 4), (5, 9)):
        batches = Batches(digits.train, torch.arange(count), size, None, ordering=0, augmenting=0)
        seen = list(itertools.accumulate(len(batches.take().labels) for _ in range(7)))
        assert [batches.images_in(number) for number in range(1, 8)] == seen
        assert batches.images_in(0) == 0


# XNAS


def test_an_update_adds_the_clipped_gradients_of_single_images(digits: Dataset) -> None:
    supernet = make_supernet("nasbench1shot1-1")
    clip, rounds = 1e-2, 40
    mixing = make_points(supernet, clip=clip)
    mixing.prepare(SupernetTrainingSettings(), rounds)
    images, labels = digits.train.images[:5], digits.train.labels[:5]

    def outcome(mixture: Mixture) -> Outcome:
        logits = supernet(images, mixture)
        return Outcome(F.cross_entropy(logits, labels, reduction="none"), logits.argmax(1) == labels)

    leaves = list(mixing.parameters.values())
    sums = [torch.zeros_like(each) for each in leaves]
    for image in range(5):
        found = torch.autograd.grad(outcome(mixing.draw(0.0)).losses[image], leaves)
        assert max(float(each.abs().max()) for each in found) > clip
        sums = [total + each.clamp(-clip, clip) for total, each in zip(sums, found, strict=True)]
    # It is too early for a wipe-out.
    expected = [(-xnas_rate(total.shape[1], rounds, clip) * total).softmax(-1) for total in sums]
    loss = mixing.learn(synthetic_lesson(outcome), 0.0)
    assert not loss.requires_grad
    for name, rows in zip(mixing.parameters, expected, strict=True):
        torch.testing.assert_close(mixing.probabilities()[name], rows, rtol=1e-4, atol=1e-5)


def test_wiped_out_operations_still_count_for_the_comparison_of_edges() -> None:
    """Only `none` remains on every edge. Nodes keep their edges from node 1 and from the last one."""
    supernet = make_supernet("darts")
    mixing = make_points(supernet)
    mixing.prepare(SupernetTrainingSettings(), 4)
    costs = {}
    for group in supernet.groups:
        cost = torch.full(group.shape, 0.5)
        cost[:, 0] = -1.0
        edges = [(source, node) for node in range(2, 6) for source in range(node)]
        for edge, (source, node) in enumerate(edges):
            cost[edge, group.operations.index("skip_connect")] = -0.5 if source in (1, node - 1) else 0.0
        costs[group.name] = cost

    def outcome(mixture: Mixture) -> Outcome:
        loss = sum(((costs[name] * each.dense).sum() for name, each in mixture.items()), torch.zeros(()))
        return Outcome(loss.expand(4), torch.ones(4, dtype=torch.bool))

    mixing.learn(synthetic_lesson(outcome), 0.0)
    for rows in mixing.probabilities().values():
        assert torch.equal(rows[:, 0], torch.ones(14))
    found = supernet.space.decode(mixing.discretized())
    operations = ["skip_connect", "skip_connect"]
    last_two = found[-3:]
    assert list(last_two) == ["1,4", *operations]
    assert list(found[3:6]) == ["1,2", *operations]


def test_xnas_cannot_learn_before_it_is_prepared() -> None:
    mixing = make_points(make_supernet())
    with pytest.raises(RuntimeError, match="prepare"):
        mixing.learn(synthetic_lesson(None), 0.0)


# The controller and REINFORCE

TOY = (Decision("a", ("x", "y", "z")), Decision("b", ("l", "r")), Decision("c", ("x", "y", "z")))


def make_controller(**options: Any) -> Controller:
    seed = options.pop("seed", 0)
    return Controller(TOY, ControllerSettings(**{"units": 20, **options}), seed=seed)


def frequencies(controller: Controller, wanted: Any, count: int = 1000) -> float:
    choices = controller(count, torch.Generator().manual_seed(9)).choices
    return float(wanted(choices).float().mean())


def test_samples_have_the_stated_probabilities() -> None:
    controller = make_controller(temperature=None, tanh_constant=None)
    with torch.no_grad():
        for parameter in controller.parameters():
            parameter *= 10.0  # far from uniform
        sampled = controller(20_000, torch.Generator().manual_seed(0))
    found, inverse, counts = sampled.choices.unique(dim=0, return_inverse=True, return_counts=True)
    p = torch.zeros(len(found)).scatter_(0, inverse, sampled.log_probabilities.exp())
    assert len(found) == 18 and float(p.sum()) == pytest.approx(1.0, abs=1e-4)
    torch.testing.assert_close(counts / 20_000, p, rtol=0.0, atol=0.015)
    entropy = -(p * p.log()).sum()
    assert entropy < 0.95 * math.log(18)
    assert float(sampled.entropies.sum(1).mean()) == pytest.approx(float(entropy), abs=0.02)  # the chain rule


def test_a_controller_starts_nearly_uniform_and_depends_on_its_seed() -> None:
    generator_state = torch.get_rng_state()
    one, again, other = make_controller(), make_controller(), make_controller(seed=1)
    assert torch.equal(torch.get_rng_state(), generator_state)
    assert states_equal(list(one.parameters()), list(again.parameters()))
    assert not states_equal(list(one.parameters()), list(other.parameters()))
    assert all(float(each.detach().abs().max()) <= 0.1 for each in one.parameters())
    assert len(one.embeddings) == 2  # a and c share theirs
    entropies = one(10, torch.Generator().manual_seed(0)).entropies
    assert bool((entropies > 0.99 * torch.tensor([3.0, 2.0, 3.0]).log()).all())


def test_logits_are_bounded() -> None:
    controller = make_controller(temperature=2.0, tanh_constant=1.5)
    with torch.no_grad():
        for parameter in controller.parameters():
            parameter *= 1e3
        log_p = controller(100, torch.Generator().manual_seed(0)).log_probabilities
    lowest = sum(-math.log(1 + (k - 1) * math.exp(3.0)) for k in (3, 2, 3))
    assert lowest - 1e-4 <= float(log_p.min()) < float(log_p.max()) <= 0.0


@pytest.mark.parametrize(
    "wanted",
    [lambda choices: choices[:, 0] == 2, lambda choices: choices[:, 0] == choices[:, 2]],
    ids=["one choice", "two alike"],
)
def test_rewarded_choices_become_likely(wanted: Any) -> None:
    controller = make_controller()
    reinforce = Reinforce(controller.parameters(), ReinforceSettings(lr=0.02, baseline_decay=0.9))
    generator = torch.Generator().manual_seed(0)
    assert frequencies(controller, wanted) < 0.5
    for _ in range(150):
        sampled = controller(4, generator)
        reinforce.update(sampled, wanted(sampled.choices).float())
    assert frequencies(controller, wanted) > 0.85
    assert 0.7 < (reinforce.baseline or 0.0) < 1.01


def test_the_baseline_follows_rewards_with_their_entropy() -> None:
    controller = make_controller()
    before = [each.detach().clone() for each in controller.parameters()]
    reinforce = Reinforce(controller.parameters(), ReinforceSettings(entropy=0.1, baseline_decay=0.9))
    first = controller(1, torch.Generator().manual_seed(0))
    reinforce.update(first, torch.tensor([0.3]))
    start = 0.3 + 0.1 * float(first.entropies.sum())
    assert reinforce.baseline == pytest.approx(start)
    assert states_equal(list(controller.parameters()), before)  # the first reward is its baseline
    second = controller(1, torch.Generator().manual_seed(1))
    reinforce.update(second, torch.tensor([0.8]))
    assert reinforce.baseline == pytest.approx(0.9 * start + 0.1 * (0.8 + 0.1 * float(second.entropies.sum())))
    again = controller(1, torch.Generator().manual_seed(1))
    assert torch.equal(again.choices, second.choices)
    assert bool(again.log_probabilities > second.log_probabilities)  # better than the baseline


def test_a_bandit_of_operations() -> None:
    supernet = make_supernet()
    mixing = ReinforcedController(supernet, ControllerSettings(), ReinforceSettings(lr=0.01), seed=0)
    mixing.reseed(0)
    [group] = supernet.groups
    column = group.operations.index("nor_conv_3x3")

    def outcome(mixture: Mixture) -> Outcome:
        assert not torch.is_grad_enabled()  # nothing passes through the supernet
        return Outcome(torch.ones(6), mixture["edges"].dense[:, column] == 1.0)

    before = mixing.entropies()["decisions"]
    for _ in range(200):
        mixing.learn(synthetic_lesson(outcome), 0.0)
    assert max(mixing.entropies()["decisions"]) < 0.8 * min(before)
    draw = mixing.evaluation(1.0, 0)
    share = sum(float(draw()["edges"].dense[:, column].mean()) for _ in range(50)) / 50
    assert share > 0.75


def test_the_best_of_some_samples_is_derived() -> None:
    supernet = make_supernet()
    mixing = ReinforcedController(supernet, ControllerSettings(samples=7), ReinforceSettings(), seed=0)
    requests: list[str] = []

    def accuracies(architectures: Any) -> list[float]:
        requests[:] = architectures
        return [float(each.count("skip_connect")) for each in architectures]

    found = mixing.derive(accuracies, 3)
    assert len(requests) == len(set(requests)) == 7
    assert found.count("skip_connect") == max(each.count("skip_connect") for each in requests)
    first = requests.copy()
    mixing.derive(accuracies, 3)
    assert requests == first
    mixing.derive(accuracies, 4)
    assert requests != first


def test_none_is_not_a_choice_if_the_supernet_leaves_it_out() -> None:
    for none in (True, False):
        supernet = make_supernet(none=none)
        mixing = ReinforcedController(supernet, ControllerSettings(), ReinforceSettings(), seed=0)
        sampled = mixing.architectures(mixing.controller(100, torch.Generator().manual_seed(0)))
        assert any("none" in each for each in sampled) == none
        assert all(supernet.path(each) for each in sampled)
