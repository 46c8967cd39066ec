"""Training of supernets: every combination, the unrolled gradient against autograd, exact continuation, scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional as F

from archray.errors import InvalidArchitecture, InvalidInput
from archray.trainables.checkpoint import read_weights, write_weights
from archray.trainables.data import Dataset, DataSettings, Split, load_images
from archray.trainables.nets import NetworkSettings, build
from archray.trainables.supernets import SupernetTrainingSettings, build_mixing
from archray.trainables.supernets.controllers import CandidatePaths
from archray.trainables.supernets.evaluation import score_architectures
from archray.trainables.supernets.mixing import Lesson, Mixture, as_leaves, mixture_gradient, unrolled_gradient
from archray.trainables.supernets.networks import MixtureWeights, Supernet, build_supernet, copy_weights
from archray.trainables.supernets.optimizers import entropic_step
from archray.trainables.supernets.relaxations import ArchitectureParameters, WholeMixture
from archray.trainables.supernets.settings import (
    GAEA_FLOOR,
    AdamSettings,
    GumbelSettings,
    MirrorDescentSettings,
    NoOptimizerSettings,
    OptimizerSettings,
    PathSettings,
    RelaxationSettings,
    SimplexSettings,
    SoftmaxSettings,
)
from archray.trainables.supernets.trainer import Diverged, SupernetTrainer

METHODS: dict[str, tuple[RelaxationSettings, OptimizerSettings, int]] = {
    "darts": (SoftmaxSettings(), AdamSettings(), 1),
    "pc-darts": (SoftmaxSettings(), AdamSettings(), 2),
    "gaea": (SimplexSettings(), MirrorDescentSettings(), 1),
    "gdas": (GumbelSettings(), AdamSettings(), 1),
    "gaea-gdas": (GumbelSettings(), MirrorDescentSettings(), 1),
    "snas": (GumbelSettings(hard=False, start=1.0, end=0.03, form="exponential"), AdamSettings(), 1),
}
OBJECTIVES = ("bilevel", "bilevel-second-order", "erm")
CELLS = (
    "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|",
    "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|none~2|",
    "|skip_connect~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|none~0|nor_conv_3x3~1|skip_connect~2|",
)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    """40 images in each part."""
    return load_images(DataSettings(name="digits", limit=40))


def first(dataset: Dataset, count: int) -> Dataset:
    return replace(dataset, train=Split(dataset.train.images[:count], dataset.train.labels[:count]))


def make_supernet(space: str = "nasbench201", partial_channels: int = 1, seed: int = 0) -> Supernet:
    network = NetworkSettings(channels=2, cells=1)
    return build_supernet(space, network, 1, 10, seed=seed, partial_channels=partial_channels)


def make_trainer(
    dataset: Dataset,
    method: str | tuple[RelaxationSettings, OptimizerSettings, int] = "gaea",
    space: str = "nasbench201",
    seed: int = 0,
    **training: Any,
) -> SupernetTrainer:
    relaxation, optimizer, partial_channels = METHODS[method] if isinstance(method, str) else method
    supernet = make_supernet(space, partial_channels)
    mixing = build_mixing(supernet, relaxation, optimizer, seed=seed)
    settings = SupernetTrainingSettings(**{"epochs": 4, "batch_size": 10, **training})
    return SupernetTrainer(supernet, dataset, mixing, settings, seed=seed)


def parameters_of(trainer: SupernetTrainer) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in trainer.mixing.parameters.items()}


def weights_of(trainer: SupernetTrainer) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in trainer.supernet.named_parameters()}


def states_equal(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


# Every combination


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("space", ["nasbench201"])
def test_weights_and_architecture_change_and_stay_finite(
    digits: Dataset, space: str, method: str, objective: str
) -> None:
    few = first(digits, 24)
    trainer = make_trainer(few, method, space, epochs=1, batch_size=24, objective=objective)
    weights, parameters = weights_of(trainer), parameters_of(trainer)
    metrics = trainer.epoch()
    assert math.isfinite(metrics.loss) and 0 <= metrics.accuracy <= 1
    after = parameters_of(trainer)
    assert all(torch.isfinite(each).all() for each in (*after.values(), *weights_of(trainer).values()))
    assert [name for name in after if after[name].shape[1] > 1 and torch.equal(after[name], parameters[name])] == []
    assert not states_equal(weights_of(trainer), weights)
    for rows in trainer.mixing.probabilities().values():
        torch.testing.assert_close(rows.sum(-1), torch.ones(len(rows)))
    trainer.supernet.space.decode(trainer.mixing.discretized())


@pytest.mark.parametrize("fair", [False, True])
def test_uniform_paths_train_only_weights_on_all_data(digits: Dataset, fair: bool) -> None:
    trainer = make_trainer(digits, (PathSettings(fair=fair), NoOptimizerSettings(), 1), batch_size=8)
    assert len(trainer.weight_images) == 40
    weights, parameters = weights_of(trainer), parameters_of(trainer)
    trainer.epoch()
    assert not states_equal(weights_of(trainer), weights)
    assert states_equal(parameters_of(trainer), parameters)


# Gradients


@pytest.mark.parametrize("method", ["darts", "gaea", "gdas", "snas"])
def test_an_update_follows_the_gradient_through_the_relaxation(digits: Dataset, method: str) -> None:
    relaxation, optimizer, _ = METHODS[method]
    supernet = make_supernet()
    mixing = build_mixing(supernet, relaxation, optimizer, seed=0)
    images, labels = digits.train.images[:16], digits.train.labels[:16]

    def loss(mixture: Mixture) -> Tensor:
        return F.cross_entropy(supernet(images, mixture), labels)

    [parameter] = mixing.parameters.values()
    mixing.reseed(3)
    [expected] = torch.autograd.grad(loss(mixing.draw(0.5)), [parameter])
    before = parameter.detach().clone()
    mixing.reseed(3)

    def gradient(leaves: Mixture) -> tuple[Tensor, dict[str, Tensor]]:
        value = loss(leaves)
        return value.detach(), mixture_gradient(value, leaves)

    mixing.learn(Lesson(gradient, lambda mixture: pytest.fail("only the gradient is needed")), 0.5)
    torch.testing.assert_close(parameter.grad, expected)
    if method == "gaea":
        torch.testing.assert_close(parameter.detach(), entropic_step(before, expected, 0.1, GAEA_FLOOR))


@pytest.mark.parametrize(("momentum", "nesterov", "decay"), [(0.0, False, 0.0), (0.9, False, 3e-2), (0.9, True, 3e-2)])
@pytest.mark.parametrize("chosen", [False, True])
def test_the_unrolled_gradient_equals_autograd_through_the_step(
    momentum: float, nesterov: bool, decay: float, chosen: bool
) -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x, y, x_val, y_val = normal(20, 3), normal(20, 2), normal(15, 3), normal(15, 2)
    weights = [normal(4, 3, 5).requires_grad_(), normal(5, 2).requires_grad_(), normal(2).requires_grad_()]
    buffers = {weights[0]: normal(4, 3, 5), weights[1]: normal(5, 2)}  # the bias has not been stepped yet
    lr = 0.3
    rows = torch.eye(4, dtype=torch.float64)[[2, 0]] if chosen else normal(2, 4).softmax(-1)
    leaf = as_leaves({"edges": MixtureWeights(rows, torch.tensor([2, 0]) if chosen else None)})

    def output(w: list[Tensor], m: Tensor, inputs: Tensor) -> Tensor:
        mixed = torch.einsum("eo,oij->eij", m, w[0])  # two edges, each a mixture of four matrices
        return torch.tanh(torch.tanh(inputs @ mixed[0]) + torch.sin(inputs @ mixed[1])) @ w[1] + w[2]

    def loss_of(w: list[Tensor], m: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return (output(w, m, inputs) - targets).square().mean()

    m = leaf["edges"].dense
    steps = torch.autograd.grad(loss_of(weights, m, x, y), weights, create_graph=True)
    ahead = []
    for w, step in zip(weights, steps, strict=True):
        direction = step + decay * w.detach()
        average = direction + momentum * buffers[w] if w in buffers else direction
        ahead.append(w.detach() - lr * (direction + momentum * average if nesterov else average))
    exact_loss = loss_of(ahead, m, x_val, y_val)
    [exact] = torch.autograd.grad(exact_loss, [m])
    [first_order] = torch.autograd.grad(loss_of(weights, m, x_val, y_val), [m])

    before = [w.detach().clone() for w in weights]
    for radius, tolerance in ((1e-4, 1e-8), (0.01, 1e-3)):  # the error of a central difference falls with its square
        loss, found = unrolled_gradient(
            lambda mixture: loss_of(weights, mixture["edges"].dense, x_val, y_val),
            lambda mixture: loss_of(weights, mixture["edges"].dense, x, y),
            leaf,
            weights,
            lr=lr,
            buffers=buffers,
            momentum=momentum,
            nesterov=nesterov,
            weight_decay=decay,
            radius=radius,
        )
        assert loss.item() == pytest.approx(exact_loss.item(), rel=1e-12)
        assert (found["edges"] - exact).norm() < tolerance * exact.norm()
        assert (first_order - exact).norm() > 10 * tolerance * exact.norm()  # the second order is tested
    assert all(torch.equal(w, old) for w, old in zip(weights, before, strict=True))


def test_second_order_at_a_vanishing_rate_equals_first_order(digits: Dataset) -> None:
    found = []
    for objective in ("bilevel", "bilevel-second-order"):
        trainer = make_trainer(digits, lr=1e-12, lr_min=0.0, objective=objective)
        trainer.epoch()
        found.append(parameters_of(trainer)["edges"])
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-7)
    trainer = make_trainer(digits, lr=1.0, objective="bilevel-second-order")
    trainer.epoch()
    assert (parameters_of(trainer)["edges"] - found[0]).abs().max() > 1e-4


# Blocks, data, schedule


class Watched(ArchitectureParameters):
    """Keeps a log: d for a sample, u for an update."""

    log = ""

    def draw(self, progress: float) -> dict[str, MixtureWeights]:
        self.log += "d"
        return super().draw(progress)

    def learn(self, lesson: Lesson, progress: float) -> Tensor:
        loss = super().learn(lesson, progress)
        self.log += "u"
        return loss


def watched_trainer(digits: Dataset, **training: Any) -> tuple[SupernetTrainer, Watched]:
    supernet = make_supernet()
    mixing = Watched(supernet, partial(WholeMixture, domain="simplex"), MirrorDescentSettings(), seed=0)
    settings = SupernetTrainingSettings(**{"epochs": 3, "batch_size": 2, **training})
    return SupernetTrainer(supernet, digits, mixing, settings, seed=0), mixing


def test_architecture_steps_precede_weight_steps_and_are_absent_in_warm_up(digits: Dataset) -> None:
    trainer, mixing = watched_trainer(digits, warmup_epochs=1)
    start = parameters_of(trainer)
    trainer.epoch()
    assert mixing.log == "d" * 10  # 20 images of the weights, 2 at a time
    assert states_equal(parameters_of(trainer), start)
    mixing.log = ""
    trainer.epoch()
    assert mixing.log == "dud" * 10
    assert not states_equal(parameters_of(trainer), start)


def test_random_blocks_are_reshuffled_in_each_epoch(digits: Dataset) -> None:
    trainer, mixing = watched_trainer(digits, blocks="random")
    logs = []
    for _ in range(2):
        mixing.log = ""
        trainer.epoch()
        logs.append(mixing.log)
        assert mixing.log.count("d") == 20  # twice the steps, one block each
        assert 2 <= mixing.log.count("u") <= 18
    assert logs[0] != logs[1]
    again, same_mixing = watched_trainer(digits, blocks="random")
    again.epoch()
    assert same_mixing.log == logs[0]


def test_bilevel_divides_the_training_data_and_erm_does_not(digits: Dataset) -> None:
    trainer = make_trainer(digits)
    own, other = set(trainer.weight_images.tolist()), set(trainer.architecture_images.tolist())
    assert (len(own), len(other), own & other, own | other) == (20, 20, set(), set(range(40)))
    assert set(make_trainer(digits).weight_images.tolist()) == own
    assert set(make_trainer(digits, seed=1).weight_images.tolist()) != own
    assert len(make_trainer(digits, architecture_fraction=0.25).architecture_images) == 10
    erm = make_trainer(digits, objective="erm")
    assert len(erm.weight_images) == len(erm.architecture_images) == 40


def test_the_rate_falls_from_lr_to_lr_min(digits: Dataset) -> None:
    trainer = make_trainer(digits, epochs=2, lr=0.1, lr_min=0.01)
    rates = [trainer.lr]
    while not trainer.finished:
        trainer.epoch()
        rates.append(trainer.lr)
    assert rates == pytest.approx([0.1, 0.055, 0.01])
    with pytest.raises(RuntimeError, match="finished after 2 epochs"):
        trainer.epoch()


def test_mirror_descent_sharpens_and_the_supernet_learns(digits: Dataset) -> None:
    trainer = make_trainer(digits, epochs=8, lr=0.1, objective="erm", augmentation=None)
    losses = [trainer.epoch().loss for _ in range(8)]
    assert losses[-1] < losses[0] - 0.1
    assert max(trainer.mixing.entropies()["edges"]) < math.log(5)


# Failures


def test_divergence_is_reported(digits: Dataset) -> None:
    trainer = make_trainer(digits, method="darts", lr=1e30, grad_clip=None)
    with pytest.raises(Diverged, match="epoch 1"):
        trainer.epoch()
    trainer = make_trainer(digits)
    with torch.no_grad():
        next(trainer.supernet.parameters()).fill_(math.nan)
    with pytest.raises(Diverged, match="NaN"):  # mirror descent rejects such a gradient
        trainer.epoch()


def test_amp_on_a_cpu_is_slow_and_reported(digits: Dataset, caplog: pytest.LogCaptureFixture) -> None:
    make_trainer(digits)
    assert not caplog.records
    make_trainer(digits, amp=True)
    assert "amp makes the training of a supernet slower on a CPU" in caplog.text


def test_incompatible_options_raise_an_error() -> None:
    supernet, partial = make_supernet(), make_supernet(partial_channels=2)
    for net, relaxation, optimizer, reason in (
        (supernet, SoftmaxSettings(), MirrorDescentSettings(), "expected the relaxation simplex or gumbel"),
        (supernet, SimplexSettings(), AdamSettings(), "expected the optimizer mirror-descent"),
        (supernet, PathSettings(), AdamSettings(), "expected the optimizer none"),
        (partial, GumbelSettings(), AdamSettings(), "expected partial_channels 1"),
        (partial, PathSettings(), NoOptimizerSettings(), "expected partial_channels 1"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            build_mixing(net, relaxation, optimizer, seed=0)
    with pytest.raises(ValidationError, match="floor"):
        MirrorDescentSettings(dgf="euclidean", floor=1e-5)
    with pytest.raises(ValidationError, match="lr_min"):
        SupernetTrainingSettings(lr=0.01, lr_min=0.1)
    with pytest.raises(InvalidInput, match="at least one candidate"):
        CandidatePaths(supernet, [])
    with pytest.raises(InvalidArchitecture):
        CandidatePaths(supernet, ["|conv5x5~0|"])


# Scores


def test_scores_equal_those_of_each_path_alone(digits: Dataset) -> None:
    supernet = make_supernet("nasbench201")
    split = Split(digits.validation.images[:20], digits.validation.labels[:20])
    found = score_architectures(supernet, CELLS, split, 20)
    assert supernet.training
    space = supernet.space
    for cell, metrics in zip(CELLS, found, strict=True):
        form = NetworkSettings(channels=2, cells=1, normalization="scoring")
        network = build(space, cell, network=form, in_channels=1, num_classes=10, seed=5)
        copy_weights(supernet, cell, network)
        with torch.no_grad():
            logits = network.eval()(split.images)
        assert metrics.loss == pytest.approx(F.cross_entropy(logits, split.labels).item(), rel=1e-4)
        assert metrics.accuracy == pytest.approx((logits.argmax(1) == split.labels).float().mean().item())
    assert score_architectures(supernet, [space.decode(each) for each in CELLS[::-1]], split, 20) == found[::-1]
    assert all(math.isnan(each.loss) for each in score_architectures(supernet, CELLS, Split(*empty(split)), 20))


def empty(split: Split) -> tuple[Tensor, Tensor]:
    return split.images[:0], split.labels[:0]


@torch.no_grad()
@pytest.mark.parametrize("space", ["darts", "nasbench201", "nasbench1shot1-1"])
def test_a_score_is_the_mean_over_batches_with_separate_normalization(space: str, digits: Dataset) -> None:
    supernet = make_supernet(space)
    architecture = supernet.space.encode(tuple(decision.choices[-1] for decision in supernet.space.decisions))
    split = digits.validation
    [score] = score_architectures(supernet, [architecture], split, 7)
    path = supernet.path(supernet.space.decode(architecture))
    loss, correct = 0.0, 0
    order = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))
    for some in order.tensor_split(math.ceil(len(split) / 7)):
        logits = supernet.train()(split.images[some], path)  # in training a batch is always normalized by itself
        loss += float(F.cross_entropy(logits, split.labels[some], reduction="sum"))
        correct += int((logits.argmax(1) == split.labels[some]).sum())
    assert score.loss == pytest.approx(loss / len(split), rel=1e-5)
    assert score.accuracy == pytest.approx(correct / len(split))


def test_candidates_are_sampled_uniformly_and_train_only_their_operations(digits: Dataset) -> None:
    supernet = make_supernet()
    mixing = CandidatePaths(supernet, [CELLS[0], CELLS[0].replace("nor_conv_1x1", "nor_conv_3x3")])
    trainer = SupernetTrainer(
        supernet, digits, mixing, SupernetTrainingSettings(epochs=1, batch_size=4, objective="erm"), seed=0
    )
    before = weights_of(trainer)
    trainer.epoch()
    changed = {name for name, after in weights_of(trainer).items() if not torch.equal(after, before[name])}
    edge = "stages.0.edges.1<-0"
    assert any(name.startswith(f"{edge}.nor_conv_1x1") for name in changed)
    assert any(name.startswith(f"{edge}.nor_conv_3x3") for name in changed)
    assert not any(name.startswith("stages.0.edges.2<-0") for name in changed)  # none in both
    mixing.reseed(0)
    draws = [int(mixing.draw(0.0)["edges"].dense[0].argmax()) for _ in range(300)]
    assert 110 < draws.count(draws[0]) < 190


def test_weights_are_complete_files_under_a_uri(tmp_path: Path) -> None:
    folder = tmp_path / "shared weights" / "new"
    tensor = torch.arange(5.0)
    uri = write_weights(str(folder), "round-1.pt", {"supernet": {"w": tensor}})
    assert uri == (folder / "round-1.pt").as_uri()
    assert torch.equal(read_weights(uri)["supernet"]["w"], tensor)
    assert torch.equal(read_weights(str(folder / "round-1.pt"))["supernet"]["w"], tensor)
    assert write_weights(folder.as_uri(), "round-1.pt", {"supernet": {}}) == uri  # replaced
    assert read_weights(uri) == {"supernet": {}}
    assert [each.name for each in folder.iterdir()] == ["round-1.pt"]
    with pytest.raises(FileNotFoundError):
        read_weights(f"{uri}-not-there")
