"""The training loop, compared with a reference by hand, and its exact continuation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from archray.errors import InvalidInput
from archray.trainables.data import Dataset, Split
from archray.trainables.proxies import ProxySettings, score
from archray.trainables.training import Trainer, cosine
from archray.trainables.training_settings import TrainingSettings

CLASSES = 3


def make_split(count: int, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    images = 0.5 * torch.randn(count, 1, 6, 6, generator=generator) + labels.view(-1, 1, 1, 1)
    return Split(images, labels)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return Dataset(
        name="blobs",
        train=make_split(50, 0),
        validation=make_split(20, 1),
        test=make_split(21, 2),
        num_classes=CLASSES,
        in_channels=1,
        image_size=6,
    )


def make_network(seed: int = 0, dropout: float = 0.0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(4, CLASSES),
        )


def states_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_cosine_starts_at_lr_and_ends_at_exactly_zero() -> None:
    rates = [cosine(0.1, step, 60) for step in range(61)]
    assert rates[0] == 0.1
    assert rates[30] == pytest.approx(0.05)
    assert rates[60] == 0.0
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("nesterov", [True, False])
def test_full_batch_training_equals_sgd_written_out(dataset: Dataset, nesterov: bool) -> None:
    settings = TrainingSettings(
        epochs=5, batch_size=64, weight_decay=0.01, nesterov=nesterov, label_smoothing=0.1, augmentation=None
    )
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, CLASSES))
    weight, bias = (p.detach().double().requires_grad_() for p in network.parameters())
    momentum = [torch.zeros_like(weight), torch.zeros_like(bias)]
    trainer = Trainer(network, dataset, settings, seed=0)
    images, labels = dataset.train.images.flatten(1).double(), dataset.train.labels

    for epoch in range(5):
        metrics = trainer.epoch()
        log_p = (images @ weight.T + bias).log_softmax(1)
        target = 0.9 * F.one_hot(labels, CLASSES) + 0.1 / CLASSES
        loss = -(target * log_p).sum(1).mean()
        assert metrics.loss == pytest.approx(loss.item(), rel=1e-5)
        assert metrics.accuracy == pytest.approx((log_p.argmax(1) == labels).double().mean().item())
        rate = 0.1 * 0.5 * (1 + math.cos(math.pi * epoch / 5))
        with torch.no_grad():
            for i, (p, g) in enumerate(zip((weight, bias), torch.autograd.grad(loss, (weight, bias)), strict=True)):
                g = g + 0.01 * p
                momentum[i] = 0.9 * momentum[i] + g
                p -= rate * (g + 0.9 * momentum[i] if nesterov else momentum[i])
    for got, expected in zip(network.parameters(), (weight, bias), strict=True):
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-6)


def test_evaluation_is_exact_and_changes_nothing(dataset: Dataset) -> None:
    trainer = Trainer(make_network(), dataset, TrainingSettings(epochs=1, batch_size=16), seed=0)
    trainer.epoch()
    before = {key: value.clone() for key, value in trainer.network.state_dict().items()}
    metrics = trainer.evaluate(dataset.test)
    with torch.no_grad():
        logits = trainer.network.eval()(dataset.test.images)
    assert metrics.loss == pytest.approx(F.cross_entropy(logits, dataset.test.labels).item(), rel=1e-5)
    assert metrics.accuracy == pytest.approx((logits.argmax(1) == dataset.test.labels).float().mean().item())
    assert states_equal(before, trainer.network.state_dict())


def test_a_split_without_images_has_no_metrics(dataset: Dataset) -> None:
    empty = Split(dataset.test.images[:0], dataset.test.labels[:0])
    trainer = Trainer(make_network(), dataset, TrainingSettings(epochs=1), seed=0)
    assert all(math.isnan(value) for value in trainer.evaluate(empty))


def test_every_epoch_uses_each_image_once_in_batches_of_nearly_equal_size(dataset: Dataset) -> None:
    numbered = Split(
        torch.arange(50.0).view(-1, 1, 1, 1).expand(-1, 1, 6, 6).contiguous(), torch.zeros(50, dtype=torch.int64)
    )
    seen: list[Tensor] = []

    class Watching(nn.Linear):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(images[:, 0, 0, 0].clone())
            return super().forward(images.flatten(1) / 50)

    settings = TrainingSettings(epochs=2, batch_size=7, augmentation=None)
    trainer = Trainer(Watching(36, CLASSES), replace(dataset, train=numbered), settings, seed=0)
    trainer.epoch()
    first = torch.cat(seen)
    assert [len(batch) for batch in seen] == [7, 7, 6, 6, 6, 6, 6, 6]
    assert sorted(first.tolist()) == list(range(50))
    seen.clear()
    trainer.epoch()
    assert sorted(torch.cat(seen).tolist()) == list(range(50))
    assert not torch.equal(first, torch.cat(seen))


def test_the_network_learns_and_the_rate_ends_at_zero(dataset: Dataset) -> None:
    trainer = Trainer(make_network(), dataset, TrainingSettings(epochs=15, batch_size=8), seed=0)
    assert trainer.lr == 0.1
    while not trainer.finished:
        trainer.epoch()
    assert trainer.evaluate(dataset.validation).accuracy > 0.9
    assert trainer.lr == 0.0
    with pytest.raises(RuntimeError, match="finished after 15 epochs"):
        trainer.epoch()


OPTIONS: dict[str, dict[str, object]] = {
    "plain": {"augmentation": None},
    "everything": {"augmentation": {"crop": 1, "cutout": 2}, "label_smoothing": 0.1, "grad_clip": 1.0},
    "amp": {"amp": True, "channels_last": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_continuing_from_a_state_is_bit_exact(dataset: Dataset, options: dict[str, object]) -> None:
    settings = TrainingSettings.model_validate({"epochs": 4, "batch_size": 16, **options})

    def trainer(seed: int = 3) -> Trainer:
        return Trainer(make_network(dropout=0.3), dataset, settings, seed=seed)

    straight = trainer()
    expected = [straight.epoch() for _ in range(4)]

    interrupted = trainer()
    got = [interrupted.epoch() for _ in range(2)]
    continued = Trainer(make_network(seed=99, dropout=0.3), dataset, settings, seed=3)
    continued.load_state_dict(interrupted.state_dict())
    torch.rand(5)  # whatever random numbers the process uses otherwise
    got += [continued.epoch() for _ in range(2)]

    assert got == expected
    assert states_equal(continued.network.state_dict(), straight.network.state_dict())
    other = trainer(seed=4)
    assert [other.epoch() for _ in range(4)] != expected


def test_the_global_random_state_is_unchanged(dataset: Dataset) -> None:
    before = torch.get_rng_state()
    trainer = Trainer(make_network(dropout=0.5), dataset, TrainingSettings(epochs=1, batch_size=16), seed=0)
    trainer.epoch()
    trainer.evaluate(dataset.test)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_nonfinite_loss_is_returned(dataset: Dataset) -> None:
    broken = replace(dataset, train=Split(dataset.train.images * math.inf, dataset.train.labels))
    trainer = Trainer(make_network(), broken, TrainingSettings(epochs=1), seed=0)
    assert math.isnan(trainer.epoch().loss)


def test_gradient_clipping_bounds_the_first_step(dataset: Dataset) -> None:
    network = make_network()
    before = torch.cat([p.detach().flatten().clone() for p in network.parameters()])
    settings = TrainingSettings(epochs=1, batch_size=64, momentum=0, nesterov=False, weight_decay=0, grad_clip=1e-3)
    Trainer(network, dataset, settings, seed=0).epoch()
    after = torch.cat([p.detach().flatten() for p in network.parameters()])
    assert (after - before).norm().item() == pytest.approx(0.1 * 1e-3, rel=0.01)


@pytest.mark.parametrize("option", ["compile", "cuda_graphs"])
def test_options_that_need_cuda(dataset: Dataset, option: str) -> None:
    with pytest.raises(InvalidInput, match=f"expected a CUDA device with {option}, got cpu"):
        Trainer(make_network(), dataset, TrainingSettings.model_validate({option: True}), seed=0)


@pytest.mark.parametrize("option", [{"micro_batch_size": 4}, {"drop_path": 0.2}])
def test_options_that_exclude_cuda_graphs(dataset: Dataset, option: dict[str, object]) -> None:
    settings = TrainingSettings.model_validate({"cuda_graphs": True, **option})
    with pytest.raises(InvalidInput, match="expected cuda_graphs false with compile, micro_batch_size, drop_path"):
        Trainer(make_network(), dataset, settings, seed=0)


class Flags(nn.Module):
    """Records whether TF32 is allowed in convolutions, in the forward and the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.seen = make_network(), set[bool]()

    def forward(self, images: Tensor) -> Tensor:
        self.seen.add(torch.backends.cudnn.allow_tf32)
        logits: Tensor = self.network(images)
        logits.register_hook(lambda gradient: self.seen.add(torch.backends.cudnn.allow_tf32))
        return logits


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_in_training_and_never_in_scoring(dataset: Dataset, allowed: bool) -> None:
    before, network = torch.backends.cudnn.allow_tf32, Flags()
    Trainer(network, dataset, TrainingSettings(epochs=1, tf32=allowed), seed=0).epoch()
    assert network.seen == {allowed}
    network.seen.clear()
    score(network, dataset.train.images, dataset.train.labels, ["grad_norm"], ProxySettings())
    assert network.seen == {False}
    assert torch.backends.cudnn.allow_tf32 is before


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch_size": 0}, {"lr": -1}, {"epoch": 3}, {"momentum": 0}, {"label_smoothing": 1.0}]
)
def test_invalid_settings_raise_an_error(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TrainingSettings.model_validate(wrong)
