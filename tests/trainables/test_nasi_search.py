"""NASI's single step by hand, its batches, its selection, and trace norms compared with standalone networks."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from archray.trainables.costs import NetworkCosts
from archray.trainables.data import DataSettings, load_images
from archray.trainables.data.dataset import Dataset
from archray.trainables.nasi.one_step import constraints, one_step, reward
from archray.trainables.nasi.search import (
    MULTIPLES,
    PENALTIES,
    Constants,
    NASIBatches,
    NASISearch,
    OneInputDecisions,
    PooledDARTSSupernet,
    Source,
    form_of,
    path_of,
)
from archray.trainables.nasi.trace_norm import trace_norm
from archray.trainables.nets.build_network import build
from archray.trainables.nets.network_settings import NetworkSettings
from archray.trainables.spaces import get_space
from archray.trainables.spaces.darts import NODES
from archray.trainables.spaces.genotypes import CELLS
from archray.trainables.supernets.networks import Supernet, build_supernet, copy_weights
from archray.trainables.tune.nasi_trainable import NASIAgreementTrainable, NASITrainable, mini_batches, scored_batch
from archray.trainables.tune.scorers import PoolScorer
from archray.trainables.tune.settings import NASISettings

TINY = NetworkSettings(channels=4, cells=1)
CPU = torch.device("cpu")
# Three steps with two decisions of two choices: norms 5, 0.5 and 10.
GRADIENTS = np.array([[[3.0, -3.0], [4.0, -4.0]], [[0.0, 0.5], [0.0, 0.0]], [[0.0, 0.0], [6.0, -8.0]]])
GRADIENTS[0] /= math.sqrt(2.0)
TRACES = np.array([1.0, 2.0, 5.0])


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_images(DataSettings(name="digits", limit=40), device=CPU)


WITHOUT_DATA = {
    "space": "nasbench201", "network": {"channels": 4, "cells": 1}, "steps": 4, "every": 4, "samples": 2,
    "batch_size": 6, "image_size": 8, "threads": 1, "labels": "random", "inputs": "random", "mu": 2.0,
}  # fmt: skip


def batches(dataset: Dataset | None, inputs: Source = "true", labels: Source = "true", size: int = 6) -> NASIBatches:
    shape = (3, 8, 8) if dataset is None else (dataset.in_channels, dataset.image_size, dataset.image_size)
    return NASIBatches(dataset, inputs, labels, shape, 10, size, seed=5, device=CPU)


def search_of(space: str, *, double: bool = False) -> NASISearch:
    supernet = build_supernet(space, TINY, 3, 10, seed=0, none=space != "darts", form=form_of(space))
    without_data = batches(None, "random", "random")
    if double:
        supernet = supernet.double()
    return NASISearch(supernet, without_data, approximation="batch", temperature=1.0, samples=3, seed=4)


# One step


def test_a_step_is_divided_by_the_largest_norm_so_far() -> None:
    """Eq. 6.13: the first step is divided by its norm, the second by that of the first, the third by its norm."""
    expected = (GRADIENTS[0] / 5 + GRADIENTS[1] / 5 + GRADIENTS[2] / 10) / 3
    np.testing.assert_allclose(one_step(GRADIENTS, TRACES, np.full(3, 9.0), mu=2.0), expected)
    np.testing.assert_allclose(one_step(GRADIENTS, TRACES, np.full(3, 9.0), mu=2.0, xi=3.0), 3 * expected)


@pytest.mark.parametrize(
    ("mu", "factors", "largest"),
    [(0.0, (1, 1, 1), (5, 5, 10)), (1.0, (1, 0, 0), (5, 5, 5)), (2.0, (1, -1, -1), (5, 5, 10))],
)
def test_the_penalty_counts_samples_above_nu(mu: float, factors: tuple[int, ...], largest: tuple[int, ...]) -> None:
    expected = sum(f * gradient / n for f, gradient, n in zip(factors, GRADIENTS, largest, strict=True)) / 3
    np.testing.assert_allclose(one_step(GRADIENTS, TRACES, np.full(3, 1.5), mu), expected)


def test_steps_before_the_first_gradient_add_nothing() -> None:
    """This happens at mu = 1 and above nu. Such a step still counts in T."""
    nus = np.array([0.5, 9.0, 9.0])
    expected = (GRADIENTS[1] / 0.5 + GRADIENTS[2] / 10) / 3
    np.testing.assert_allclose(one_step(GRADIENTS, TRACES, nus, mu=1.0), expected)
    assert not one_step(GRADIENTS, TRACES, np.zeros(3), mu=1.0).any()


def test_a_constraint_is_constant_or_follows_the_previous_samples() -> None:
    """Eq. 6.15."""
    assert constraints(TRACES, 10.0, "fixed").tolist() == [10.0, 10.0, 10.0]
    np.testing.assert_allclose(constraints(TRACES, 10.0, "adaptive"), [10.0, (10 + 1) / 2, (10 + 1 + 2) / 3])
    assert constraints(np.array([]), 10.0, "adaptive").shape == (0,)


def test_the_reward_is_the_trace_norm_minus_the_penalty() -> None:
    np.testing.assert_allclose(reward(TRACES, 1.5, 2.0), [1.0, 2 - 2 * 0.5, 5 - 2 * 3.5])
    np.testing.assert_allclose(reward(TRACES, np.array([0.0, 2.0, 4.0]), 1.0), [0.0, 2.0, 4.0])


# Batches


def test_a_batch_depends_only_on_seed_and_step(digits: Dataset) -> None:
    for own in (batches(digits), batches(None)):
        first, again, other = own.take(1), own.take(1), own.take(2)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        assert not torch.equal(first[0], other[0])
    images, labels = batches(digits).take(1)
    train = digits.train
    for image, label in zip(images, labels, strict=True):
        places = (train.images == image).flatten(1).all(1)
        assert label in train.labels[places], "an image has its own label"


def test_random_labels_keep_the_images_and_random_inputs_the_labels(digits: Dataset) -> None:
    true = batches(digits, size=20).take(3)
    by_labels, by_inputs = batches(digits, labels="random", size=20).take(3), batches(digits, "random", size=20).take(3)
    assert torch.equal(by_labels[0], true[0]) and not torch.equal(by_labels[1], true[1])
    assert torch.equal(by_inputs[1], true[1]) and not torch.equal(by_inputs[0], true[0])
    both = batches(digits, "random", "random", size=20).take(3)
    assert torch.equal(both[0], by_inputs[0]) and torch.equal(both[1], by_labels[1])


def test_batches_without_data_and_smaller_than_a_batch(digits: Dataset) -> None:
    images, labels = batches(None, "random", "random", size=400).take(0)
    assert images.shape == (400, 3, 8, 8) and set(labels.tolist()) == set(range(10))
    assert abs(float(images.mean())) < 0.02 and float(images.std()) == pytest.approx(1, abs=0.02)
    for inputs in ("true", "random"):
        images, labels = batches(digits, inputs, size=400).take(0)
        assert len(images) == len(labels) == len(digits.train)


# Selection


def test_no_data_are_read_if_labels_and_inputs_are_random(tmp_path: Path) -> None:
    absent = {"name": f"folder:{tmp_path / 'absent'}"}
    options = {
        "space": "nasbench201", "network": {"channels": 4, "cells": 1}, "steps": 2, "every": 2, "samples": 2,
        "batch_size": 4, "image_size": 8, "threads": 1, "labels": "random", "inputs": "random", "data": absent,
    }  # fmt: skip
    result = NASITrainable({"settings": options, "seed": 1}).step()
    assert result["failure"] is None and result["done"] and math.isfinite(result["found_reward"])
    get_space("nasbench201").decode(result["architecture"])
    opens = NASITrainable({"settings": options | {"labels": "true"}, "seed": 1})
    with pytest.raises(Exception, match="absent"):
        opens.step()


def test_architectures_are_scored_without_data_if_labels_and_inputs_are_random(tmp_path: Path) -> None:
    """The batch is that of NASI; with true labels, it is that of the data."""
    data = {"name": f"folder:{tmp_path / 'absent'}"}
    nasi = WITHOUT_DATA | {"data": data, "every": 10}
    proxy = {"metrics": ("ntk_trace_batch", "snip"), "network": TINY.model_dump(), "seed": 3}
    batch = scored_batch(NASISettings(**nasi), 3)
    scorer = PoolScorer("nasbench201", batch, proxy, device="cpu")
    assert torch.equal(scorer.images, mini_batches(NASISettings(**nasi), 3, CPU).take(0)[0])
    row = scorer(get_space("nasbench201").encode(get_space("nasbench201").sample(np.random.default_rng(0))))
    assert row["failure"] is None and row["ntk_trace_batch"] > 0 and row["parameters"] > 0
    with pytest.raises(Exception, match="absent"):
        scored_batch(NASISettings(**nasi | {"labels": "true"}), 3)


def test_darts_keeps_two_operations_and_two_inputs_paired_by_rank() -> None:
    decisions = search_of("darts").decisions
    assert isinstance(decisions, OneInputDecisions) and len(decisions.operations) == 7
    assert "none" not in decisions.operations
    probabilities = torch.zeros(decisions.allowed.shape)
    for number, decision in enumerate(decisions.decisions):
        if decision.name == "normal_5_operation":
            probabilities[number, [4, 1]] = torch.tensor([0.6, 0.3])
        elif decision.name == "normal_5_input":
            probabilities[number, [3, 0]] = torch.tensor([0.7, 0.2])
    normal, reduction = decisions.space.genotype(decisions.mode(probabilities))[:2]
    names = decisions.operations
    assert normal[6:] == ((names[1], 0), (names[4], 3)), "the more probable operation on the more probable input"
    first = ((names[0], 0), (names[1], 1))  # all are equal
    assert normal[:6] == first * 3 and reduction == first * 4


def test_a_sample_of_darts_has_one_edge_into_each_node() -> None:
    search = search_of("darts")
    for number in range(5):
        path = search.random_path(number)
        for cell in CELLS:
            sums = [part.sum().item() for part in path[cell].dense.split(list(NODES))]
            assert sums == [1.0] * len(NODES)


def test_max_pooling_halves_the_maps_of_the_supernet_of_darts() -> None:
    supernet = search_of("darts").supernet
    assert isinstance(supernet, PooledDARTSSupernet)
    plain = build_supernet("darts", TINY, 3, 10, seed=0, none=False)
    for own, other in zip(supernet.cells, plain.cells, strict=True):
        assert {edge.stride for edge in own.mixed.graph} == {1}
        assert {edge.stride for edge in other.mixed.graph} == ({1, 2} if own.reduction else {1})
    shapes: list[torch.Size] = []
    for cell in supernet.cells:
        cell.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape[2:]))
    architecture = supernet.space.sample(np.random.default_rng(0))
    supernet(torch.rand(2, 3, 16, 16), supernet.path(architecture))
    heights = [16]
    for cell, shape in zip(supernet.cells, shapes, strict=True):
        heights.append(heights[-1] // 2 if cell.reduction else heights[-1])
        assert shape == (heights[-1], heights[-1])
    assert heights[-1] == 4


# Trace norms


def trace_by_hand(supernet: torch.nn.Module, logits: torch.Tensor, labels: torch.Tensor) -> float:
    """||grad of the mean cross-entropy||^2, by a backward pass."""
    supernet.zero_grad()
    F.cross_entropy(logits, labels).backward()
    return sum(float(p.grad.double().square().sum()) for p in supernet.parameters() if p.grad is not None)


@pytest.mark.parametrize("space", ["nasbench201", "darts", "nasbench1shot1-1"])
def test_the_mean_is_over_the_trace_norms_of_random_paths(space: str) -> None:
    """Eq. 6.14. Each path has a separate batch, which `take` passes to `trace_on`."""
    search, taken = search_of(space), []
    plain = search.batches.take

    class Kept(NASIBatches):
        def take(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
            taken.append(plain(step))
            return taken[-1]

    search.batches = Kept(**vars(search.batches))
    mean = search.mean_trace()
    expected = []
    for number, (images, labels) in enumerate(taken):
        rows = {name: each.dense for name, each in search.random_path(number).items()}
        expected.append(trace_by_hand(search.supernet, search.supernet(images, rows), labels))
    assert len(expected) == search.samples and mean == pytest.approx(float(np.mean(expected)), rel=1e-3)
    assert search.nu_0("fixed") == mean and search.nu_0("adaptive") == 5 * mean


def test_a_path_has_the_trace_norm_of_its_standalone_network() -> None:
    """In search form, with the weights of the supernet (note G3)."""
    space, rng = get_space("nasbench201"), np.random.default_rng(0)
    supernet: Supernet = build_supernet(space, TINY, 3, 10, seed=0).double()
    images = torch.rand(6, 3, 16, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(6)
    for _ in range(3):
        architecture = space.sample(rng)
        alone = build(space, architecture, network=TINY, in_channels=3, num_classes=10, seed=1, for_scoring=True)
        alone = alone.double()
        copy_weights(supernet, architecture, alone)
        path = path_of(supernet, supernet.path(architecture))
        ours = trace_norm(supernet.logits(images, path), labels, list(supernet.parameters()), "batch")
        assert ours == pytest.approx(trace_by_hand(alone, alone(images), labels), rel=1e-8)


def test_the_result_of_darts_has_a_trace_norm() -> None:
    """It is that of the most probable sample, which has one edge into each node where the architecture has two."""
    search = search_of("darts")
    search.step()
    constants = Constants(2.0, 1.0, "fixed")
    trace = search.mode_trace(constants, batches=2)
    assert search.architecture(constants) is not None and math.isfinite(trace) and trace > 0


def test_no_result_if_no_step_had_a_gradient() -> None:
    """At mu = 1 samples above nu have no gradient; at mu = 2 the gradient leads away from them."""
    search = search_of("nasbench201")
    assert search.architecture(Constants(2.0, 1.0, "fixed")) is None  # before the first step
    search.step()
    nu = search.traces[0] / 2
    assert search.architecture(Constants(1.0, nu, "fixed")) is None
    assert search.architecture(Constants(2.0, nu, "fixed")) is not None
    options = {**WITHOUT_DATA, "nu": 1e-12, "mu": 1.0}
    result = NASITrainable({"settings": options, "seed": 1}).step()
    assert result["done"] and result["architecture"] is None
    assert result["failure"].startswith("expected a step with a gradient") and "set mu to 2" in result["failure"]


@pytest.mark.slow
@pytest.mark.parametrize("space", ["nasbench201", "darts"])
def test_results_under_bounds_meet_them(space: str) -> None:
    options = {**WITHOUT_DATA, "space": space, "steps": 2, "every": 2, "batch_size": 2, "in_channels": 1}
    costs = NetworkCosts(space, ("parameters",), network=TINY)  # of three channels, for any setting of the search
    unbounded = NASITrainable({"settings": options, "seed": 1}).step()["architecture"]
    most = 0.9 * costs(unbounded)["parameters"]
    bounds = {"constraints": (f"parameters <= {most}",), "network": TINY.model_dump()}
    bounded = {**options, "bounds": bounds, "bounded_images": (3, 32, 10)}
    result = NASITrainable({"settings": bounded, "seed": 1}).step()
    assert result["failure"] is None and costs(result["architecture"])["parameters"] <= most
    bounds["constraints"] = ("parameters <= 1",)
    assert NASITrainable({"settings": bounded, "seed": 1}).step()["architecture"] == unbounded  # which the run rejects


def test_the_candidate_constants_include_the_configured_ones() -> None:
    trial = NASITrainable({"settings": WITHOUT_DATA, "seed": 1})
    result = trial.step()
    tried = json.loads(result["constants"])
    assert len(tried) == len(MULTIPLES) * len(PENALTIES)
    nu_0 = trial.trainer.nu_0("fixed")
    [own] = [each for each in tried if each["mu"] == 2.0 and each["nu"] == nu_0]
    assert own["architecture"] == result["architecture"] and own["trace"] == result["found_trace"]
    assert json.loads(result["samples"])["trace"] == trial.trainer.traces.tolist()


@pytest.mark.parametrize(
    ("random", "empty"),
    [((), ()), (("labels",), ("random_labels",)), (("labels", "inputs"), ("random_labels", "random_inputs"))],
)
def test_a_random_setting_is_not_compared_again(random: tuple[str, ...], empty: tuple[str, ...]) -> None:
    options = {
        "space": "nasbench201", "network": {"channels": 4, "cells": 1}, "batch_size": 4, "exact_images": 2,
        "image_size": 8, "threads": 1, "data": {"name": "digits", "limit": 40}, **dict.fromkeys(random, "random"),
    }  # fmt: skip
    result = NASIAgreementTrainable({"settings": options, "seed": 1}).step()
    columns = ("exact", "samples", "batch_4", "batch", "random_labels", "random_inputs")
    assert [name for name in columns if math.isnan(result[name])] == list(empty)
    assert result["batch"] == result["batch_4"] > 0
