"""The variational posterior compared with enumeration: mixtures, KL, mode and optimum (notes E5, E6)."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from archray.trainables.checkpoint import write_weights
from archray.trainables.nets import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.darts import NODES
from archray.trainables.spaces.genotypes import CELLS
from archray.trainables.supernets.evaluation import score_architectures
from archray.trainables.supernets.mixing import Lesson, Mixture, Outcome, mixture_gradient
from archray.trainables.supernets.networks import Supernet, build_supernet
from archray.trainables.supernets.posterior import RelaxedDecisions, VariationalPosterior
from archray.trainables.supernets.settings import AdamSettings, VariationalSettings
from archray.trainables.tune.supernet_trainable import PosteriorTrainable, SupernetTrainable

SCALE = 4.0
ADAM = {"name": "adam", "lr": 0.03, "betas": [0.9, 0.999], "weight_decay": 0.0}
TWO_EDGES = '''
from archray.trainables.spaces import Decision, NASBench201

FIXED = {"1<-0": "nor_conv_3x3", "2<-0": "skip_connect", "3<-0": "none", "3<-2": "skip_connect"}


class TwoEdges(NASBench201):
    """The edges 2<-1 and 3<-1 are free."""

    decisions = tuple(
        Decision(each.name, (FIXED[each.name],)) if each.name in FIXED else each for each in NASBench201.decisions
    )
'''
FREE = ("2<-1", "3<-1")
SUPERNET = {
    "network": {"channels": 4, "cells": 1},
    "relaxation": {"name": "path", "draws": "architectures"},
    "optimizer": {"name": "none"},
    "training": {"epochs": 8, "batch_size": 16, "lr": 0.1, "threads": 1, "augmentation": None},
}
DATA = {"name": "digits", "limit": 80, "validation_fraction": 0.3}


@pytest.fixture(scope="module")
def two_edges(tmp_path_factory: Any) -> tuple[str, str, np.ndarray]:
    """Returns the space of two free edges, trained weights, and the expected loss of its 25 cells, (5, 5)."""
    folder = tmp_path_factory.mktemp("two_edges")
    (folder / "two_edges.py").write_text(TWO_EDGES)
    space = f"{folder / 'two_edges.py'}:TwoEdges"
    trainable = SupernetTrainable({"settings": {**SUPERNET, "space": space, "data": DATA}, "seed": 1})
    while not trainable.step()["done"]:
        pass
    trainer = trainable.trainer
    weights = write_weights(str(folder), "weights.pt", trainer.supernet.state_dict())
    cells = list(get_space(space).enumerate())
    losses = [each.loss for each in score_architectures(trainer.supernet, cells, trainer.dataset.validation)]
    return space, weights, np.array(losses).reshape(5, 5)


def optimum(losses: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """The product p q that maximizes the ELBO, by coordinate ascent: p ~ exp(-s E_q[loss]), and the same for q."""
    p, q = np.full(5, 0.2), np.full(5, 0.2)
    for _ in range(1000):
        p = np.exp(-scale * (losses @ q))
        p /= p.sum()
        q = np.exp(-scale * (p @ losses))
        q /= q.sum()
    return p, q


def elbo(p: np.ndarray, q: np.ndarray, losses: np.ndarray, scale: float) -> float:
    kl = sum(np.log(5) + float((each * np.log(each)).sum()) for each in (p, q))
    return float(-scale * p @ losses @ q - kl)


def share_of_gain(p: np.ndarray, q: np.ndarray, losses: np.ndarray, scale: float) -> float:
    """Returns 0 at the prior and 1 at the optimum."""
    prior = elbo(np.full(5, 0.2), np.full(5, 0.2), losses, scale)
    return (elbo(p, q, losses, scale) - prior) / (elbo(*optimum(losses, scale), losses, scale) - prior)


def make_posterior(supernet: Supernet, scale: float = 1.0, **settings: Any) -> VariationalPosterior:
    posterior = VariationalPosterior(
        supernet, VariationalSettings(**settings), AdamSettings.model_validate(ADAM), scale=scale
    )
    posterior.reseed(0)
    return posterior


def probabilities(log_probs: dict[str, list[float | None]]) -> list[np.ndarray]:
    return [np.exp(np.array(log_probs[name], dtype=float)) for name in FREE]


def tiny_supernet(space: str, partial: int = 1, none: bool = True) -> Supernet:
    return build_supernet(space, NetworkSettings(channels=4, cells=1), 1, 10, 0, partial, none)


# Mixtures of decisions


@pytest.mark.parametrize(("partial", "none"), [(1, True), (2, False)])
@pytest.mark.parametrize("space", ["nasbench201", "darts", "darts-none", "nasbench1shot1-1"])
def test_one_hot_rows_are_the_path_of_the_architecture(space: str, partial: int, none: bool) -> None:
    supernet = tiny_supernet(space, partial, none).eval()
    relaxed = RelaxedDecisions(supernet)
    rng = np.random.default_rng(0)
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        chosen = torch.tensor([int(rng.choice(np.flatnonzero(row))) for row in relaxed.allowed.numpy()])
        rows = torch.nn.functional.one_hot(chosen, relaxed.allowed.shape[1]).float()
        with torch.no_grad():
            mixed, path = supernet(images, relaxed.mixture(rows)), supernet.path(relaxed.architecture(chosen))
            torch.testing.assert_close(mixed, supernet(images, path), rtol=1e-5, atol=1e-5)


# The distribution


@pytest.mark.parametrize("space", ["darts", "nasbench201"])
def test_the_kl_and_the_mode_equal_those_of_the_enumerated_distribution(space: str) -> None:
    supernet = tiny_supernet(space)
    posterior = make_posterior(supernet, temperature=0.7)
    with torch.no_grad():
        posterior.alpha.normal_(generator=torch.Generator().manual_seed(1))
    log_probs = posterior.log_probs()
    kl, best = 0.0, []
    if space == "nasbench201":
        for decision in supernet.space.decisions:
            row = np.array(log_probs[decision.name])
            kl += float((np.exp(row) * (row + np.log(len(row)))).sum())
            best.append(decision.choices[int(row.argmax())])
    else:  # nodes are independent: all pairs of inputs, with all operations on their edges
        operations = supernet.space.operations
        for cell, node in itertools.product(CELLS, NODES):
            pairs = list(itertools.combinations(range(node), 2))
            uniform = -np.log(len(pairs) * len(operations) ** 2)
            outcomes = {}
            for (number, pair), a, b in itertools.product(enumerate(pairs), *[range(len(operations))] * 2):
                log_p = log_probs[f"{cell}_{node}_inputs"][number]
                log_p += log_probs[f"{cell}_{node}<-{pair[0]}"][a] + log_probs[f"{cell}_{node}<-{pair[1]}"][b]
                kl += float(np.exp(log_p) * (log_p - uniform))
                outcomes[f"{pair[0]},{pair[1]}", operations[a], operations[b]] = log_p
            best += max(outcomes, key=outcomes.__getitem__)
    assert posterior.kl() == pytest.approx(kl, rel=1e-5)
    assert posterior.mode() == supernet.space.encode(tuple(best))


def test_choices_outside_the_supernet_are_impossible() -> None:
    posterior = make_posterior(tiny_supernet("nasbench201", none=False))
    assert posterior.kl() == pytest.approx(0, abs=1e-6)
    for row in posterior.log_probs().values():
        assert row[0] is None and row[1:] == pytest.approx([-np.log(4)] * 4)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        assert "none" not in posterior.sample(generator)
    posterior.learn(linear_lesson(torch.rand(4, 4)), 0.0)
    assert bool(posterior.alpha.isfinite().all())


# Learning


def linear_lesson(table: Tensor) -> Lesson:
    """Returns a loss that is linear in the weights of edges 2<-1 and 3<-1, and its table."""

    def loss(mixture: Mixture) -> Tensor:
        weights = mixture["edges"].dense
        return weights[2] @ table @ weights[4]

    def gradient(leaves: Mixture) -> tuple[Tensor, dict[str, Tensor]]:
        value = loss(leaves)
        return value.detach(), mixture_gradient(value, leaves)

    def outcome(mixture: Mixture) -> Outcome:
        dense = mixture["edges"].dense.clone()
        for row, chosen in enumerate(mixture["edges"].chosen.tolist()):
            dense[row, max(chosen, 0)] = 1.0  # a path leaves out `none`, the first operation
        return Outcome(dense[2] @ table @ dense[4][:, None], torch.tensor([False]))

    return Lesson(gradient, outcome)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"gumbel_temperature": 0.3, "samples": 8}, {"estimator": "score-function", "samples": 8}],
    ids=["straight-through", "score-function"],
)
def test_a_linear_loss_is_learned_to_its_optimum(settings: dict[str, Any]) -> None:
    table = torch.rand((5, 5), generator=torch.Generator().manual_seed(4))
    posterior = make_posterior(tiny_supernet("nasbench201"), SCALE, **settings)
    mean = [np.zeros(5), np.zeros(5)]
    for step in range(400):
        posterior.learn(linear_lesson(table), step / 400)
        if step >= 160:
            mean = [a + b / 240 for a, b in zip(mean, probabilities(posterior.log_probs()), strict=True)]
    losses = table.double().numpy()
    for found, expected in zip(mean, optimum(losses, SCALE), strict=True):
        np.testing.assert_allclose(found, expected, atol=0.04)
    assert share_of_gain(*mean, losses, SCALE) > 0.97


def learned_probabilities(two_edges: tuple[str, str, np.ndarray], epochs: int, **posterior: Any) -> list[np.ndarray]:
    """Returns the mean probabilities of both free edges over the last half of the epochs, each of one batch."""
    space, weights, _ = two_edges
    settings = {"space": space, "weights": weights, "data": DATA, "supernet": SUPERNET, "epochs": epochs}
    settings |= {"batch_size": 256, "threads": 1, "optimizer": ADAM, "posterior": {"scale": SCALE, **posterior}}
    trainable = PosteriorTrainable({"settings": settings, "seed": 2})
    found = [probabilities(json.loads(trainable.step()["posterior"])) for _ in range(epochs)]
    return [np.mean(each[epochs // 2 :], axis=0) for each in zip(*found, strict=True)]


@pytest.mark.slow
def test_the_posterior_is_the_kl_optimal_product(two_edges: tuple[str, str, np.ndarray]) -> None:
    losses = two_edges[2]
    found = learned_probabilities(two_edges, 160, estimator="score-function", samples=4)
    expected = optimum(losses, SCALE)
    assert max(np.abs(np.log(5 * each)).max() for each in expected) > 0.2  # far enough from uniform to be detected
    for row, best in zip(found, expected, strict=True):
        np.testing.assert_allclose(row, best, atol=0.03)
    assert share_of_gain(*found, losses, SCALE) > 0.9


@pytest.mark.slow
def test_the_straight_through_posterior_is_better_than_the_prior(two_edges: tuple[str, str, np.ndarray]) -> None:
    """It has a bias where the loss is not linear in the weights of operations, and does not reach the optimum."""
    assert share_of_gain(*learned_probabilities(two_edges, 60), two_edges[2], SCALE) > 0.1


def test_the_objective_without_kl_finds_the_best_architecture() -> None:
    table = torch.rand((5, 5), generator=torch.Generator().manual_seed(4))
    posterior = make_posterior(tiny_supernet("nasbench201"), 1.0, kl=False, estimator="score-function", samples=4)
    for step in range(600):
        posterior.learn(linear_lesson(table), step / 600)
    p, q = probabilities(posterior.log_probs())
    assert (int(p.argmax()), int(q.argmax())) == divmod(int(table.argmin()), 5)
    assert max(p) > 0.9 and max(q) > 0.9
